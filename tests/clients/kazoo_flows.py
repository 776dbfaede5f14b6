"""What kazoo users do, against a server: one line for each flow.

Arguments: HOST:PORT, and how to end all connections: the address of the program zk-testserver for
commands, `http://HOST:PORT`, or the path of a pipe into another server, which reads the line `cut`;
`-` if there is neither. Then the names of the flows, if not all are wanted.
FLOW_ROUNDS sets how often a contender takes its lock.
"""

import os
import signal
import sys
import threading
import traceback
from urllib.request import urlopen

from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import (
    BadVersionError,
    LockTimeout,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RolledBackError,
    RuntimeInconsistency,
)
from kazoo.protocol.states import EventType, WatchedEvent
from kazoo.recipe.watchers import ChildrenWatch, DataWatch
from kazoo.security import CREATOR_ALL_ACL, make_digest_acl

ROOT = "/kazoo"
FLOW_SECONDS = 30
WAIT_SECONDS = 10
ROUNDS = int(os.environ.get("FLOW_ROUNDS", "15"))


class Clients:
    """Clients that are stopped at the end of a flow, whatever happened."""

    def __init__(self, hosts):
        self.hosts = hosts
        self.started = []

    def start(self, **options):
        client = KazooClient(self.hosts, timeout=8, **options)
        client.start(timeout=WAIT_SECONDS)
        self.started.append(client)
        return client

    def stop(self):
        for client in self.started:
            client.stop()
            client.close()


def raises(error, call, *args, **options):
    try:
        call(*args, **options)
    except error:
        return
    raise AssertionError(f"no {error.__name__}")


def parallel(*calls):
    """Runs the calls at the same time; fails if one of them does."""
    errors = []

    def run(call):
        try:
            call()
        except BaseException as error:  # also what a thread should not raise
            errors.append(error)

    threads = [threading.Thread(target=run, args=(call,), daemon=True) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_SECONDS)
        assert not thread.is_alive(), "it hangs"
    if errors:
        raise errors[0]


def flow_start(clients):
    client = clients.start()
    assert client.connected and client.client_id[0] != 0
    assert client.get_children("/zookeeper")
    client.restart()
    assert client.exists("/") is not None


def flow_words(clients):
    client = clients.start()
    assert client.command(b"ruok") == "imok"
    assert "Mode: standalone" in client.command(b"srvr")
    assert client.command(b"isro") == "rw"
    assert "zk_server_state\tstandalone" in client.command(b"mntr")
    assert client.server_version() >= (3, 8, 0)


def flow_ensure_path(clients):
    client = clients.start()
    client.ensure_path(ROOT + "/ensured/a/b")
    client.ensure_path(ROOT + "/ensured/a/b/c")
    assert client.get_children(ROOT + "/ensured/a") == ["b"]
    chrooted = clients.start()
    chrooted.chroot = ROOT + "/chroot"
    chrooted.ensure_path("/x")
    assert client.exists(ROOT + "/chroot/x")


def flow_create(clients):
    client = clients.start()
    base = ROOT + "/create"
    assert client.create(base + "/deep/plain", b"data", makepath=True) == base + "/deep/plain"
    assert client.get(base + "/deep/plain")[0] == b"data"
    raises(NodeExistsError, client.create, base + "/deep/plain")
    raises(NoNodeError, client.create, base + "/missing/child")
    assert client.create(base + "/s-", sequence=True) == base + "/s-0000000001"
    path = client.create(base + "/es-", ephemeral=True, sequence=True)
    assert path == base + "/es-0000000002"
    assert client.exists(path).ephemeralOwner == client.client_id[0]
    path, stat = client.create(base + "/stat", b"12345", include_data=True)
    assert (path, stat.dataLength, stat.version) == (base + "/stat", 5, 0)
    client.add_auth("digest", "bob:secret")
    acl = make_digest_acl("bob", "secret", all=True)
    client.create(base + "/secret", b"s", acl=[acl])
    assert client.get_acls(base + "/secret")[0] == [acl]
    # Its id is an empty text, which kazoo writes as null.
    client.create(base + "/creator", b"c", acl=CREATOR_ALL_ACL)
    assert client.get_acls(base + "/creator")[0] == [acl]
    assert client.get_async(base + "/secret").get(timeout=WAIT_SECONDS)[0] == b"s"


