import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.atomic.DistributedAtomicLong;
import org.apache.curator.framework.recipes.barriers.DistributedBarrier;
import org.apache.curator.framework.recipes.shared.SharedCount;
import org.apache.curator.retry.ExponentialBackoffRetry;
import org.apache.curator.retry.RetryNTimes;

/**
 * Curator's side of a counter or of barriers that it shares with this project.
 *
 * <p>{@code CuratorCoordination HOST:PORT PATH shared-count|atomic-long|prepare|barriers TIMES};
 * what is not expected ends it with a failure.
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

    private static void check(boolean holds, String otherwise) {
        if (!holds) {
            throw new AssertionError(otherwise);
        }
    }
}
