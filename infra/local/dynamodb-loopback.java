import com.amazonaws.services.dynamodbv2.local.main.ServerRunner;
import com.amazonaws.services.dynamodbv2.local.server.DynamoDBProxyServer;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.server.ServerConnector;

/**
 * DynamoDB Local on 127.0.0.1: by itself it listens on every address of the machine, and has no
 * option for it. Takes its usual arguments; run as it is, without compiling it first.
 */
class Loopback {
  public static void main(String[] arguments) throws Exception {
    DynamoDBProxyServer local = ServerRunner.createServerFromCommandLineArgs(arguments);
    var field = DynamoDBProxyServer.class.getDeclaredField("server");
    field.setAccessible(true);
    Server server = (Server) field.get(local);
    ((ServerConnector) server.getConnectors()[0]).setHost("127.0.0.1");
    try {
      server.start();
    } catch (Exception failure) {
      // Threads of its own would keep it alive.
      failure.printStackTrace();
      System.exit(1);
    }
    System.out.println("Listening on 127.0.0.1");
  }
}
