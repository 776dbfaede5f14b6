"""One contender of kazoo's in a mixed queue, which tells the referee what it does.

Arguments: REFEREE:PORT, HOST:PORT, directory of the lock, `lock`, `read-write` or `election`,
seed. What is not expected ends it with a failure.
"""

import random
import socket
import sys
import threading
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


def campaign(client, directory, referee, draw):
    """One round of an election. False if that was the last."""
    election = client.Election(directory)
    answers = []

    def lead():
        timer.cancel()
        lock = election.lock
        referee.tell(f"enter exclusive {lock.path}/{lock.node}", "ok")
        time.sleep(draw.uniform(0, WORK_SECONDS_MAX))
        answers.append(referee.tell("leave", "on", "enough"))

    is_impatient = draw.randrange(IMPATIENT_ONE_IN) == 0
    patience = draw.uniform(0, IMPATIENCE_SECONDS_MAX) if is_impatient else PATIENCE_SECONDS
    timer = threading.Timer(patience, election.cancel)
    timer.start()
    election.run(lead)
    timer.cancel()
    if not answers:
        assert is_impatient, "not elected"
        answers.append(referee.tell("missed", "on", "enough"))
    return answers == ["on"]


def main():
    address, hosts, directory, what, seed = sys.argv[1:]
    draw = random.Random(int(seed))
    client = KazooClient(hosts, timeout=SESSION_SECONDS)
    client.start(timeout=PATIENCE_SECONDS)
    referee = Referee(address)
    locks = []
    if what == "lock":
        locks = [(client.Lock(directory), "exclusive")]
    elif what == "read-write":
        locks = [
            (client.ReadLock(directory), "shared"),
            (client.WriteLock(directory), "exclusive"),
        ]
    referee.tell("hello kazoo", "go")
    goes_on = True
    while goes_on:
        if locks:
            goes_on = contend(*draw.choice(locks), referee, draw)
        else:
            goes_on = campaign(client, directory, referee, draw)
    referee.tell("done", "bye")
    client.stop()
    client.close()


main()
