import io.fabric8.kubernetes.api.model.ConfigMap;
import io.fabric8.kubernetes.api.model.ConfigMapBuilder;
import io.fabric8.kubernetes.client.Config;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClientBuilder;
import io.fabric8.kubernetes.client.LocalPortForward;
import io.fabric8.kubernetes.client.Watch;
import io.fabric8.kubernetes.client.Watcher;
import io.fabric8.kubernetes.client.WatcherException;
import io.fabric8.kubernetes.client.dsl.ExecWatch;
import io.fabric8.kubernetes.client.utils.Serialization;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.File;
import java.net.InetAddress;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

/**
 * Performs typical operations of programs with the fabric8 client: {@code Client <command> <kubeconfig> <namespace>
 * [pod] [port]}. Prints one JSON object with the results.
 */
public final class Client {
  private static final int WAIT_SECONDS = 30;

  public static void main(String[] args) throws Exception {
    Config config = Config.fromKubeconfig(new File(args[1]));
    try (KubernetesClient client = new KubernetesClientBuilder().withConfig(config).build()) {
      Object answer = switch (args[0]) {
        case "get" -> get(client, args[2]);
        case "watch" -> watch(client, args[2], args[3]);
        case "exec" -> execute(client, args[2], args[3]);
        case "port-forward" -> forward(client, args[2], args[3], Integer.parseInt(args[4]));
        default -> throw new IllegalArgumentException(args[0]);
      };
      System.out.println(Serialization.asJson(answer));
    }
    // Threads of the HTTP client would keep the process running.
    System.exit(0);
  }

  private static Object get(KubernetesClient client, String namespace) {
    var maps = client.configMaps().inNamespace(namespace);
    List<String> names = maps.list().getItems().stream().map(map -> map.getMetadata().getName()).toList();
    // The client returns null for an object that does not exist.
    boolean missing = maps.withName("there-is-no-such-thing").get() == null;
    return Map.of("names", names, "missing", missing);
  }

  private static Object watch(KubernetesClient client, String namespace, String name) throws Exception {
    var one = client.configMaps().inNamespace(namespace).withName(name);
    List<String> seen = new CopyOnWriteArrayList<>();
    CountDownLatch deleted = new CountDownLatch(1);
    Watcher<ConfigMap> watcher = new Watcher<>() {
      @Override
      public void eventReceived(Action action, ConfigMap map) {
        seen.add(action.name());
        if (action == Action.DELETED) deleted.countDown();
      }

      @Override
      public void onClose(WatcherException cause) {
        deleted.countDown();
      }
    };
    try (Watch ignored = one.watch(watcher)) {
      ConfigMap first = new ConfigMapBuilder().withNewMetadata().withName(name).endMetadata()
          .addToData("step", "one").build();
      client.configMaps().inNamespace(namespace).resource(first).create();
      one.edit(map -> new ConfigMapBuilder(map).addToData("step", "two").build());
      one.delete();
      deleted.await(WAIT_SECONDS, TimeUnit.SECONDS);
    }
    return Map.of("seen", List.copyOf(seen));
  }

  private static Object execute(KubernetesClient client, String namespace, String name) throws Exception {
    var pod = client.pods().inNamespace(namespace).withName(name);
    ByteArrayOutputStream out = new ByteArrayOutputStream();
    ByteArrayOutputStream err = new ByteArrayOutputStream();
    int code;
    try (ExecWatch run = pod.writingOutput(out).writingError(err)
        .exec("sh", "-c", "echo out; echo err >&2; exit 5")) {
      code = run.exitCode().get(WAIT_SECONDS, TimeUnit.SECONDS);
    }
    byte[] body = random(4 * 1024 * 1024);
    ByteArrayOutputStream echo = new ByteArrayOutputStream();
    int echoCode;
    // Older protocols cannot signal the end of the input, so the command reads a fixed number of bytes.
    try (ExecWatch run = pod.readingInput(new ByteArrayInputStream(body)).writingOutput(echo)
        .exec("head", "-c", String.valueOf(body.length))) {
      echoCode = run.exitCode().get(WAIT_SECONDS, TimeUnit.SECONDS);
    }
    return Map.of(
        "stdout", out.toString(StandardCharsets.UTF_8), "stderr", err.toString(StandardCharsets.UTF_8),
        "code", code, "equal", MessageDigest.isEqual(body, echo.toByteArray()), "echoCode", echoCode);
  }

  private static Object forward(KubernetesClient client, String namespace, String name, int port) throws Exception {
    byte[] body = random(1_000_000);
    InetAddress loopback = InetAddress.getLoopbackAddress();
    try (LocalPortForward forward = client.pods().inNamespace(namespace).withName(name)
        .portForward(port, loopback, 0);
        Socket socket = new Socket(loopback, forward.getLocalPort())) {
      DataOutputStream output = new DataOutputStream(socket.getOutputStream());
      output.writeInt(body.length);
      output.write(body);
      output.flush();
      String answer = new String(socket.getInputStream().readNBytes(64), StandardCharsets.US_ASCII);
      String digest = HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(body));
      return Map.of("equal", answer.equals(digest));
    }
  }

  private static byte[] random(int length) {
    byte[] body = new byte[length];
    new Random(length).nextBytes(body);
    return body;
  }
}
