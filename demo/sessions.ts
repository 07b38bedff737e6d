import type { Logger } from '../src/observe/logger.ts';
import { parsePath, parseResourcePath, flagOf, type ResourcePath } from './api-path.ts';
import { asApiStatus, badRequest, methodNotAllowed, notFound, tooManyRequests } from './api-status.ts';
import { authenticate, authorize } from './authentication.ts';
import { chooseContainer, requireRunningPod } from './container-log.ts';
import type { PodRuntime, RunningPod } from './pod-runtime.ts';
import { PORT_FORWARD_PROTOCOL, TUNNEL_PROTOCOL, servePortForward } from './portforward.ts';
import type { RemoteStreams, StreamOptions } from './remote-streams.ts';
import { serveAttach, serveExec } from './remotecommand.ts';
import { openSpdySession, SPDY_PROTOCOLS } from './spdy-session.ts';
import type { Store } from './store.ts';
import {
  acceptSpdy,
  acceptWebSocket,
  bearerSubprotocol,
  isSpdy,
  refuseUpgrade,
  type ApiUpgrade,
} from './upgrade.ts';
import { isRemoteCommandSubprotocol, openWebSocketSession } from './websocket-session.ts';
import { openByteStream } from './websocket-server.ts';

export interface UpgradeDependencies {
  readonly store: Store;
  readonly runtime: PodRuntime;
  readonly adminToken: string;
  readonly log: Logger;
  readonly maxSessions: number;
}

/** Serves upgrade requests: exec, attach and port-forward. Rejects other upgrades. */
export function createSessions(dependencies: UpgradeDependencies): { serve(upgrade: ApiUpgrade): void } {
  let open = 0;
  return {
    serve(upgrade) {
      if (open >= dependencies.maxSessions) {
        refuseUpgrade(
          upgrade.socket,
          tooManyRequests('too many exec, attach and port-forward sessions are open'),
        );
        return;
      }
      open += 1;
      upgrade.socket.on('error', () => undefined);
      serveUpgrade(upgrade, dependencies)
        .catch((error: unknown) => {
          // After the 101 response, an error can only close the connection.
          if (upgrade.switched === true) upgrade.socket.destroy();
          else refuseUpgrade(upgrade.socket, asApiStatus(error));
          dependencies.log.debug({ error: String(error) }, 'demo session refused or broken');
        })
        .finally(() => {
          open -= 1;
        });
    },
  };
}

async function serveUpgrade(upgrade: ApiUpgrade, dependencies: UpgradeDependencies): Promise<void> {
  const { request } = upgrade;
  const user = authenticate(request.rawHeaders, dependencies.adminToken, bearerSubprotocol(request));
  const { path, query } = parsePath(request.url ?? '/');
  const target = parseResourcePath(path);
  const { subresource } = target;
  authorize(user, request.method === 'POST' ? 'create' : 'get', `pods/${subresource}`, '', target.namespace);
  if (request.method !== 'POST' && request.method !== 'GET') throw methodNotAllowed();
  if (subresource !== 'exec' && subresource !== 'attach' && subresource !== 'portforward') {
    throw badRequest('this path cannot be upgraded');
  }
  const pod = requireRunningPod(dependencies.store, dependencies.runtime, target);
  dependencies.log.debug({ user: user.username, path: path.text }, 'demo session');
  if (subresource === 'portforward') await forwardPorts(upgrade, pod);
  else await runCommand(upgrade, pod, target, query);
}

async function runCommand(
  upgrade: ApiUpgrade,
  pod: RunningPod,
  target: ResourcePath,
  query: URLSearchParams,
): Promise<void> {
  const options = parseStreamOptions(query);
  const container = chooseContainer(pod, query.get('container') ?? '');
  const argv = query.getAll('command');
  if (target.subresource === 'exec' && argv.length === 0)
    throw badRequest('you must specify at least 1 command for the container');
  if (container.state.kind !== 'running') {
    throw notFound({ group: '', plural: 'container' }, container.spec.name);
  }
  const streams = await openStreams(upgrade, options);
  if (target.subresource === 'exec') await serveExec(pod, container, argv, options, streams);
  else await serveAttach(container, options, streams);
}

/** stdout is always enabled. stderr is enabled only without a terminal, because a terminal merges stdout and stderr. */
function parseStreamOptions(query: URLSearchParams): StreamOptions {
  const tty = flagOf(query, 'tty');
  return { stdin: flagOf(query, 'stdin'), stdout: true, stderr: !tty, tty };
}

async function openStreams(upgrade: ApiUpgrade, options: StreamOptions): Promise<RemoteStreams> {
  const { socket } = upgrade;
  return isSpdy(upgrade)
    ? openSpdySession(socket, acceptSpdy(upgrade, SPDY_PROTOCOLS), options)
    : openWebSocketSession(socket, acceptWebSocket(upgrade, isRemoteCommandSubprotocol), options);
}

async function forwardPorts(upgrade: ApiUpgrade, pod: RunningPod): Promise<void> {
  const localPort = (port: number): Promise<number> => pod.localPort(port);
  if (isSpdy(upgrade)) {
    acceptSpdy(upgrade, [PORT_FORWARD_PROTOCOL]);
    await servePortForward(upgrade.socket, localPort);
  } else {
    acceptWebSocket(upgrade, (name) => name === TUNNEL_PROTOCOL);
    await servePortForward(openByteStream(upgrade.socket), localPort);
  }
}
