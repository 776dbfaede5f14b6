"""Contenders of kazoo's in queues that it shares with zklock.

`kazoo_queue.py HOST:PORT wait ROOT` waits in a queue below the root that has entries of others, and
holds a semaphore, a reader and a writer, until its input closes.

`kazoo_queue.py HOST:PORT count DIRECTORY FILE TIMES` adds to the number in a file, which only the lock
protects.
"""

import pathlib
import sys
import threading
import time

from kazoo.client import KazooClient


def wait(client, root):
    # It counts the names of Curator as contenders, because it was told to.
    shared = client.Lock(f"{root}/shared", "kazoo worker", extra_lock_patterns=["-lock-"])
    first = client.Semaphore(f"{root}/pool", "kazoo first", max_leases=1)
    second = client.Semaphore(f"{root}/pool", "kazoo second", max_leases=1)
    first.acquire()
    client.ReadLock(f"{root}/data", "kazoo reader").acquire()
    writer = client.WriteLock(f"{root}/data", "kazoo writer")
    for lock in (shared, second, writer):
        threading.Thread(target=lock.acquire, daemon=True).start()
    sys.stdin.read()


def count(client, directory, file, times):
    path = pathlib.Path(file)
    lock = client.Lock(directory)
    for _ in range(int(times)):
        with lock:
            number = int(path.read_text())
            time.sleep(0.01)
            path.write_text(str(number + 1))


def main():
    hosts, what, *arguments = sys.argv[1:]
    client = KazooClient(hosts, timeout=8)
    client.start(timeout=40)
    {"wait": wait, "count": count}[what](client, *arguments)
    client.stop()


main()
