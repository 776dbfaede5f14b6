import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.InetSocketAddress;
import org.apache.zookeeper.server.controller.CommandClient;
import org.apache.zookeeper.server.controller.ControlCommand.Action;

/**
 * Sends every command of ZooKeeper's own fault controller to the program zk-testserver, with
 * ZooKeeper's own client for it: one line for each command.
 *
 * <p>{@code ControllerFlows} starts the program itself, and ends it with the last command.
 */
public final class ControllerFlows {
    private static boolean passed = true;

    public static void main(String[] arguments) throws Exception {
        Process server = new ProcessBuilder("zk-testserver", "--exit-with-parent")
                .redirectError(ProcessBuilder.Redirect.INHERIT)
                .start();
        BufferedReader output =
                new BufferedReader(new InputStreamReader(server.getInputStream()));
        output.readLine();
        String[] address = output.readLine().split("[ :]");
        CommandClient client = new CommandClient(
                new InetSocketAddress(address[1], Integer.parseInt(address[2])), 10_000);
        for (Action action : Action.values()) {
            if (action != Action.SHUTDOWN) {
                verdict(action.toString(), client.trySendCommand(action));
            }
        }
        for (Action action : new Action[] {Action.ADDDELAY, Action.FAILREQUESTS, Action.NORESPONSE}) {
            verdict(action + " with a number", client.trySendCommand(action, "3"));
        }
        verdict("no such session", !client.trySendCommand(Action.CLOSECONNECTION, "3"));
        verdict("SHUTDOWN", client.trySendCommand(Action.SHUTDOWN) && server.waitFor() == 0);
        client.close();
        // The client leaves threads behind.
        System.exit(passed ? 0 : 1);
    }

    private static void verdict(String name, boolean holds) {
        passed &= holds;
        System.out.println((holds ? "ok      " : "FAILED  ") + "controller: " + name);
    }
}
