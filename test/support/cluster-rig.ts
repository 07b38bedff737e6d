/** A gateway with several clusters in this process. Each API server is a scripted HTTPS server on loopback. */
import { once } from 'node:events';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { connect as connectHttp2, type ClientHttp2Session } from 'node:http2';
import { createServer, request, type Server } from 'node:https';
import type { IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Duplex } from 'node:stream';
import { startGateway, type RunningGateway } from '../../src/compose/gateway.ts';
import { GATEWAY_SETTINGS } from '../../src/config/gateway.ts';
import { createLogger } from '../../src/observe/logger.ts';
import { issueAuthority, issueServer, type IssuedPair } from '../../src/tailnet/issue-certificate.ts';
import { ACCESS_CAPABILITY } from '../../src/tailnet/access-rules.ts';
import { person } from '../proxy/rig.ts';
import { settingsOf } from './settings.ts';
import { listenOn } from './listen.ts';

export interface Asked {
  readonly method: string;
  readonly path: string;
  /** Header names in lower case and values, as received. */
  readonly headers: readonly string[];
}

/** An API server that responds to every request with its name. Requests below `/hang` get no response. */
export interface ScriptedServer {
  readonly name: string;
  readonly port: number;
  readonly asked: Asked[];
  readonly upgrades: Asked[];
  /** Status of `/readyz`. */
  ready: number;
  readonly ca: string;
  close(): Promise<void>;
}

const DAY_MS = 86_400_000;

export interface ServerCa {
  readonly ca: string;
  readonly pair: IssuedPair;
}

export async function createServerCa(): Promise<ServerCa> {
  const authority = await issueAuthority({ nowMs: Date.now(), validMs: DAY_MS });
  const names = ['localhost', '127.0.0.1'];
  const pair = await issueServer(authority, { names, nowMs: Date.now(), validMs: DAY_MS });
  return { ca: authority.certificatePem, pair };
}

export async function startScripted(name: string, from?: ServerCa): Promise<ScriptedServer> {
  const { ca, pair } = from ?? (await createServerCa());
  const asked: Asked[] = [];
  const upgrades: Asked[] = [];
  const describe = ({ method = '', url = '', rawHeaders }: IncomingMessage): Asked => ({
    method,
    path: url,
    headers: rawHeaders,
  });
  const server: Server = createServer(
    { key: pair.keyPem, cert: pair.certificatePem },
    (incoming, response) => {
      if (incoming.url?.endsWith('/readyz') === true) return void response.writeHead(double.ready).end();
      asked.push(describe(incoming));
      incoming.resume();
      if (incoming.url?.startsWith('/hang') === true) return;
      response.setHeader('warning', `299 - "${name}"`).end(name);
    },
  );
  server.on('upgrade', (incoming: IncomingMessage, socket: Duplex) => {
    upgrades.push(describe(incoming));
    socket.end(
      `HTTP/1.1 403 Forbidden\r\nContent-Length: ${name.length}\r\nConnection: close\r\n\r\n${name}`,
    );
  });
  await listenOn(server);
  const double: ScriptedServer = {
    name,
    port: (server.address() as AddressInfo).port,
    asked,
    upgrades,
    ready: 200,
    ca,
    async close() {
      server.closeAllConnections();
      server.close();
      await once(server, 'close');
    },
  };
  return double;
}

/** Returns a kubeconfig with one context. */
export function kubeconfigOf(
  server: Pick<ScriptedServer, 'name' | 'port' | 'ca'>,
  overrides: object = {},
  user: object = {},
): string {
  const cluster = {
    server: `https://127.0.0.1:${server.port}`,
    'certificate-authority-data': Buffer.from(server.ca).toString('base64'),
    ...overrides,
  };
  return JSON.stringify({
    'current-context': 'c',
    clusters: [{ name: 'k', cluster }],
    contexts: [{ name: 'c', context: { cluster: 'k', user: 'u' } }],
    users: [{ name: 'u', user: { token: `token-of-${server.name}`, ...user } }],
  });
}

export interface Answer {
  readonly status: number;
  readonly body: string;
  readonly headers: Readonly<Record<string, unknown>>;
}

