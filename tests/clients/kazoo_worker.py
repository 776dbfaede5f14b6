"""A producer or a consumer of kazoo's LockingQueue, beside those of our work queue.

Arguments: HOST:PORT, directory of the queue, `put` or `take`, name, number of items to put. A
consumer prints a line `took ITEM` for each item that it has, and `acked ITEM` when it has consumed
the item, and ends when it has taken `end`. What is not expected ends it with a failure.
"""

import sys
import time

from kazoo.client import KazooClient

SESSION_SECONDS = 8
PATIENCE_SECONDS = 40


def put(queue, name, count):
    for number in range(count):
        priority = 50 if number % 10 == 9 else 100
        queue.put(f"{name}-{number:04}".encode(), priority)


def take(queue):
    while True:
        value = queue.get(PATIENCE_SECONDS)
        assert value is not None, "no item came"
        item = value.decode()
        print("took", item, flush=True)
        time.sleep(0.001)
        assert queue.consume(), f"{item} could not be consumed"
        print("acked", item, flush=True)
        if item.startswith("end"):
            return


def main():
    hosts, directory, what, name, count = sys.argv[1:]
    client = KazooClient(hosts, timeout=SESSION_SECONDS)
    client.start(timeout=PATIENCE_SECONDS)
    queue = client.LockingQueue(directory)
    if what == "put":
        put(queue, name, int(count))
    else:
        take(queue)
    client.stop()
    client.close()


main()
