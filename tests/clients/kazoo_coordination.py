"""kazoo's side of a counter or of barriers that it shares with this project.

Arguments: HOST:PORT, path, `counter`, `curator-counter`, `prepare` or `barriers`, times. What is
not expected ends it with a failure.
"""

import sys

from kazoo.client import KazooClient

PATIENCE_SECONDS = 40


def main():
    hosts, path, what, times = sys.argv[1:]
    client = KazooClient(hosts, timeout=8)
    client.start(timeout=PATIENCE_SECONDS)
    if what in ("counter", "curator-counter"):
        counter = client.Counter(path, support_curator=what == "curator-counter")
        for _ in range(int(times)):
            counter += 1
    elif what == "prepare":
        for number in range(int(times)):
            client.Barrier(f"{path}/theirs-{number}").create()
    else:
        # Waits for what the other side opens, and opens what it has closed.
        for number in range(int(times)):
            is_open = client.Barrier(f"{path}/theirs-{number}").wait(PATIENCE_SECONDS)
            assert is_open, "not opened"
            assert client.Barrier(f"{path}/ours-{number}").remove(), "not closed"
    client.stop()
    client.close()


main()
