/** The gateway's upgrade handler with real sockets, between a raw client and a simulated API server. */
import { once } from 'node:events';
import { createServer as createHttpServer, type IncomingMessage } from 'node:http';
import { connect, type AddressInfo, type Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { parseTarget } from '../../src/kube/canonical-target.ts';
import { parseExecOptions } from '../../src/kube/exec-options.ts';
import { classifyRequest } from '../../src/kube/interactive.ts';
import { parseRequestInfo } from '../../src/kube/request-info.ts';
import { TailcastError } from '../../src/errors.ts';
import { createSilentLogger } from '../../src/observe/logger.ts';
import type { AccessEntry } from '../../src/observe/access-log.ts';
import type { Events } from '../../src/observe/events.ts';
import type { RequestCount } from '../../src/observe/metrics.ts';
import { Account } from '../../src/proxy/gate/account.ts';
import { admitCounted, type UserLimits } from '../../src/proxy/gate/user-limits.ts';
import type { Gate } from '../../src/proxy/gate/gate.ts';
import { decide, DEFAULT_POLICY, policyClassOf } from '../../src/proxy/gate/policy.ts';
import { createSessionRegistry, type SessionRegistry } from '../../src/proxy/session/session-registry.ts';
import { createUpgradeHandler, type UpgradeDeps } from '../../src/proxy/session/upgrade.ts';
import type { RecordingPolicy } from '../../src/recording/policy.ts';
import type { LateLimits } from '../../src/recording/late-deliveries.ts';
import { createRecorderClient, type RecorderClientLimits } from '../../src/recording/recorder-client.ts';
import type { ModerationRule } from '../../src/tailnet/access-rules.ts';
import { callerName, type Identity } from '../../src/tailnet/identity.ts';
import { ByteReader } from './byte-reader.ts';
import { dialLoopback } from './recorder-dial.ts';
import { listenOn } from './listen.ts';

export const ALICE: Identity = {
  kind: 'user',
  nodeId: 'nALICE1CNTRL',
  nodeName: 'laptop.example.ts.net',
  addresses: ['100.64.0.1'],
  capabilities: new Map(),
  userId: 16_793_133_573_424_020n,
  login: 'alice@example.com',
  displayName: 'Alice',
};

export const EXEC =
  '/api/v1/namespaces/default/pods/web/exec?command=sh&command=-c&command=a+b&container=main&stdin=true&stdout=true&stderr=true';
export const EXEC_TTY = `${EXEC}&tty=true`;

/** Handles an upgrade in the API server double, including the handshake. */
export type UpgradeScript = (request: IncomingMessage, socket: Duplex, head: Buffer) => void;

export interface ApiServerDouble {
  readonly port: number;
  readonly requests: IncomingMessage[];
  connections: number;
  /** Resets every connection. */
  cut(): void;
  script: UpgradeScript;
  /** JSON value of the response to requests without an upgrade. Default: status 404. */
  pod: unknown;
  close(): Promise<void>;
}

export async function startApiServerDouble(script: UpgradeScript): Promise<ApiServerDouble> {
  const sockets = new Set<Socket>();
  const server = createHttpServer((request, response) => {
    double.requests.push(request);
    response.writeHead(double.pod === undefined ? 404 : 200).end(JSON.stringify(double.pod ?? {}));
  });
  const double: ApiServerDouble = {
    pod: undefined,
    get port() {
      return (server.address() as AddressInfo).port;
    },
    requests: [],
    connections: 0,
    script,
    cut() {
      for (const socket of sockets) socket.resetAndDestroy();
    },
    async close() {
      for (const socket of sockets) socket.destroy();
      server.close();
      await once(server, 'close');
    },
  };
  server.on('connection', (socket) => {
    double.connections += 1;
    sockets.add(socket);
    socket.on('error', () => {});
    socket.once('close', () => sockets.delete(socket));
  });
  server.on('upgrade', (request, socket, head) => {
    double.requests.push(request);
    double.script(request, socket, head);
  });
  await listenOn(server);
  return double;
}

/** Returns the 101 response of an API server that chose `subprotocol`. */
export function switching(
  request: IncomingMessage,
  subprotocol: string | undefined,
  ...extra: string[]
): string {
  const upgrade = request.headers.upgrade ?? '';
  const name = upgrade === 'websocket' ? 'Sec-WebSocket-Protocol' : 'X-Stream-Protocol-Version';
  const lines = [
    'HTTP/1.1 101 Switching Protocols',
    'Connection: Upgrade',
    `Upgrade: ${upgrade}`,
    ...(subprotocol === undefined ? [] : [`${name}: ${subprotocol}`]),
    ...extra,
  ];
  return `${lines.join('\r\n')}\r\n\r\n`;
}

export interface Rig {
  readonly port: number;
  readonly sessions: SessionRegistry;
  /** All events with their names, in order. */
  readonly events: { readonly name: string; readonly event: Record<string, unknown> }[];
  readonly accessLines: readonly AccessEntry[];
  /** Metrics of completed upgrades. */
  readonly finished: readonly RequestCount[];
  /** Open connections of clients to the gateway, as the gateway sees them. */
  readonly clients: ReadonlySet<Socket>;
  /** Open connections of the gateway to the API server. */
  readonly upstreams: ReadonlySet<Socket>;
  /** Breaks all connections of clients. */
  dropClients(): void;
  named(name: string): Record<string, unknown>[];
  until(name: string): Promise<Record<string, unknown>>;
  close(): Promise<void>;
}

export async function startRig(options: {
  readonly apiServer: ApiServerDouble;
  readonly recording: RecordingPolicy;
  readonly recorderLimits?: Partial<RecorderClientLimits>;
  readonly lateLimits?: Partial<LateLimits>;
  /** Moderation rules. Default: sessions are not moderated. */
  readonly moderation?: readonly ModerationRule[];
  /** Returns the caller of a request. Default: Alice. */
  readonly callerOf?: (target: string) => Identity;
  /** Limits of each user. Default: none. */
  readonly users?: UserLimits;
  readonly deps?: Partial<UpgradeDeps>;
}): Promise<Rig> {
  const events: Rig['events'] = [];
  const waiters = new Set<() => void>();
  const recordEvents = new Proxy({} as Events, {
    get: (_, name) => (event: Record<string, unknown>) => {
      events.push({ name: String(name), event });
      for (const waiter of waiters) waiter();
    },
  });
  const finished: RequestCount[] = [];
  const accessLines: AccessEntry[] = [];
  const stop = new AbortController();
  const sessions = createSessionRegistry();
  const recorders = createRecorderClient({
    dial: dialLoopback,
    nowMs: () => performance.now(),
    log: createSilentLogger(),
    limits: { dialTimeoutMs: 500, moveTimeoutMs: 300, moveRetryMs: 10, ...options.recorderLimits },
    lateLimits: { retryMs: 20, maxRetryMs: 50, ...options.lateLimits },
  });
  const upstreams = new Set<Socket>();
  const gate = createTestGate(options.recording, options.moderation, options.callerOf);
  const handler = createUpgradeHandler({
    admit: (request, signal) => admitCounted({ gate, users: options.users }, request, signal),
    connect: async () => {
      const socket = connect(options.apiServer.port, '127.0.0.1');
      await once(socket, 'connect');
      upstreams.add(socket);
      socket.once('close', () => upstreams.delete(socket));
      return socket;
    },
    basePath: '',
    recorders,
    recordApiRequest: async () => {},
    openAccount: (inbound) =>
      new Account('upgrade', inbound, {
        metrics: { requestStarted() {}, requestFinished: (count) => void finished.push(count) },
        accessLog: { write: (entry) => void accessLines.push(entry) },
        events: recordEvents,
        monotonicMs: () => performance.now(),
      }),
    sessions,
    events: recordEvents,
    keepCookies: false,
    monotonicMs: () => performance.now(),
    unixMs: () => 1_700_000_000_000,
    signal: stop.signal,
    limits: { lingerMs: 500 },
    ...options.deps,
  });
  const sockets = new Set<Socket>();
  const running = new Set<Promise<void>>();
  const server = createHttpServer((_request, response) => response.writeHead(404).end());
  server.on('connection', (socket) => {
    sockets.add(socket);
    socket.once('close', () => sockets.delete(socket));
  });
  server.on('upgrade', (request, socket, head) => {
    const work = handler(request, socket, head, { address: '100.64.0.1', port: 1234, source: 'socket' });
    running.add(work);
    void work.finally(() => running.delete(work));
  });
  await listenOn(server);
  const named: Rig['named'] = (name) =>
    events.filter((entry) => entry.name === name).map(({ event }) => event);
  return {
    port: (server.address() as AddressInfo).port,
    sessions,
    events,
    accessLines,
    finished,
    clients: sockets,
    upstreams,
    dropClients() {
      for (const socket of sockets) socket.destroy();
    },
    named,
    async until(name) {
      for (;;) {
        const [first] = named(name);
        if (first !== undefined) return first;
        const changed = Promise.withResolvers<void>();
        waiters.add(changed.resolve);
        await changed.promise;
        waiters.delete(changed.resolve);
      }
    },
    async close() {
      stop.abort();
      for (const socket of sockets) socket.destroy();
      server.close();
      await once(server, 'close');
      await Promise.all(running);
      recorders.close();
    },
  };
}

/** A request gate that does not authenticate callers. It classifies requests as the gateway's own gate does. */
function createTestGate(
  recording: RecordingPolicy,
  moderation?: readonly ModerationRule[],
  callerOf: (target: string) => Identity = () => ALICE,
): Pick<Gate, 'admit'> {
  let count = 0;
  return {
    async admit(request, _signal, identified) {
      const target = parseTarget(request.target);
      const info = parseRequestInfo(request.method, target);
      count += 1;
      const dropped = new Set(['connection', 'upgrade', 'content-length', 'transfer-encoding', 'host']);
      const headers = ['Host', 'kubernetes', 'Impersonate-User', 'alice@example.com'];
      for (let index = 0; index < request.rawHeaders.length; index += 2) {
        const name = request.rawHeaders[index]!;
        if (!dropped.has(name.toLowerCase())) headers.push(name, request.rawHeaders[index + 1]!);
      }
      const requestClass = classifyRequest(info, request);
      const policyClass = policyClassOf({
        requestClass,
        info,
        target,
        upgrade: request.upgrade,
      });
      const { action } = decide(DEFAULT_POLICY, policyClass ?? 'opaqueUpgrade', recording);
      if (action === 'refuse') throw new TailcastError('POLICY_REFUSED');
      const identity = callerOf(request.target);
      identified?.({ id: `session-${count}`, identity });
      return {
        id: `session-${count}`,
        auditId: `session-${count}`,
        startedAtMs: 0,
        identity,
        user: callerName(identity),
        target,
        info,
        requestClass,
        exec: parseExecOptions(target),
        shown: false,
        policyClass,
        record: action === 'record' && recording.mode !== 'off',
        event: recording.mode !== 'off' && recording.events,
        impersonation: { user: 'alice@example.com', groups: ['devs'], extra: [] },
        headers,
        recording,
        ...(moderation === undefined ? {} : { moderation }),
      };
    },
  };
}

export interface UpgradeClient {
  readonly socket: Socket;
  /** Status line and header lines. */
  readonly head: string;
  readonly status: number;
  /** Reader of the bytes after the response head. */
  readonly reader: ByteReader;
}

/** Sends an upgrade as raw bytes, and waits for the response head. */
export async function askUpgrade(
  port: number,
  request: {
    readonly method?: string;
    readonly target?: string;
    readonly version?: string;
    readonly headers: readonly string[];
    /** Bytes that are sent in the same write as the head. */
    readonly early?: Uint8Array;
  },
): Promise<UpgradeClient> {
  const socket = connect({ port, host: '127.0.0.1', noDelay: true });
  const reader = new ByteReader(socket);
  const { method = 'GET', target = EXEC, version = '1.1' } = request;
  const head = [`${method} ${target} HTTP/${version}`, 'Host: gateway.example.ts.net', ...request.headers];
  socket.write(
    Buffer.concat([Buffer.from(`${head.join('\r\n')}\r\n\r\n`), request.early ?? new Uint8Array(0)]),
  );
  const answer = await reader.takeThrough('\r\n\r\n');
  return { socket, head: answer, status: Number(answer.split(' ')[1]), reader };
}

export const WEBSOCKET_V5 = [
  'Connection: Upgrade',
  'Upgrade: websocket',
  'Sec-WebSocket-Version: 13',
  'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==',
  'Sec-WebSocket-Protocol: v5.channel.k8s.io',
] as const;

export const SPDY_V4 = [
  'Connection: Upgrade',
  'Upgrade: SPDY/3.1',
  'X-Stream-Protocol-Version: v4.channel.k8s.io',
  'X-Stream-Protocol-Version: v3.channel.k8s.io',
] as const;

/** Returns the body of a response with a Status. */
export async function statusBody({
  reader,
}: UpgradeClient): Promise<{ message: string; details: unknown; code: number }> {
  await reader.untilClosed();
  return JSON.parse(reader.bytes.toString()) as { message: string; details: unknown; code: number };
}
