"""Performs typical operations of programs with the official Python client. Prints one JSON object with the results."""

import hashlib
import json
import select
import ssl
import sys
import threading

from kubernetes import client, config, watch
from kubernetes.stream import portforward, stream


class TlsPoll:
    """A select.poll that also reports data that the TLS layer has already read. With the original select.poll, the
    client sometimes waits forever for a frame that it has already received, whatever the server is."""

    def __init__(self):
        self.poller = real_poll()
        self.sockets = []

    def register(self, sock, events):
        self.sockets.append(sock)
        self.poller.register(sock, events)

    def unregister(self, sock):
        self.sockets.remove(sock)
        self.poller.unregister(sock)

    def poll(self, timeout=None):
        held = [sock for sock in self.sockets if isinstance(sock, ssl.SSLSocket) and sock.pending() > 0]
        return [(sock.fileno(), select.POLLIN) for sock in held] or self.poller.poll(timeout)


real_poll = select.poll
select.poll = TlsPoll


def get(core, namespace):
    names = [item.metadata.name for item in core.list_namespaced_config_map(namespace).items]
    try:
        core.read_namespaced_config_map("there-is-no-such-thing", namespace)
        missing = 200
    except client.ApiException as error:
        missing = error.status
    return {"names": names, "missing": missing}


def follow(core, namespace, name):
    def change():
        core.create_namespaced_config_map(namespace, {"metadata": {"name": name}, "data": {"step": "one"}})
        core.patch_namespaced_config_map(name, namespace, {"data": {"step": "two"}})
        core.delete_namespaced_config_map(name, namespace)

    version = core.list_namespaced_config_map(namespace).metadata.resource_version
    changes = threading.Thread(target=change)
    changes.start()
    seen = []
    for event in watch.Watch().stream(
        core.list_namespaced_config_map,
        namespace,
        field_selector="metadata.name=" + name,
        resource_version=version,
        timeout_seconds=30,
    ):
        seen.append(event["type"])
        if event["type"] == "DELETED":
            break
    changes.join()
    return {"seen": seen}


def execute(core, namespace, pod):
    def run(command, **options):
        return stream(
            core.connect_get_namespaced_pod_exec, pod, namespace, command=command, stdout=True, stderr=True, **options
        )

    failing = run(["sh", "-c", "echo out; echo err >&2; exit 5"], stdin=False, tty=False, _preload_content=False)
    failing.run_forever(timeout=20)
    # This client never sends a terminal size, so the recording must not wait for a size.
    shell = run(["sh"], stdin=True, tty=True, _preload_content=False)
    shell.write_stdin("echo from-a-$((40 + 2))-shell\n")
    screen = ""
    while shell.is_open() and "from-a-42-shell" not in screen:
        shell.update(timeout=20)
        screen += shell.read_stdout(timeout=0) if shell.peek_stdout() else ""
    shell.write_stdin("exit 3\n")
    shell.run_forever(timeout=20)
    return {
        "stdout": failing.read_stdout(),
        "stderr": failing.read_stderr(),
        "code": failing.returncode,
        "terminal": "from-a-42-shell" in screen,
        "terminalCode": shell.returncode,
    }


def forward(core, namespace, pod, port):
    body = b"port-forward " * 300_000
    connection = portforward(core.connect_get_namespaced_pod_portforward, pod, namespace, ports=port)
    socket = connection.socket(int(port))
    socket.setblocking(True)
    socket.sendall(len(body).to_bytes(4, "big") + body)
    answer = b""
    while len(answer) < 64:
        piece = socket.recv(64)
        if not piece:
            break
        answer += piece
    socket.close()
    return {"equal": answer.decode() == hashlib.sha256(body).hexdigest(), "error": connection.error(int(port))}


COMMANDS = {"get": get, "watch": follow, "exec": execute, "port-forward": forward}


def main():
    _, command, kubeconfig, *arguments = sys.argv
    config.load_kube_config(kubeconfig)
    print(json.dumps(COMMANDS[command](client.CoreV1Api(), *arguments)))


main()