def flow_data(clients):
    client = clients.start()
    path = ROOT + "/data"
    client.create(path, b"0", makepath=True)
    assert client.set(path, b"1", version=0).version == 1
    raises(BadVersionError, client.set, path, b"2", version=0)
    client.create(path + "/child")
    raises(NotEmptyError, client.delete, path)
    children, stat = client.get_children(path, include_data=True)
    assert (children, stat.numChildren) == (["child"], 1)
    assert client.sync(path) == path
    client.delete(path, recursive=True)
    assert client.exists(path) is None
    raises(NoNodeError, client.get, path)
    large = b"x" * 1_000_000
    client.create(path, large)
    assert client.get(path)[0] == large


def flow_transaction(clients):
    client = clients.start()
    base = ROOT + "/transaction"
    client.ensure_path(base)
    transaction = client.transaction()
    transaction.create(base + "/a", b"a")
    transaction.check(base + "/a", 0)
    transaction.set_data(base + "/a", b"b")
    transaction.create(base + "/e", ephemeral=True)
    transaction.delete(base + "/e")
    results = transaction.commit()
    assert results[0] == base + "/a" and results[2].version == 1, results
    transaction = client.transaction()
    transaction.create(base + "/b")
    transaction.check(base + "/a", 7)
    transaction.delete(base + "/a")
    results = transaction.commit()
    kinds = [type(result) for result in results]
    assert kinds == [RolledBackError, BadVersionError, RuntimeInconsistency], results
    assert client.get_children(base) == ["a"]


def flow_watches(clients):
    client, other = clients.start(), clients.start()
    base = ROOT + "/watches"
    client.ensure_path(base)
    events = []
    seen = threading.Event()

    def watch(event: WatchedEvent):
        events.append((event.type, event.path))
        seen.set()

    def once(change):
        seen.clear()
        change()
        assert seen.wait(WAIT_SECONDS), "no event"

    client.exists(base + "/a", watch=watch)
    once(lambda: other.create(base + "/a"))
    client.get(base + "/a", watch=watch)
    once(lambda: other.set(base + "/a", b"1"))
    client.get_children(base, watch=watch)
    once(lambda: other.delete(base + "/a"))
    assert events == [
        (EventType.CREATED, base + "/a"),
        (EventType.CHANGED, base + "/a"),
        (EventType.CHILD, base),
    ], events


def wait_until(condition, reached):
    with condition:
        assert condition.wait_for(reached, WAIT_SECONDS), "it does not come to that"


def flow_data_watch(clients):
    client, other = clients.start(), clients.start()
    path = ROOT + "/data-watch"
    seen, condition = [], threading.Condition()

    def watch(data, stat):
        with condition:
            seen.append(data)
            condition.notify_all()

    DataWatch(client, path, watch)
    wait_until(condition, lambda: seen == [None])
    for number, change in enumerate(
        [
            lambda: other.create(path, b"1", makepath=True),
            lambda: other.set(path, b"2"),
            lambda: other.delete(path),
        ],
        start=2,
    ):
        change()
        wait_until(condition, lambda: len(seen) == number)
    assert seen == [None, b"1", b"2", None], seen


def flow_children_watch(clients):
    client, other = clients.start(), clients.start()
    base = ROOT + "/children-watch"
    client.ensure_path(base)
    seen, condition = [], threading.Condition()

    def watch(children):
        with condition:
            seen.append(sorted(children))
            condition.notify_all()

    ChildrenWatch(client, base, watch)
    other.create(base + "/a")
    wait_until(condition, lambda: seen[-1] == ["a"])
    other.create(base + "/b")
    wait_until(condition, lambda: seen[-1] == ["a", "b"])
    other.delete(base + "/a")
    wait_until(condition, lambda: seen[-1] == ["b"])