export interface ClusterRig {
  readonly gateway: RunningGateway;
  readonly directory: string;
  readonly log: () => string;
  /** Writes the file of the setting `clusters`. */
  configure(content: object): Promise<void>;
  get(path: string, options?: RequestOptions): Promise<Answer>;
  http2(serverName: string): ClientHttp2Session;
  metrics(): Promise<string>;
  readiness(): Promise<string>;
  close(): Promise<void>;
}

export interface RequestOptions {
  readonly host?: string;
  readonly serverName?: string;
  readonly method?: string;
  readonly headers?: readonly string[];
  readonly port?: number;
}

export async function openClusterRig(options: {
  readonly content: object;
  readonly files?: Readonly<Record<string, string>>;
  readonly rules?: readonly unknown[];
  /** Rules in the caller's grant for access on request. */
  readonly accessRules?: readonly unknown[];
  readonly settings?: Readonly<Record<string, unknown>>;
}): Promise<ClusterRig> {
  const directory = await mkdtemp(join(tmpdir(), 'tailcast-clusters-'));
  await mkdir(join(directory, 'd'));
  for (const [name, text] of Object.entries(options.files ?? {}))
    await writeFile(join(directory, name), text, { mode: 0o600 });
  const path = join(directory, 'clusters.yaml');
  // replaces `DIR` in the content with the path of the directory
  const textOf = (content: object): string => JSON.stringify(content).replaceAll('DIR', directory);
  await writeFile(path, textOf(options.content));
  const lines: string[] = [];
  const settings = {
    clusters: path,
    identity: 'static',
    listen: '127.0.0.1:0',
    opsListen: '127.0.0.1:0',
    tls: 'self-signed',
    hostNames: 'gateway.test,localhost,127.0.0.1',
    tlsNames: 'a.test,b.test,c.test,prod.test,new.test',
    stateDirectory: join(directory, 'state'),
    portal: false,
    ...options.settings,
  };
  const identity = person(options.rules ?? [{ clusters: ['*'], impersonate: { groups: ['devs'] } }]);
  const access = [ACCESS_CAPABILITY, options.accessRules ?? []] as const;
  const gateway = await startGateway({
    config: settingsOf(GATEWAY_SETTINGS, settings),
    environment: new Map(),
    log: createLogger({ level: 'info', destination: { write: (line) => void lines.push(line) } }),
    accessSink: { write: () => true, writableLength: 0 },
    identity: { ...identity, capabilities: new Map([...identity.capabilities, access]) },
  });
  const tls = { ca: gateway.caPem, checkServerIdentity: () => undefined };
  const ops = async (name: string): Promise<string> => {
    const { host, port } = gateway.opsAddress!;
    return (await fetch(`http://${host}:${port}/${name}`)).text();
  };
  return {
    gateway,
    directory,
    log: () => lines.join(''),
    configure: (content) => writeFile(path, textOf(content)),
    get(target, { host = 'gateway.test', serverName = '', method = 'GET', headers = [], port } = {}) {
      const { promise, resolve, reject } = Promise.withResolvers<Answer>();
      const asking = request(
        {
          host: gateway.host,
          port: port ?? gateway.port,
          servername: serverName,
          path: target,
          method,
          headers: ['Host', host, ...headers],
          setHost: false,
          agent: false,
          ...tls,
        },
        (response) => {
          let body = '';
          response.setEncoding('utf8').on('data', (text: string) => (body += text));
          response.on('end', () =>
            resolve({ status: response.statusCode ?? 0, body, headers: response.headers }),
          );
        },
      );
      asking.on('error', reject);
      asking.end();
      return promise;
    },
    http2: (servername) => connectHttp2(`https://${gateway.host}:${gateway.port}`, { ...tls, servername }),
    metrics: () => ops('metrics'),
    readiness: () => ops('readyz'),
    async close() {
      await gateway.close(0);
      await rm(directory, { recursive: true, force: true });
    },
  };
}

/** Sends a GET request over an HTTP/2 session. */
export async function askHttp2(
  session: ClientHttp2Session,
  authority: string,
  path: string,
): Promise<Answer> {
  const stream = session.request({ ':authority': authority, ':path': path });
  const [headers] = (await once(stream, 'response')) as [Record<string, unknown>];
  let body = '';
  stream.setEncoding('utf8');
  for await (const text of stream) body += String(text);
  return { status: Number(headers[':status']), body, headers };
}
