import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.cache.ChildData;
import org.apache.curator.framework.recipes.cache.CuratorCache;
import org.apache.curator.framework.recipes.cache.CuratorCacheListener;
import org.apache.curator.retry.ExponentialBackoffRetry;

/**
 * Follows a tree with Curator's cache, and prints what it shows.
 *
 * <p>{@code CuratorCacheFollower HOST:PORT PATH} prints {@code put PATH DATA} and
 * {@code del PATH} for each change, and {@code ready} when the tree has been read. For each line
 * {@code dump} on its input, it prints {@code node PATH DATA} for each znode, and {@code end}.
 */
public final class CuratorCacheFollower {
    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, true, "UTF-8");
        CuratorFramework client = CuratorFrameworkFactory.newClient(
                arguments[0], 8_000, 5_000, new ExponentialBackoffRetry(50, 5, 500));
        client.start();
        CuratorCache cache = CuratorCache.build(client, arguments[1]);
        cache.listenable().addListener(new CuratorCacheListener() {
            @Override
            public void event(Type type, ChildData old, ChildData data) {
                synchronized (out) {
                    out.println(type == Type.NODE_DELETED
                            ? "del " + old.getPath()
                            : "put " + data.getPath() + " " + text(data));
                }
            }

            @Override
            public void initialized() {
                synchronized (out) {
                    out.println("ready");
                }
            }
        });
        cache.start();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        while ("dump".equals(in.readLine())) {
            synchronized (out) {
                cache.stream().forEach(
                        data -> out.println("node " + data.getPath() + " " + text(data)));
                out.println("end");
            }
        }
        cache.close();
        client.close();
    }

    private static String text(ChildData data) {
        return new String(data.getData(), StandardCharsets.UTF_8);
    }
}
