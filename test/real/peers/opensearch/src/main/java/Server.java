import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import org.codelibs.opensearch.runner.node.OpenSearchRunnerNode;
import org.opensearch.analysis.common.CommonAnalysisPlugin;
import org.opensearch.common.settings.Settings;
import org.opensearch.node.InternalSettingsPreparer;
import org.opensearch.node.Node;
import org.opensearch.transport.Netty4Plugin;

/** Runs one OpenSearch node: {@code Server <folder> <port>}. Exits on SIGTERM. */
public final class Server {
  public static void main(String[] args) throws Exception {
    Path folder = Path.of(args[0]);
    Files.createDirectories(folder.resolve("config"));
    Settings settings =
        Settings.builder()
            .put("path.home", folder)
            .put("path.data", folder.resolve("data"))
            .put("path.logs", folder.resolve("logs"))
            .put("node.name", "rig")
            .put("cluster.name", "rig")
            .put("discovery.type", "single-node")
            .put("network.host", "127.0.0.1")
            .put("http.port", args[1])
            .put("transport.port", "0")
            .put("http.type", Netty4Plugin.NETTY_HTTP_TRANSPORT_NAME)
            .put("transport.type", Netty4Plugin.NETTY_TRANSPORT_NAME)
            .put("action.auto_create_index", true)
            .put("cluster.routing.allocation.disk.threshold_enabled", false)
            .build();
    // Other plugins, such as mapper-extras, are omitted, because an index that needs them would fail on some servers.
    Node node =
        new OpenSearchRunnerNode(
            InternalSettingsPreparer.prepareEnvironment(settings, Map.of(), null, () -> "rig"),
            List.of(Netty4Plugin.class, CommonAnalysisPlugin.class));
    node.start();
    Runtime.getRuntime().addShutdownHook(new Thread(() -> {
      try {
        node.close();
      } catch (Exception error) {
        error.printStackTrace();
      }
    }));
    Thread.currentThread().join();
  }
}
