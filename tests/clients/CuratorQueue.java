import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.retry.ExponentialBackoffRetry;

/**
 * Contenders of Curator's in queues that it shares with zklock.
 *
 * <p>{@code CuratorQueue HOST:PORT wait ROOT} waits in a queue below the root that has entries of
 * others, leads another one, and has a lease of a semaphore, until its input closes.
 *
 * <p>{@code CuratorQueue HOST:PORT count DIRECTORY FILE TIMES} adds to the number in a file, which only
 * the lock protects.
 */
public final class CuratorQueue {
    private static final int PATIENCE_MS = 40_000;

    public static void main(String[] arguments) throws Exception {
        CuratorFramework client = CuratorFrameworkFactory.newClient(
                arguments[0], 8_000, 5_000, new ExponentialBackoffRetry(100, 5));
        client.start();
        if (!client.blockUntilConnected(PATIENCE_MS, TimeUnit.MILLISECONDS)) {
            throw new AssertionError("not connected");
        }
        if (arguments[1].equals("wait")) {
            await(client, arguments[2]);
        } else {
            count(client, arguments[2], Path.of(arguments[3]), Integer.parseInt(arguments[4]));
        }
        client.close();
    }

    private static void await(CuratorFramework client, String root) throws Exception {
        LeaderLatch latch = new LeaderLatch(client, root + "/leader", "curator leader");
        latch.start();
        latch.await();
        new InterProcessSemaphoreV2(client, root + "/leases", 2).acquire();
        InterProcessMutex mutex = new InterProcessMutex(client, root + "/shared") {
            @Override
            protected byte[] getLockNodeBytes() {
                return "curator worker".getBytes(StandardCharsets.UTF_8);
            }
        };
        Thread waiter = new Thread(() -> {
            try {
                mutex.acquire();
            } catch (Exception ended) {
                // The client was closed.
            }
        });
        waiter.setDaemon(true);
        waiter.start();
        while (System.in.read() >= 0) { }
        System.exit(0);
    }

    private static void count(CuratorFramework client, String directory, Path file, int times)
            throws Exception {
        InterProcessMutex mutex = new InterProcessMutex(client, directory);
        for (int time = 0; time < times; time++) {
            mutex.acquire();
            int number = Integer.parseInt(Files.readString(file).trim());
            Thread.sleep(10);
            Files.writeString(file, Integer.toString(number + 1));
            mutex.release();
        }
    }
}