def exclusion(clients, make, rounds=ROUNDS, most=1):
    """Three clients take turns; no more than `most` may be inside at any time."""
    inside, highest, guard = [], [0], threading.Lock()

    def contend(client, name):
        lock = make(client, name)
        for _ in range(rounds):
            with lock:
                with guard:
                    inside.append(name)
                    highest[0] = max(highest[0], len(inside))
                threading.Event().wait(0.002)
                with guard:
                    inside.remove(name)

    names = ["first", "second", "third"]
    parallel(*(lambda c=clients.start(), n=name: contend(c, n) for name in names))
    assert highest[0] <= most, f"{highest[0]} were inside"


def flow_lock(clients):
    path = ROOT + "/lock"
    exclusion(clients, lambda client, name: client.Lock(path, name))
    one, two = clients.start(), clients.start()
    held, waiting = one.Lock(path, "one"), two.Lock(path, "two")
    assert held.acquire(timeout=WAIT_SECONDS)
    assert not waiting.acquire(blocking=False)
    raises(LockTimeout, waiting.acquire, timeout=0.3)
    assert waiting.contenders() == ["one"]
    # The holder's session ends without a release.
    one.stop()
    assert waiting.acquire(timeout=WAIT_SECONDS)
    waiting.release()
    assert two.get_children(path) == []


def flow_read_write_lock(clients):
    path = ROOT + "/read-write-lock"
    one, two = clients.start(), clients.start()
    with one.ReadLock(path, "one"), two.ReadLock(path, "two"):
        raises(LockTimeout, two.WriteLock(path, "two").acquire, timeout=0.3)
    with two.WriteLock(path, "two"):
        raises(LockTimeout, one.ReadLock(path, "one").acquire, timeout=0.3)


def flow_semaphore(clients):
    path = ROOT + "/semaphore"
    exclusion(clients, lambda client, name: client.Semaphore(path, name, 2), most=2)
    one, two = clients.start(), clients.start()
    held = [one.Semaphore(path, "one", 2), two.Semaphore(path, "two", 2)]
    for semaphore in held:
        assert semaphore.acquire()
    third = two.Semaphore(path, "third", 2)
    assert not third.acquire(blocking=False)
    held[0].release()
    assert third.acquire(timeout=WAIT_SECONDS)
    assert sorted(third.lease_holders()) == ["third", "two"]


def flow_election(clients):
    path = ROOT + "/election"
    led = []
    one, two = clients.start(), clients.start()
    first, second = one.Election(path, "one"), two.Election(path, "two")

    def lead():
        led.append("one")
        assert first.contenders()[0] == "one"

    parallel(
        lambda: first.run(lead),
        lambda: second.run(lambda: led.append("two")),
    )
    assert sorted(led) == ["one", "two"], led


def flow_barrier(clients):
    path = ROOT + "/barrier"
    one, two = clients.start(), clients.start()
    barrier = one.Barrier(path)
    barrier.create()
    assert not two.Barrier(path).wait(0.2)
    passed = []
    parallel(
        lambda: passed.append(two.Barrier(path).wait(WAIT_SECONDS)),
        barrier.remove,
    )
    assert passed == [True]


def flow_double_barrier(clients):
    path = ROOT + "/double-barrier"
    names = ["one", "two", "three"]
    begun, guard, all_inside = [], threading.Lock(), threading.Barrier(len(names))

    def take_part(client, name):
        barrier = client.DoubleBarrier(path, len(names), identifier=name)
        with guard:
            begun.append(name)
        barrier.enter()
        with guard:
            assert len(begun) == len(names), "entered before all had begun"
        # One that leaves deletes `ready`, and kazoo waits for ever if it looks only then.
        all_inside.wait(WAIT_SECONDS)
        barrier.leave()

    parallel(*(lambda c=clients.start(), n=name: take_part(c, n) for name in names))


