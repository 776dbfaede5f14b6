import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.lang.reflect.Method;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.retry.ExponentialBackoffRetry;

/**
 * One contender of Curator's in a mixed queue, which tells the referee what it does.
 *
 * <p>{@code CuratorRival REFEREE:PORT HOST:PORT DIRECTORY lock|read-write SEED}; what is not
 * expected ends it with a failure. Its readers and writers never downgrade: docs/clients.md says
 * why.
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
        if (arguments[3].equals("lock")) {
            InterProcessMutex mutex = new InterProcessMutex(client, directory);
            while (rival.contend(mutex, "exclusive")) { }
        } else {
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
        tell("enter " + kind + " " + znode(mutex), "ok");
        Thread.sleep(random.nextInt(WORK_MS_MAX));
        boolean goesOn = tell("leave", "on", "enough").equals("on");
        mutex.release();
        return goesOn;
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
