/**
 * A complete gateway between an attacker and an API server that reports raw bytes. `startGateway` creates the gateway
 * from settings, as in production, with a double of tailscaled that identifies the caller. The PROXY header of each
 * connection chooses the caller, so one gateway serves every identity.
 */
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { connect, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { connect as connectTls, type TLSSocket } from 'node:tls';
import type { GatewayOptions } from '../../src/compose/gateway-parts.ts';
import { startGateway } from '../../src/compose/gateway.ts';
import { GATEWAY_SETTINGS } from '../../src/config/gateway.ts';
import { readSettings } from '../../src/config/settings.ts';
import { createLogger } from '../../src/observe/logger.ts';
import { ByteReader } from '../support/byte-reader.ts';
import { createTestAuthority } from '../support/issued-certificates.ts';
import { startLocalApiDouble, userNode, type LocalApiDouble } from '../support/local-api-double.ts';
import { startRecorderDouble, type RecorderDouble } from '../support/recorder-double.ts';
import { startEchoApiServer, type EchoApiServer } from './echo-api-server.ts';
import { encodeRequest, exchangeHttp2, type Field } from './raw-http2.ts';
import { writeKubeconfig } from '../support/kubectl.ts';

export const CAPABILITY = 'tailscale.com/cap/kubernetes';
export const GATEWAY_HOST = 'gateway.lab.ts.net';
export const GATEWAY_TOKEN = 'token-of-the-gateway';

/** A user of the tailnet. The PROXY header of a connection contains `address`. */
export interface Caller {
  readonly address: string;
  readonly login: string;
  readonly groups: readonly string[];
}

/** A caller without recording. */
export const ALICE: Caller = { address: '100.64.0.4', login: 'alice@example.com', groups: ['devs', 'ops'] };
/** A caller with enforced recording and an available recorder. */
export const BOB: Caller = { address: '100.64.0.5', login: 'bob@example.com', groups: ['devs'] };
/** A caller with enforced recording and no available recorder. */
export const CAROL: Caller = { address: '100.64.0.6', login: 'carol@example.com', groups: ['devs'] };

/** A caller with recording that is not enforced. */
export const ERIN: Caller = { address: '100.64.0.8', login: 'erin@example.com', groups: ['devs'] };

export interface Arena {
  readonly port: number;
  readonly caPem: string;
  readonly localApi: LocalApiDouble;
  readonly apiServer: EchoApiServer;
  readonly recorder: RecorderDouble;
  /** Process log and access log of the gateway. */
  readonly logged: () => string;
  close(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

/** @param policy text of a policy file */
export async function openArena(
  settings: Readonly<Record<string, unknown>> = {},
  policy?: string,
  userLimits?: GatewayOptions['userLimits'],
): Promise<Arena> {
  await using stack = new AsyncDisposableStack();
  const directory = await mkdtemp(join(tmpdir(), 'tailcast-attack-'));
  stack.defer(() => rm(directory, { recursive: true, force: true }));
  const authority = await createTestAuthority();
  const pair = await authority.issue(['localhost', '127.0.0.1']);
  const apiServer = await startEchoApiServer({ key: pair.keyPem, cert: pair.certificatePem });
  stack.defer(() => apiServer.close());
  const recorder = await startRecorderDouble();
  stack.defer(() => recorder.close());
  const localApi = await startLocalApiDouble();
  stack.defer(() => localApi.close());
  introduce(localApi, ALICE, [{ impersonate: { groups: ALICE.groups } }]);
  introduce(localApi, BOB, [
    { impersonate: { groups: BOB.groups }, recorderAddrs: [recorder.address], enforceRecorder: true },
  ]);
  introduce(localApi, CAROL, [
    { impersonate: { groups: CAROL.groups }, recorderAddrs: ['127.0.0.1:1'], enforceRecorder: true },
  ]);
  introduce(localApi, ERIN, [{ impersonate: { groups: ERIN.groups }, recorderAddrs: [recorder.address] }]);
  const url = `https://localhost:${apiServer.port}`;
  const kubeconfig = await writeKubeconfig({ directory, url, caPem: authority.caPem, token: GATEWAY_TOKEN });
  const policyFile = join(directory, 'policy.yaml');
  if (policy !== undefined) await writeFile(policyFile, policy);
  const lines: string[] = [];
  const sink = { write: (line: string) => lines.push(line) > 0, writableLength: 0 };
  const gateway = await startGateway({
    config: readSettings(GATEWAY_SETTINGS, {
      flags: new Map<string, unknown>([
        ['kubeconfig', kubeconfig],
        ['socket', localApi.socketPath],
        ['proxyProtocol', 'require'],
        ['listen', '127.0.0.77:0'],
        ['stateDirectory', join(directory, 'state')],
        ['tls', 'self-signed'],
        ['tlsNames', GATEWAY_HOST],
        ['opsListen', 'off'],
        // `same` disables translation, so that tests can compare bytes. translated-sessions.test.ts tests translation.
        ['execUpstream', 'same'],
        ...(policy === undefined ? [] : ([['policy', policyFile]] as const)),
        ...Object.entries(settings),
      ]),
      environment: new Map(),
      file: undefined,
    }),
    environment: new Map(),
    log: createLogger({ level: 'debug', destination: sink }),
    accessSink: sink,
    ...(userLimits === undefined ? {} : { userLimits }),
  });
  stack.defer(() => gateway.close(100));
  const owned = stack.move();
  return {
    port: gateway.port,
    caPem: gateway.caPem ?? '',
    localApi,
    apiServer,
    recorder,
    logged: () => lines.join('\n'),
    close: () => owned.disposeAsync(),
    [Symbol.asyncDispose]: () => owned.disposeAsync(),
  };
}

/** Adds a caller with these rules to the double of tailscaled. */
export function introduce(localApi: LocalApiDouble, caller: Caller, rules: readonly unknown[]): void {
  localApi.whois.set(caller.address, {
    ...userNode(),
    UserProfile: { ID: 1, LoginName: caller.login, DisplayName: '' },
    CapMap: { [CAPABILITY]: rules },
  });
}

/** A TCP connection that starts with a PROXY header for the caller, or with other bytes. */
export async function connectPlain(
  arena: Pick<Arena, 'port'>,
  preamble: string | Uint8Array,
): Promise<Socket> {
  const socket = connect({ port: arena.port, host: '127.0.0.77', noDelay: true });
  socket.on('error', () => {});
  await once(socket, 'connect');
  if (preamble.length > 0) socket.write(preamble);
  return socket;
}

export const proxyHeader = (address: string): string => `PROXY TCP4 ${address} 100.64.0.1 40000 443\r\n`;

export async function connectAs(
  arena: Pick<Arena, 'port' | 'caPem'>,
  caller: Pick<Caller, 'address'>,
  alpn: 'h2' | 'http/1.1',
): Promise<TLSSocket> {
  const socket = connectTls({
    socket: await connectPlain(arena, proxyHeader(caller.address)),
    servername: GATEWAY_HOST,
    ca: arena.caPem,
    ALPNProtocols: [alpn],
  });
  socket.on('error', () => {});
  await once(socket, 'secureConnect');
  return socket;
}

export type Outcome =
  | { readonly kind: 'response'; readonly status: number; readonly head: string; readonly body: string }
  | { readonly kind: 'closed' };

/** Sends bytes over HTTP/1.1 and reads one response. After a 101 the connection is passed to `keep` or closed. */
export async function sendHttp1(
  arena: Pick<Arena, 'port' | 'caPem'>,
  caller: Pick<Caller, 'address'>,
  bytes: string | Uint8Array,
  keep?: (socket: TLSSocket, reader: ByteReader) => Promise<void>,
): Promise<Outcome> {
  const socket = await connectAs(arena, caller, 'http/1.1');
  const reader = new ByteReader(socket);
  try {
    socket.write(typeof bytes === 'string' ? Buffer.from(bytes, 'latin1') : bytes);
    const head = await finalHead(reader);
    if (head === undefined) return { kind: 'closed' };
    const status = Number(head.split(' ')[1]);
    if (status === 101) await keep?.(socket, reader);
    const length = /\r\ncontent-length: (\d+)\r\n/i.exec(head)?.[1];
    const bodiless = status === 101 || Buffer.from(bytes).subarray(0, 5).toString() === 'HEAD ';
    const body = length === undefined || bodiless ? '' : await bodyOf(reader, Number(length));
    return { kind: 'response', status, head, body };
  } finally {
    socket.destroy();
  }
}

async function finalHead(reader: ByteReader): Promise<string | undefined> {
  try {
    for (;;) {
      const head = await reader.takeThrough('\r\n\r\n');
      if (!/^HTTP\/1\.1 1(?!01)\d\d /.test(head)) return head;
    }
  } catch {
    return undefined;
  }
}

async function bodyOf(reader: ByteReader, length: number): Promise<string> {
  try {
    return (await reader.take(length)).toString('latin1');
  } catch {
    return reader.bytes.toString('latin1');
  }
}

/** Sends one HTTP/2 request with exactly these headers. */
export async function sendHttp2(
  arena: Pick<Arena, 'port' | 'caPem'>,
  caller: Pick<Caller, 'address'>,
  fields: readonly Field[],
  options?: Parameters<typeof encodeRequest>[1],
): Promise<Outcome> {
  const socket = await connectAs(arena, caller, 'h2');
  const outcome = await exchangeHttp2(socket, encodeRequest(fields, options));
  return outcome.kind === 'closed' ? outcome : { ...outcome, head: '' };
}