def flow_party(clients):
    path = ROOT + "/party"
    one, two = clients.start(), clients.start()
    first, second = one.Party(path, "one"), two.ShallowParty(path + "-shallow", "two")
    first.join()
    second.join()
    assert list(one.Party(path)) == ["one"] and len(one.ShallowParty(path + "-shallow")) == 1
    joined = two.Party(path, "two")
    joined.join()
    assert sorted(first) == ["one", "two"]
    first.leave()
    assert list(joined) == ["two"]


def flow_counter(clients):
    path = ROOT + "/counter"
    counters = [clients.start().Counter(path) for _ in range(3)]

    def count(counter):
        for _ in range(ROUNDS):
            counter += 1

    parallel(*(lambda c=counter: count(c) for counter in counters))
    assert counters[0].value == 3 * ROUNDS, counters[0].value


def flow_queue(clients):
    path = ROOT + "/queue"
    one, two = clients.start(), clients.start()
    queue = one.Queue(path)
    for item in [b"1", b"2", b"3"]:
        queue.put(item)
    queue.put(b"0", priority=1)
    assert [two.Queue(path).get() for _ in range(4)] == [b"0", b"1", b"2", b"3"]
    assert two.Queue(path).get() is None


def flow_locking_queue(clients):
    path = ROOT + "/locking-queue"
    one, two = clients.start(), clients.start()
    one.LockingQueue(path).put_all([b"1", b"2"])
    first, second = one.LockingQueue(path), two.LockingQueue(path)
    assert (first.get(timeout=WAIT_SECONDS), second.get(timeout=WAIT_SECONDS)) == (b"1", b"2")
    assert first.consume() and second.release()
    assert first.get(timeout=WAIT_SECONDS) == b"2" and first.consume()


def flow_reconnect(clients, cut):
    client = clients.start()
    path = ROOT + "/reconnect"
    client.ensure_path(path)
    session = client.client_id[0]
    states, condition = [], threading.Condition()
    seen = []

    def listen(state):
        with condition:
            states.append(state)
            condition.notify_all()

    def watch(children):
        with condition:
            seen.append(children)
            condition.notify_all()

    ChildrenWatch(client, path, watch)
    lock = client.Lock(path + "-lock", "one")
    lock.acquire()
    client.add_listener(listen)
    cut()
    wait_until(condition, lambda: states[-1:] == [KazooState.CONNECTED])
    assert states[0] == KazooState.SUSPENDED, states
    assert client.client_id[0] == session, "another session"
    assert lock.contenders() == ["one"]
    clients.start().create(path + "/after")
    wait_until(condition, lambda: seen[-1] == ["after"])
    lock.release()


def on_alarm(_signal, _frame):
    raise TimeoutError(f"not done within {FLOW_SECONDS} s")


def main():
    hosts, control, *wanted = sys.argv[1:]
    flows = [
        (name.removeprefix("flow_"), flow)
        for name, flow in globals().items()
        if name.startswith("flow_") and flow is not flow_reconnect
    ]
    if control != "-":

        def cut():
            if control.startswith("http://"):
                with urlopen(control + "/command/closeconnection") as answer:
                    assert answer.status == 200
                return
            with open(control, "w", encoding="ascii") as pipe:
                pipe.write("cut\n")

        flows.append(("reconnect", lambda clients: flow_reconnect(clients, cut)))
    if wanted:
        flows = [flow for flow in flows if flow[0] in wanted]
        assert len(flows) == len(wanted), f"not all of {wanted} are flows"
    signal.signal(signal.SIGALRM, on_alarm)
    failed = 0
    for name, flow in flows:
        clients = Clients(hosts)
        problem = None
        signal.alarm(FLOW_SECONDS)
        try:
            flow(clients)
        except Exception as error:
            traceback.print_exc()
            problem = error
        try:
            clients.stop()
        except Exception as error:
            problem = problem or error
        signal.alarm(0)
        name = "kazoo: " + name.replace("_", " ")
        if problem is None:
            print(f"ok      {name}", flush=True)
        else:
            failed += 1
            print(f"FAILED  {name}: {problem!r}", flush=True)
    # Threads of a flow that hangs would keep the process alive.
    os._exit(1 if failed else 0)


main()
