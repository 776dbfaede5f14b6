"""One contender of kazoo's in a mixed queue, which tells the referee what it does.

Arguments: REFEREE:PORT, HOST:PORT, directory of the lock, `lock` or `read-write`, seed. What is
not expected ends it with a failure.
"""

import random
import socket
import sys
import time

from kazoo.client import KazooClient
from kazoo.exceptions import LockTimeout

SESSION_SECONDS = 8
PATIENCE_SECONDS = 40
WORK_SECONDS_MAX = 0.006
IMPATIENT_ONE_IN = 8
IMPATIENCE_SECONDS_MAX = 0.02


class Referee:
    """Hears what the rival does."""

    def __init__(self, address):
        host, port = address.split(":")
        self.socket = socket.create_connection((host, int(port)))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.answers = self.socket.makefile("r", encoding="utf-8", newline="\n")

    def tell(self, word, *expected):
        self.socket.sendall(f"{word}\n".encode())
        answer = self.answers.readline().strip()
        assert answer in expected, f"{word}: answered {answer!r}"
        return answer


def acquired(lock, patience):
    try:
        return lock.acquire(timeout=patience)
    except LockTimeout:
        return False


def contend(lock, kind, referee, draw):
    """One round: wait, hold, release. False if that was the last."""
    # Now and then one gives up, so that those behind are woken, and it is not their turn.
    is_impatient = draw.randrange(IMPATIENT_ONE_IN) == 0
    patience = draw.uniform(0, IMPATIENCE_SECONDS_MAX) if is_impatient else PATIENCE_SECONDS
    if not acquired(lock, patience):
        assert is_impatient, "not acquired"
        return referee.tell("missed", "on", "enough") == "on"
    referee.tell(f"enter {kind} {lock.path}/{lock.node}", "ok")
    time.sleep(draw.uniform(0, WORK_SECONDS_MAX))
    goes_on = referee.tell("leave", "on", "enough") == "on"
    lock.release()
    return goes_on


def main():
    address, hosts, directory, what, seed = sys.argv[1:]
    draw = random.Random(int(seed))
    client = KazooClient(hosts, timeout=SESSION_SECONDS)
    client.start(timeout=PATIENCE_SECONDS)
    referee = Referee(address)
    if what == "lock":
        locks = [(client.Lock(directory), "exclusive")]
    else:
        locks = [
            (client.ReadLock(directory), "shared"),
            (client.WriteLock(directory), "exclusive"),
        ]
    referee.tell("hello kazoo", "go")
    while contend(*draw.choice(locks), referee, draw):
        pass
    referee.tell("done", "bye")
    client.stop()
    client.close()


main()
