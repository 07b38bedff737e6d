//! Performs typical operations of programs with kube-rs:
//! `kube-rs-client <command> <kubeconfig> <namespace> [name] [port]`. Prints one JSON object with the results.

use std::error::Error;

use futures::{SinkExt, TryStreamExt, future::try_join3};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use kube::api::{
    AttachParams, AttachedProcess, DeleteParams, ListParams, Patch, PatchParams, PostParams, TerminalSize, WatchEvent,
    WatchParams,
};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, ResourceExt};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

type Outcome<T> = Result<T, Box<dyn Error>>;

const ECHOED_BYTES: usize = 4 * 1024 * 1024;
const FORWARDED_BYTES: usize = 1_000_000;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let [command, kubeconfig, namespace, rest @ ..] = words.as_slice() else {
        return Err("a command, a kubeconfig and a namespace are needed".into());
    };
    let kubeconfig = Kubeconfig::read_from(kubeconfig)?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    let client = Client::try_from(config)?;
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let pods: Api<Pod> = Api::namespaced(client, namespace);
    let answer = match (*command, rest) {
        ("get", []) => get(&maps).await?,
        ("watch", [name]) => watch(&maps, name).await?,
        ("exec", [pod]) => execute(&pods, pod).await?,
        ("attach", [pod]) => attach(&pods, pod).await?,
        ("port-forward", [pod, port]) => forward(&pods, pod, port.parse()?).await?,
        _ => return Err(format!("no such command: {}", words.join(" ")).into()),
    };
    println!("{answer}");
    Ok(())
}

async fn get(maps: &Api<ConfigMap>) -> Outcome<Value> {
    let list = maps.list(&ListParams::default()).await?;
    let names: Vec<String> = list.iter().map(ResourceExt::name_any).collect();
    let missing = match maps.get("there-is-no-such-thing").await {
        Ok(_) => 200,
        Err(kube::Error::Api(status)) => status.code,
        Err(error) => return Err(error.into()),
    };
    Ok(json!({ "names": names, "missing": missing }))
}

async fn watch(maps: &Api<ConfigMap>, name: &str) -> Outcome<Value> {
    let version = maps
        .list(&ListParams::default())
        .await?
        .metadata
        .resource_version
        .unwrap_or_default();
    let only = WatchParams::default()
        .fields(&format!("metadata.name={name}"))
        .timeout(30);
    let mut events = Box::pin(maps.watch(&only, &version).await?);
    let first: ConfigMap = serde_json::from_value(json!({ "metadata": { "name": name }, "data": { "step": "one" } }))?;
    maps.create(&PostParams::default(), &first).await?;
    let second = json!({ "data": { "step": "two" } });
    maps.patch(name, &PatchParams::default(), &Patch::Merge(&second))
        .await?;
    maps.delete(name, &DeleteParams::default()).await?;
    let mut seen = Vec::new();
    while let Some(event) = events.try_next().await? {
        match event {
            WatchEvent::Added(_) => seen.push("ADDED"),
            WatchEvent::Modified(_) => seen.push("MODIFIED"),
            WatchEvent::Deleted(_) => {
                seen.push("DELETED");
                break;
            }
            WatchEvent::Bookmark(_) => {}
            WatchEvent::Error(status) => return Err(status.into()),
        }
    }
    Ok(json!({ "seen": seen }))
}

