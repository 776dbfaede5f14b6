import java.io.OutputStream;
import java.net.URL;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Collectors;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.api.transaction.CuratorTransactionResult;
import org.apache.curator.framework.recipes.atomic.AtomicValue;
import org.apache.curator.framework.recipes.atomic.DistributedAtomicLong;
import org.apache.curator.framework.recipes.barriers.DistributedBarrier;
import org.apache.curator.framework.recipes.barriers.DistributedDoubleBarrier;
import org.apache.curator.framework.recipes.cache.CuratorCache;
import org.apache.curator.framework.recipes.cache.CuratorCacheListener;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.framework.recipes.nodes.PersistentNode;
import org.apache.curator.framework.recipes.shared.SharedCount;
import org.apache.curator.framework.recipes.watch.PersistentWatcher;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.retry.ExponentialBackoffRetry;
import org.apache.zookeeper.AddWatchMode;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.data.Stat;

/**
 * What Curator users do, against a server: one line for each flow.
 *
 * <p>{@code CuratorFlows HOST:PORT CONTROL [FLOW...]} runs them, or those that are named; CONTROL ends
 * all connections: the address of the program zk-testserver for commands, or a pipe into another
 * server, which reads the line "cut", or "-". FLOW_ROUNDS sets how often a contender takes its lock.
 */
public final class CuratorFlows {
    private static final String ROOT = "/curator";

    private static final int SESSION_MS = 8_000;
    private static final int FLOW_SECONDS = 40;
    private static final int WAIT_SECONDS = 15;
    private static final int ROUNDS =
            Integer.parseInt(System.getenv().getOrDefault("FLOW_ROUNDS", "15"));

    private static String hosts;
    private static String control;
    private static List<String> wanted;
    private static final List<AutoCloseable> OPEN = new ArrayList<>();
    private static final ExecutorService THREADS = Executors.newCachedThreadPool(task -> {
        Thread thread = new Thread(task);
        thread.setDaemon(true);
        return thread;
    });

    private interface Flow {
        void run() throws Exception;
    }

    public static void main(String[] arguments) throws Exception {
        hosts = arguments[0];
        control = arguments[1];
        wanted = Arrays.asList(arguments).subList(2, arguments.length);
        boolean passed = flow("create", CuratorFlows::create)
                & flow("transaction", CuratorFlows::transaction)
                & flow("background and watches", CuratorFlows::background)
                & flow("InterProcessMutex", CuratorFlows::mutex)
                & flow("InterProcessReadWriteLock", CuratorFlows::readWriteLock)
                & flow("InterProcessSemaphoreV2", CuratorFlows::semaphore)
                & flow("LeaderLatch", CuratorFlows::leaderLatch)
                & flow("SharedCount", CuratorFlows::sharedCount)
                & flow("DistributedAtomicLong", CuratorFlows::atomicLong)
                & flow("DistributedBarrier", CuratorFlows::barrier)
                & flow("DistributedDoubleBarrier", CuratorFlows::doubleBarrier)
                & flow("PersistentNode", CuratorFlows::persistentNode)
                & flow("PersistentWatcher", CuratorFlows::persistentWatcher)
                & flow("CuratorCache", CuratorFlows::cache)
                & (control.equals("-") || flow("reconnect", CuratorFlows::reconnect));
        System.exit(passed ? 0 : 1);
    }

    private static boolean flow(String name, Flow flow) {
        if (!wanted.isEmpty() && !wanted.contains(name)) {
            return true;
        }
        Throwable failure = null;
        Future<?> running = THREADS.submit(() -> {
            flow.run();
            return null;
        });
        try {
            running.get(FLOW_SECONDS, TimeUnit.SECONDS);
        } catch (Exception error) {
            failure = error.getCause() == null ? error : error.getCause();
            failure.printStackTrace();
        }
        synchronized (OPEN) {
            for (int last = OPEN.size(); last > 0; last--) {
                try {
                    OPEN.remove(last - 1).close();
                } catch (Exception error) {
                    // Recipes may be closed, and clients gone.
                }
            }
        }
        System.out.println(failure == null
                ? "ok      Curator: " + name
                : "FAILED  Curator: " + name + ": " + failure);
        return failure == null;
    }

