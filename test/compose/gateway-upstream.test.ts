/** Trust between a complete gateway and its API server over TLS, in both directions. */
import { mkdtemp, rename, rm, writeFile } from 'node:fs/promises';
import { createServer, request, type Server } from 'node:https';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TLSSocket } from 'node:tls';
import { afterEach, beforeAll, expect, it } from 'vitest';
import { startGateway, type RunningGateway } from '../../src/compose/gateway.ts';
import { GATEWAY_SETTINGS } from '../../src/config/gateway.ts';
import { createLogger } from '../../src/observe/logger.ts';
import { issueAuthority, issueServer, type IssuedPair } from '../../src/tailnet/issue-certificate.ts';
import { person } from '../proxy/rig.ts';
import { settingsOf } from '../support/settings.ts';

interface Authority {
  readonly ca: string;
  readonly pair: IssuedPair;
}

interface Asked {
  readonly path: string | undefined;
  readonly authorization: string | undefined;
  /** True if the client sent a certificate. */
  readonly certificate: boolean;
  readonly socket: TLSSocket;
}

interface Upstream {
  readonly server: Server;
  readonly port: number;
  readonly asked: Asked[];
}

const closers: (() => unknown)[] = [];
let before: Authority;
let after: Authority;

beforeAll(async () => {
  [before, after] = await Promise.all([newAuthority(), newAuthority()]);
});
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close();
});

async function newAuthority(): Promise<Authority> {
  const validity = { nowMs: Date.now(), validMs: 86_400_000 };
  const authority = await issueAuthority(validity);
  const pair = await issueServer(authority, { names: ['127.0.0.1'], ...validity });
  return { ca: authority.certificatePem, pair };
}

async function startUpstream(): Promise<Upstream> {
  const asked: Asked[] = [];
  const { pair } = before;
  const server = createServer(
    { key: pair.keyPem, cert: pair.certificatePem, requestCert: true, rejectUnauthorized: false },
    ({ url, headers, socket: plain }, response) => {
      const socket = plain as TLSSocket;
      const certificate = Object.keys(socket.getPeerCertificate()).length > 0;
      asked.push({ path: url, authorization: headers.authorization, certificate, socket });
      response.end('{}');
    },
  );
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  closers.push(() => {
    server.closeAllConnections();
    server.close();
  });
  return { server, port: (server.address() as AddressInfo).port, asked };
}

interface Started {
  readonly gateway: RunningGateway;
  readonly upstream: Upstream;
  readonly caFile: string;
  readonly log: () => string;
}

async function start(flags: Readonly<Record<string, unknown>>, user: object): Promise<Started> {
  const upstream = await startUpstream();
  const directory = await mkdtemp(join(tmpdir(), 'tailcast-gateway-'));
  closers.push(() => rm(directory, { recursive: true, force: true }));
  const caFile = join(directory, 'api-server.crt');
  await writeFile(caFile, before.ca);
  const kubeconfig = join(directory, 'kubeconfig');
  const cluster = { server: `https://127.0.0.1:${upstream.port}`, 'certificate-authority': 'api-server.crt' };
  await writeFile(
    kubeconfig,
    JSON.stringify({
      'current-context': 'c',
      clusters: [{ name: 'k', cluster }],
      contexts: [{ name: 'c', context: { cluster: 'k', user: 'u' } }],
      users: [{ name: 'u', user }],
    }),
  );
  const lines: string[] = [];
  const settings = {
    kubeconfig,
    identity: 'static',
    listen: '127.0.0.1:0',
    opsListen: '127.0.0.1:0',
    tls: 'self-signed',
    stateDirectory: join(directory, 'state'),
    portal: false,
    ...flags,
  };
  const gateway = await startGateway({
    config: settingsOf(GATEWAY_SETTINGS, settings),
    environment: new Map(),
    log: createLogger({ level: 'info', destination: { write: (line) => void lines.push(line) } }),
    accessSink: { write: () => true, writableLength: 0 },
    identity: person(),
  });
  closers.push(() => gateway.close(0));
  return { gateway, upstream, caFile, log: () => lines.join('') };
}

async function statusOf(
  { host, port, caPem }: RunningGateway,
  path: string,
  headers: Readonly<Record<string, string>> = {},
): Promise<number | undefined> {
  const { promise, resolve, reject } = Promise.withResolvers<number | undefined>();
  const asking = request({ host, port, path, headers, ca: caPem, agent: false }, (response) => {
    response.resume();
    response.on('end', () => resolve(response.statusCode));
  });
  asking.on('error', reject);
  asking.end();
  return promise;
}

async function readiness({ opsAddress }: RunningGateway): Promise<number> {
  const { host, port } = opsAddress!;
  return (await fetch(`http://${host}:${port}/readyz`)).status;
}

it('a gateway trusts the authority of its API server that its file names now, and the former no more', async () => {
  // while the file still contains the old CA, requests succeed only on the keep-alive connection
  const seen = { one: 200, two: 200, readyMeanwhile: 503, three: 200, kept: true, left: true };
  expect(await Promise.all(['auth', 'noauth'].map(replaceAuthority))).toEqual([seen, seen]);
});

async function replaceAuthority(mode: string): Promise<object> {
  const { gateway, upstream, caFile } = await start({ mode }, { token: 'secret' });
  const one = await statusOf(gateway, '/one');
  const { pair } = after;
  upstream.server.setSecureContext({ key: pair.keyPem, cert: pair.certificatePem });
  const two = await statusOf(gateway, '/two');
  const readyMeanwhile = await readiness(gateway);
  await writeFile(`${caFile}.new`, after.ca);
  await rename(`${caFile}.new`, caFile);
  await expect.poll(() => readiness(gateway), { timeout: 15_000 }).toBe(200);
  const three = await statusOf(gateway, '/three');
  const [first, second, third] = upstream.asked.map(({ socket }) => socket);
  await expect.poll(() => first?.destroyed).toBe(true);
  return { one, two, readyMeanwhile, three, kept: second === first, left: third !== first };
}

it('a gateway in noauth mode shows the API server no credential of its own', async () => {
  const { pair } = before;
  const own = {
    'client-certificate-data': Buffer.from(pair.certificatePem).toString('base64'),
    'client-key-data': Buffer.from(pair.keyPem).toString('base64'),
    token: 'gateway',
  };
  const { gateway, upstream } = await start({ mode: 'noauth' }, own);
  expect(await statusOf(gateway, '/none')).toBe(200);
  expect(await statusOf(gateway, '/own', { authorization: 'Bearer client' })).toBe(200);
  expect(upstream.asked).toMatchObject([
    { path: '/none', authorization: undefined, certificate: false },
    { path: '/own', authorization: 'Bearer client', certificate: false },
  ]);
});