async fn execute(pods: &Api<Pod>, pod: &str) -> Outcome<Value> {
    let silent = AttachParams::default().stdin(false).stdout(true).stderr(true);
    let failing = pods
        .exec(pod, ["sh", "-c", "echo out; echo err >&2; exit 5"], &silent)
        .await?;
    let failing = converse(failing, b"").await?;

    // `cat` exits at the end of its input, which version 5 of the protocol can signal.
    let body = noise(ECHOED_BYTES);
    let talking = AttachParams::default().stdin(true).stdout(true).stderr(true);
    let echo = converse(pods.exec(pod, ["cat"], &talking).await?, &body).await?;

    let mut shell = pods.exec(pod, ["sh"], &AttachParams::interactive_tty()).await?;
    let mut size = shell.terminal_size().ok_or("no way to tell the size")?;
    size.send(TerminalSize { width: 97, height: 31 }).await?;
    let wait = b"until [ \"$(stty size)\" = '31 97' ]; do sleep 0.05; done; echo from-a-$((40 + 2))-shell; exit 3\n";
    let shell = converse(shell, wait).await?;

    Ok(json!({
        "stdout": String::from_utf8(failing.stdout)?,
        "stderr": String::from_utf8(failing.stderr)?,
        "code": exit_code(&failing.status),
        "equal": echo.stdout == body,
        "echoCode": exit_code(&echo.status),
        "terminal": String::from_utf8_lossy(&shell.stdout).contains("from-a-42-shell"),
        "terminalCode": exit_code(&shell.status),
    }))
}

async fn attach(pods: &Api<Pod>, pod: &str) -> Outcome<Value> {
    let talking = AttachParams::default().stdin(true).stdout(true).stderr(true);
    let said = converse(pods.attach(pod, &talking).await?, b"hello\n").await?;
    Ok(json!({
        "stdout": String::from_utf8(said.stdout)?,
        "stderr": String::from_utf8(said.stderr)?,
        "status": said.status.status,
    }))
}

async fn forward(pods: &Api<Pod>, pod: &str, port: u16) -> Outcome<Value> {
    let body = noise(FORWARDED_BYTES);
    let mut forwarder = pods.portforward(pod, &[port]).await?;
    let mut stream = forwarder.take_stream(port).ok_or("no stream")?;
    stream.write_all(&u32::try_from(body.len())?.to_be_bytes()).await?;
    stream.write_all(&body).await?;
    let mut answer = [0; 64];
    stream.read_exact(&mut answer).await?;
    // The response is complete, so it does not matter whether the server or this program closes the connection first.
    forwarder.abort();
    let digest = ring::digest::digest(&ring::digest::SHA256, &body);
    let expected: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(json!({ "equal": answer == *expected.as_bytes() }))
}

struct Said {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    status: Status,
}

/// Writes the input to stdin, if the process has stdin, closes stdin, and reads all output until the process exits.
async fn converse(mut process: AttachedProcess, input: &[u8]) -> Outcome<Said> {
    let stdin = process.stdin();
    let stdout = process.stdout();
    let stderr = process.stderr();
    let status = process.take_status().ok_or("no status")?;
    let feed = async {
        let Some(mut stdin) = stdin else { return Ok(()) };
        stdin.write_all(input).await?;
        stdin.shutdown().await
    };
    let (_, stdout, stderr) = try_join3(feed, read_all(stdout), read_all(stderr)).await?;
    let status = status.await.ok_or("it ended without a status")?;
    process.join().await?;
    Ok(Said { stdout, stderr, status })
}

async fn read_all(stream: Option<impl AsyncReadExt + Unpin>) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(mut stream) = stream {
        stream.read_to_end(&mut bytes).await?;
    }
    Ok(bytes)
}

/// Returns the exit code in a status: 0 for success, or the code in its cause; `None` if the status contains no code.
fn exit_code(status: &Status) -> Option<i32> {
    if status.status.as_deref() == Some("Success") {
        return Some(0);
    }
    let causes = status.details.as_ref()?.causes.as_ref()?;
    let cause = causes
        .iter()
        .find(|cause| cause.reason.as_deref() == Some("ExitCode"))?;
    cause.message.as_ref()?.parse().ok()
}

/// Returns bytes without a pattern, which are the same in each run (xorshift).
fn noise(length: usize) -> Vec<u8> {
    let mut state: u64 = 0x9e37_79b9_7f4a_7c15;
    std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    })
    .take(length)
    .collect()
}
