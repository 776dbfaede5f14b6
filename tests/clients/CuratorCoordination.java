import java.util.Collection;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.atomic.DistributedAtomicLong;
import org.apache.curator.framework.recipes.barriers.DistributedBarrier;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.Revoker;
import org.apache.curator.framework.recipes.shared.SharedCount;
import org.apache.curator.retry.ExponentialBackoffRetry;
import org.apache.curator.retry.RetryNTimes;

/**
 * Curator's side of a counter, of barriers, or of a lock to be revoked, which it shares with this
 * project.
 *
 * <p>{@code CuratorCoordination HOST:PORT PATH WHAT TIMES}, where WHAT is a case below; what is not
 * expected ends it with a failure.
 */
public final class CuratorCoordination {
    private static final int PATIENCE_MS = 40_000;

    public static void main(String[] arguments) throws Exception {
        CuratorFramework client = CuratorFrameworkFactory.newClient(
                arguments[0], 8_000, 5_000, new ExponentialBackoffRetry(100, 5));
        client.start();
        check(client.blockUntilConnected(PATIENCE_MS, TimeUnit.MILLISECONDS), "not connected");
        String path = arguments[1];
        int times = Integer.parseInt(arguments[3]);
        switch (arguments[2]) {
            case "shared-count": addShared(client, path, times); break;
            case "atomic-long": addAtomic(client, path, times); break;
            case "prepare":
                for (int number = 0; number < times; number++) {
                    new DistributedBarrier(client, path + "/theirs-" + number).setBarrier();
                }
                break;
            case "barriers":
                // Waits for what the other side opens, and opens what it has closed.
                for (int number = 0; number < times; number++) {
                    DistributedBarrier own = new DistributedBarrier(client, path + "/theirs-" + number);
                    check(own.waitOnBarrier(PATIENCE_MS, TimeUnit.MILLISECONDS), "not opened");
                    new DistributedBarrier(client, path + "/ours-" + number).removeBarrier();
                }
                break;
            case "hold": hold(client, path, times); break;
            case "ask": ask(client, path, times); break;
            default: throw new AssertionError(arguments[2]);
        }
        client.close();
    }

    private static void addShared(CuratorFramework client, String path, int times)
            throws Exception {
        try (SharedCount count = new SharedCount(client, path, 0)) {
            count.start();
            for (int added = 0; added < times; ) {
                if (count.trySetCount(count.getVersionedValue(), count.getCount() + 1)) {
                    added++;
                }
            }
        }
    }

    private static void addAtomic(CuratorFramework client, String path, int times)
            throws Exception {
        DistributedAtomicLong count =
                new DistributedAtomicLong(client, path, new RetryNTimes(1_000, 2));
        for (int added = 0; added < times; added++) {
            check(count.increment().succeeded(), "not added");
        }
    }

    /** Holds the lock until somebody asks for it, again and again. */
    private static void hold(CuratorFramework client, String path, int times) throws Exception {
        InterProcessMutex mutex = new InterProcessMutex(client, path);
        for (int held = 0; held < times; held++) {
            CountDownLatch asked = new CountDownLatch(1);
            mutex.makeRevocable(forLock -> asked.countDown());
            check(mutex.acquire(PATIENCE_MS, TimeUnit.MILLISECONDS), "not acquired");
            check(asked.await(PATIENCE_MS, TimeUnit.MILLISECONDS), "not asked");
            mutex.release();
        }
    }

    /** Asks each holder for the lock, once. */
    private static void ask(CuratorFramework client, String path, int times) throws Exception {
        InterProcessMutex mutex = new InterProcessMutex(client, path);
        String last = "";
        for (int asked = 0; asked < times; ) {
            Collection<String> holders = mutex.getParticipantNodes();
            for (String holder : holders) {
                if (!holder.equals(last)) {
                    last = holder;
                    Revoker.attemptRevoke(client, holder);
                    asked++;
                }
            }
        }
    }

    private static void check(boolean holds, String otherwise) {
        if (!holds) {
            throw new AssertionError(otherwise);
        }
    }
}
