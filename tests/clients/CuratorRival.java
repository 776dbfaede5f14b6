import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Random;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.leader.LeaderSelector;
import org.apache.curator.framework.recipes.leader.LeaderSelectorListenerAdapter;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.retry.ExponentialBackoffRetry;

/**
 * One contender of Curator's in a mixed queue, which tells the referee what it does.
 *
 * <p>{@code CuratorRival REFEREE:PORT HOST:PORT DIRECTORY lock|read-write|election|selector SEED}; what is not
 * expected ends it with a failure. Its readers and writers never downgrade:
 * docs/internals/clients.md says why.
 */
public final class CuratorRival {
    private static final int SESSION_MS = 8_000;
    private static final int PATIENCE_MS = 40_000;
    private static final int WORK_MS_MAX = 6;
    private static final int IMPATIENT_ONE_IN = 8;
    private static final int IMPATIENCE_MS_MAX = 20;

    private final BufferedReader answers;
    private final Socket referee;
    private final Random random;

    public static void main(String[] arguments) throws Exception {
        CuratorFramework client = CuratorFrameworkFactory.newClient(
                arguments[1], SESSION_MS, 5_000, new ExponentialBackoffRetry(100, 5));
        client.start();
        check(client.blockUntilConnected(PATIENCE_MS, TimeUnit.MILLISECONDS), "not connected");
        CuratorRival rival = new CuratorRival(arguments[0], Long.parseLong(arguments[4]));
        String directory = arguments[2];
        rival.tell("hello Curator", "go");
        switch (arguments[3]) {
            case "lock":
                InterProcessMutex mutex = new InterProcessMutex(client, directory);
                while (rival.contend(mutex, "exclusive")) { }
                break;
            case "election":
                while (rival.campaign(new LeaderLatch(client, directory))) { }
                break;
            case "selector":
                rival.select(client, directory);
                break;
            default:
                InterProcessReadWriteLock lock = new InterProcessReadWriteLock(client, directory);
                while (rival.random.nextBoolean()
                        ? rival.contend(lock.readLock(), "shared")
                        : rival.contend(lock.writeLock(), "exclusive")) { }
        }
        rival.tell("done", "bye");
        client.close();
    }

    private CuratorRival(String address, long seed) throws IOException {
        String[] parts = address.split(":");
        referee = new Socket(parts[0], Integer.parseInt(parts[1]));
        referee.setTcpNoDelay(true);
        answers = new BufferedReader(
                new InputStreamReader(referee.getInputStream(), StandardCharsets.UTF_8));
        random = new Random(seed);
    }

    /** One round: wait, hold, release. False if that was the last. */
    private boolean contend(InterProcessMutex mutex, String kind) throws Exception {
        // Now and then one gives up, so that those behind are woken, and it is not their turn.
        boolean isImpatient = random.nextInt(IMPATIENT_ONE_IN) == 0;
        int patience = isImpatient ? random.nextInt(IMPATIENCE_MS_MAX) : PATIENCE_MS;
        if (!mutex.acquire(patience, TimeUnit.MILLISECONDS)) {
            check(isImpatient, "not acquired");
            return tell("missed", "on", "enough").equals("on");
        }
        boolean goesOn = work(kind, znode(mutex));
        mutex.release();
        return goesOn;
    }

    /** One round with a latch, which leads at most once. False if that was the last. */
    private boolean campaign(LeaderLatch latch) throws Exception {
        boolean isImpatient = random.nextInt(IMPATIENT_ONE_IN) == 0;
        int patience = isImpatient ? random.nextInt(IMPATIENCE_MS_MAX) : PATIENCE_MS;
        latch.start();
        boolean goesOn;
        if (latch.await(patience, TimeUnit.MILLISECONDS)) {
            goesOn = work("exclusive", latch.getOurPath());
            check(latch.hasLeadership(), "it does not lead");
        } else {
            check(isImpatient, "not elected");
            goesOn = tell("missed", "on", "enough").equals("on");
        }
        latch.close();
        return goesOn;
    }

    /** All rounds of a selector, which always waits for its turn. */
    private void select(CuratorFramework client, String directory) throws Exception {
        BlockingQueue<Object> answers = new LinkedBlockingQueue<>();
        LeaderSelector[] selector = new LeaderSelector[1];
        selector[0] = new LeaderSelector(client, directory, new LeaderSelectorListenerAdapter() {
            @Override
            public void takeLeadership(CuratorFramework leader) {
                try {
                    // A selector leads with a mutex, and keeps it to itself.
                    Field mutex = LeaderSelector.class.getDeclaredField("mutex");
                    mutex.setAccessible(true);
                    String znode = znode((InterProcessMutex) mutex.get(selector[0]));
                    answers.add(work("exclusive", znode));
                } catch (Exception | AssertionError problem) {
                    answers.add(problem);
                }
            }
        });
        selector[0].start();
        Object answer = answers.poll(PATIENCE_MS, TimeUnit.MILLISECONDS);
        while (Boolean.TRUE.equals(answer)) {
            // It refuses until the former leadership is released.
            while (!selector[0].requeue()) {
                Thread.sleep(1);
            }
            answer = answers.poll(PATIENCE_MS, TimeUnit.MILLISECONDS);
        }
        check(Boolean.FALSE.equals(answer), "selected: " + answer);
    }

    private boolean work(String kind, String znode) throws Exception {
        tell("enter " + kind + " " + znode, "ok");
        Thread.sleep(random.nextInt(WORK_MS_MAX));
        return tell("leave", "on", "enough").equals("on");
    }

    /** Curator keeps the path of its znode to itself. */
    private static String znode(InterProcessMutex mutex) throws Exception {
        Method path = InterProcessMutex.class.getDeclaredMethod("getLockPath");
        path.setAccessible(true);
        return (String) path.invoke(mutex);
    }

    private String tell(String word, String... expected) throws IOException {
        referee.getOutputStream().write((word + "\n").getBytes(StandardCharsets.UTF_8));
        String answer = answers.readLine();
        check(answer != null && List.of(expected).contains(answer), word + ": answered " + answer);
        return answer;
    }

    private static void check(boolean holds, String otherwise) {
        if (!holds) {
            throw new AssertionError(otherwise);
        }
    }
}