    private static <T extends AutoCloseable> T closing(T closeable) {
        synchronized (OPEN) {
            OPEN.add(closeable);
        }
        return closeable;
    }

    private static CuratorFramework client() throws Exception {
        CuratorFramework client = CuratorFrameworkFactory.newClient(
                hosts, SESSION_MS, 5_000, new ExponentialBackoffRetry(100, 5));
        client.start();
        check(client.blockUntilConnected(WAIT_SECONDS, TimeUnit.SECONDS), "not connected");
        return closing(client);
    }

    private static void check(boolean holds, String otherwise) {
        if (!holds) {
            throw new AssertionError(otherwise);
        }
    }

    private static void same(Object found, Object expected) {
        check(found.equals(expected), "found " + found + ", expected " + expected);
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static String text(byte[] bytes) {
        return new String(bytes, StandardCharsets.UTF_8);
    }

    private static void parallel(List<Callable<Void>> calls) throws Exception {
        for (Future<Void> future : THREADS.invokeAll(calls, WAIT_SECONDS, TimeUnit.SECONDS)) {
            future.get();
        }
    }

    /** Polls: some recipes tell nobody what they have seen. */
    private static void eventually(Callable<Boolean> holds, String otherwise) throws Exception {
        long start = System.nanoTime();
        while (!holds.call()) {
            boolean isInTime = System.nanoTime() - start < TimeUnit.SECONDS.toNanos(WAIT_SECONDS);
            check(isInTime, otherwise);
            Thread.sleep(10);
        }
    }

    private static void create() throws Exception {
        CuratorFramework client = client();
        String base = ROOT + "/create";
        client.create().creatingParentContainersIfNeeded().forPath(base + "/a/b", bytes("data"));
        same(text(client.getData().forPath(base + "/a/b")), "data");
        client.create().creatingParentsIfNeeded().forPath(base + "/c/d");
        String path = client.create().withProtection()
                .withMode(CreateMode.EPHEMERAL_SEQUENTIAL).forPath(base + "/p-");
        check(path.matches(base + "/_c_[0-9a-f-]{36}-p-[0-9]{10}"), path);
        long session = client.getZookeeperClient().getZooKeeper().getSessionId();
        same(client.checkExists().forPath(path).getEphemeralOwner(), session);
        client.create().withTtl(60_000).withMode(CreateMode.PERSISTENT_WITH_TTL)
                .forPath(base + "/ttl");
        client.create().orSetData().forPath(base + "/c", bytes("set"));
        same(client.setData().withVersion(1).forPath(base + "/c").getVersion(), 2);
        try {
            client.setData().withVersion(7).forPath(base + "/c");
            check(false, "a wrong version was accepted");
        } catch (KeeperException.BadVersionException expected) {
            // As it should be.
        }
        client.delete().guaranteed().deletingChildrenIfNeeded().forPath(base);
        check(client.checkExists().forPath(base) == null, "not deleted");
        CuratorFramework below = client.usingNamespace("namespace");
        below.create().forPath("/x");
        check(client.checkExists().forPath("/namespace/x") != null, "not in the namespace");
    }

    private static void transaction() throws Exception {
        CuratorFramework client = client();
        String base = ROOT + "/transaction";
        client.createContainers(base);
        List<CuratorTransactionResult> results = client.transaction().forOperations(
                client.transactionOp().create().forPath(base + "/a", bytes("a")),
                client.transactionOp().check().withVersion(0).forPath(base + "/a"),
                client.transactionOp().setData().forPath(base + "/a", bytes("b")),
                client.transactionOp().create().forPath(base + "/b"),
                client.transactionOp().delete().forPath(base + "/b"));
        same(results.size(), 5);
        same(results.get(2).getResultStat().getVersion(), 1);
        try {
            client.transaction().forOperations(
                    client.transactionOp().create().forPath(base + "/c"),
                    client.transactionOp().check().withVersion(9).forPath(base + "/a"));
            check(false, "a wrong check was accepted");
        } catch (KeeperException.BadVersionException error) {
            List<Integer> codes = error.getResults().stream()
                    .map(result -> ((org.apache.zookeeper.OpResult.ErrorResult) result).getErr())
                    .collect(Collectors.toList());
            same(codes, Arrays.asList(0, KeeperException.Code.BADVERSION.intValue()));
        }
        same(client.getChildren().forPath(base), List.of("a"));
    }

    private static void background() throws Exception {
        CuratorFramework client = client();
        String path = ROOT + "/background";
        LinkedBlockingQueue<String> seen = new LinkedBlockingQueue<>();
        client.create().creatingParentsIfNeeded()
                .inBackground((it, event) -> seen.add("created " + event.getResultCode()))
                .forPath(path);
        same(next(seen), "created 0");
        client.checkExists().usingWatcher(
                (org.apache.zookeeper.Watcher) event -> seen.add("" + event.getType()))
                .forPath(path);
        client.setData().forPath(path, bytes("x"));
        same(next(seen), "NodeDataChanged");
        client.sync().inBackground((it, event) -> seen.add("synced " + event.getResultCode()))
                .forPath(path);
        same(next(seen), "synced 0");
        org.apache.zookeeper.Watcher watcher = event -> seen.add("" + event.getType());
        client.checkExists().usingWatcher(watcher).forPath(path);
        client.watchers().remove(watcher).forPath(path);
        same(next(seen), "DataWatchRemoved");
    }

    private static String next(LinkedBlockingQueue<String> seen) throws Exception {
        String event = seen.poll(WAIT_SECONDS, TimeUnit.SECONDS);
        return event == null ? "nothing" : event;
    }

    /** As many contenders as locks; at most so many of them inside. */
    private static void exclusion(List<InterProcessLock> locks) throws Exception {
        AtomicInteger inside = new AtomicInteger();
        List<Callable<Void>> contenders = new ArrayList<>();
        for (InterProcessLock lock : locks) {
            contenders.add(() -> {
                for (int round = 0; round < ROUNDS; round++) {
                    check(lock.acquire(WAIT_SECONDS, TimeUnit.SECONDS), "not acquired");
                    try {
                        same(inside.incrementAndGet(), 1);
                        Thread.sleep(2);
                        inside.decrementAndGet();
                    } finally {
                        lock.release();
                    }
                }
                return null;
            });
        }
        parallel(contenders);
    }

    private static void mutex() throws Exception {
        String path = ROOT + "/mutex";
        CuratorFramework one = client();
        CuratorFramework two = client();
        exclusion(List.of(new InterProcessMutex(one, path), new InterProcessMutex(two, path),
                new InterProcessMutex(one, path)));
        InterProcessMutex held = new InterProcessMutex(one, path);
        InterProcessMutex waiting = new InterProcessMutex(two, path);
        held.acquire();
        held.acquire();
        check(!waiting.acquire(300, TimeUnit.MILLISECONDS), "two holders");
        same(waiting.getParticipantNodes().size(), 1);
        held.release();
        check(!waiting.acquire(100, TimeUnit.MILLISECONDS), "held twice, released once");
        // The holder's session ends without a release.
        one.close();
        check(waiting.acquire(WAIT_SECONDS, TimeUnit.SECONDS), "not handed over");
        waiting.release();
        same(two.getChildren().forPath(path), List.of());
    }

    private static void readWriteLock() throws Exception {
        String path = ROOT + "/read-write-lock";
        InterProcessReadWriteLock one = new InterProcessReadWriteLock(client(), path);
        InterProcessReadWriteLock two = new InterProcessReadWriteLock(client(), path);
        exclusion(List.of(one.writeLock(), two.writeLock()));
        one.readLock().acquire();
        check(two.readLock().acquire(WAIT_SECONDS, TimeUnit.SECONDS), "two may read");
        two.readLock().release();
        check(!two.writeLock().acquire(300, TimeUnit.MILLISECONDS), "written while read");
        one.readLock().release();
        check(two.writeLock().acquire(WAIT_SECONDS, TimeUnit.SECONDS), "not handed over");
        check(!one.readLock().acquire(300, TimeUnit.MILLISECONDS), "read while written");
        two.writeLock().release();
    }

    private static void semaphore() throws Exception {
        String path = ROOT + "/semaphore";
        InterProcessSemaphoreV2 one = new InterProcessSemaphoreV2(client(), path, 2);
        InterProcessSemaphoreV2 two = new InterProcessSemaphoreV2(client(), path, 2);
        Lease first = one.acquire(WAIT_SECONDS, TimeUnit.SECONDS);
        check(first != null && two.acquire(WAIT_SECONDS, TimeUnit.SECONDS) != null, "two leases");
        check(one.acquire(300, TimeUnit.MILLISECONDS) == null, "three leases");
        one.returnLease(first);
        check(one.acquire(WAIT_SECONDS, TimeUnit.SECONDS) != null, "none was returned");
    }

    private static void leaderLatch() throws Exception {
        String path = ROOT + "/latch";
        LeaderLatch one = new LeaderLatch(client(), path, "one");
        LeaderLatch two = closing(new LeaderLatch(client(), path, "two"));
        one.start();
        check(one.await(WAIT_SECONDS, TimeUnit.SECONDS), "nobody leads");
        two.start();
        check(!two.await(300, TimeUnit.MILLISECONDS), "two leaders");
        same(two.getLeader().getId(), "one");
        one.close();
        check(two.await(WAIT_SECONDS, TimeUnit.SECONDS), "not handed over");
        same(two.getParticipants().size(), 1);
    }

    private static void sharedCount() throws Exception {
        String path = ROOT + "/count";
        SharedCount one = closing(new SharedCount(client(), path, 7));
        SharedCount two = closing(new SharedCount(client(), path, 7));
        one.start();
        two.start();
        one.setCount(8);
        eventually(() -> two.getCount() == 8, "the other does not see it");
        check(two.trySetCount(two.getVersionedValue(), 9), "a right version was refused");
        eventually(() -> one.getCount() == 9, "the other does not see it");
    }

    private static void atomicLong() throws Exception {
        String path = ROOT + "/long";
        List<Callable<Void>> counters = new ArrayList<>();
        for (int number = 0; number < 3; number++) {
            DistributedAtomicLong counter = new DistributedAtomicLong(
                    client(), path, new ExponentialBackoffRetry(5, 20));
            counters.add(() -> {
                for (int count = 0; count < ROUNDS; ) {
                    AtomicValue<Long> value = counter.increment();
                    count += value.succeeded() ? 1 : 0;
                }
                return null;
            });
        }
        parallel(counters);
        DistributedAtomicLong counter = new DistributedAtomicLong(
                client(), path, new ExponentialBackoffRetry(5, 20));
        same(counter.get().postValue(), 3L * ROUNDS);
    }

    private static void barrier() throws Exception {
        String path = ROOT + "/barrier";
        DistributedBarrier one = new DistributedBarrier(client(), path);
        DistributedBarrier two = new DistributedBarrier(client(), path);
        one.setBarrier();
        check(!two.waitOnBarrier(300, TimeUnit.MILLISECONDS), "there was no barrier");
        one.removeBarrier();
        check(two.waitOnBarrier(WAIT_SECONDS, TimeUnit.SECONDS), "the barrier stays");
    }

    private static void doubleBarrier() throws Exception {
        AtomicInteger inside = new AtomicInteger();
        List<Callable<Void>> members = new ArrayList<>();
        for (int number = 0; number < 3; number++) {
            DistributedDoubleBarrier barrier =
                    new DistributedDoubleBarrier(client(), ROOT + "/double-barrier", 3);
            members.add(() -> {
                inside.incrementAndGet();
                check(barrier.enter(WAIT_SECONDS, TimeUnit.SECONDS), "not entered");
                same(inside.get(), 3);
                check(barrier.leave(WAIT_SECONDS, TimeUnit.SECONDS), "not left");
                return null;
            });
        }
        parallel(members);
    }

    private static void persistentNode() throws Exception {
        String path = ROOT + "/persistent-node";
        PersistentNode node = closing(
                new PersistentNode(client(), CreateMode.EPHEMERAL, true, path, bytes("here")));
        node.start();
        check(node.waitForInitialCreate(WAIT_SECONDS, TimeUnit.SECONDS), "not created");
        CuratorFramework other = client();
        long first = other.checkExists().forPath(node.getActualPath()).getCzxid();
        other.delete().forPath(node.getActualPath());
        eventually(() -> {
            Stat stat = other.checkExists().forPath(node.getActualPath());
            return stat != null && stat.getCzxid() > first;
        }, "not created again");
    }

    private static void persistentWatcher() throws Exception {
        String path = ROOT + "/persistent-watcher";
        CuratorFramework client = client();
        CuratorFramework other = client();
        client.createContainers(path);
        LinkedBlockingQueue<String> seen = new LinkedBlockingQueue<>();
        PersistentWatcher watcher = closing(new PersistentWatcher(client, path, true));
        watcher.getListenable().addListener(
                event -> seen.add(event.getType() + " " + event.getPath()));
        CountDownLatch added = new CountDownLatch(1);
        watcher.getResetListenable().addListener(added::countDown);
        watcher.start();
        check(added.await(WAIT_SECONDS, TimeUnit.SECONDS), "the watch is not set");
        other.create().forPath(path + "/a");
        other.setData().forPath(path + "/a", bytes("1"));
        other.create().forPath(path + "/a/b");
        other.delete().forPath(path + "/a/b");
        same(next(seen), "NodeCreated " + path + "/a");
        same(next(seen), "NodeDataChanged " + path + "/a");
        same(next(seen), "NodeCreated " + path + "/a/b");
        same(next(seen), "NodeDeleted " + path + "/a/b");
        client.watchers().add().withMode(AddWatchMode.PERSISTENT).usingWatcher(
                (org.apache.zookeeper.Watcher) event -> seen.add("plain " + event.getType()))
                .forPath(path + "/other");
        other.create().forPath(path + "/other");
        List<String> both = Arrays.asList(next(seen), next(seen));
        check(both.contains("plain NodeCreated"), both.toString());
    }

    private static void cache() throws Exception {
        String path = ROOT + "/cache";
        CuratorFramework client = client();
        CuratorFramework other = client();
        other.create().creatingParentsIfNeeded().forPath(path + "/a", bytes("1"));
        LinkedBlockingQueue<String> seen = new LinkedBlockingQueue<>();
        CuratorCache cache = closing(CuratorCache.build(client, path));
        CountDownLatch filled = new CountDownLatch(1);
        cache.listenable().addListener(CuratorCacheListener.builder()
                .forInitialized(filled::countDown)
                .forAll((type, before, after) ->
                        seen.add(type + " " + (after == null ? before : after).getPath()))
                .build());
        cache.start();
        check(filled.await(WAIT_SECONDS, TimeUnit.SECONDS), "not filled");
        same(text(cache.get(path + "/a").get().getData()), "1");
        seen.clear();
        other.setData().forPath(path + "/a", bytes("2"));
        same(next(seen), "NODE_CHANGED " + path + "/a");
        other.create().forPath(path + "/b");
        same(next(seen), "NODE_CREATED " + path + "/b");
        other.delete().forPath(path + "/b");
        same(next(seen), "NODE_DELETED " + path + "/b");
    }

    private static void reconnect() throws Exception {
        String path = ROOT + "/reconnect";
        CuratorFramework client = client();
        long session = client.getZookeeperClient().getZooKeeper().getSessionId();
        LinkedBlockingQueue<String> states = new LinkedBlockingQueue<>();
        InterProcessMutex mutex = new InterProcessMutex(client, path + "-lock");
        mutex.acquire();
        client.create().forPath(path);
        CuratorCache cache = closing(CuratorCache.build(client, path));
        cache.start();
        client.getConnectionStateListenable().addListener(
                (it, state) -> states.add(state.toString()));
        if (control.startsWith("http://")) {
            new URL(control + "/command/closeconnection").openStream().close();
        } else {
            try (OutputStream pipe = Files.newOutputStream(Path.of(control))) {
                pipe.write(bytes("cut\n"));
            }
        }
        String state = next(states);
        if (state.equals(ConnectionState.CONNECTED.toString())) {
            // A thread of Curator reports the first connection, and may do so after all that.
            state = next(states);
        }
        same(state, ConnectionState.SUSPENDED.toString());
        same(next(states), ConnectionState.RECONNECTED.toString());
        same(client.getZookeeperClient().getZooKeeper().getSessionId(), session);
        check(mutex.isAcquiredInThisProcess(), "the mutex is lost");
        check(!new InterProcessMutex(client(), path + "-lock").acquire(0, TimeUnit.SECONDS),
                "two holders");
        client().create().forPath(path + "/after");
        eventually(() -> cache.get(path + "/after").isPresent(), "the watch is lost");
        mutex.release();
    }
}
