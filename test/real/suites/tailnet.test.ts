/** tailcast's tailnet code with real tailscaled nodes and a real control server. */
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { type Server, type Socket, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { connect as connectTls } from 'node:tls';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { systemTimer, type Timer } from '../../../src/async/timer.ts';
import { createSilentLogger } from '../../../src/observe/logger.ts';
import { parseKubernetesRules } from '../../../src/tailnet/capabilities.ts';
import type { Identity, Peer } from '../../../src/tailnet/identity.ts';
import { type TailnetListener, createTailnetListener } from '../../../src/tailnet/listener.ts';
import { type LocalApi, createLocalApi } from '../../../src/tailnet/local-api.ts';
import { watchNetmap } from '../../../src/tailnet/netmap-watcher.ts';
import { resolveRecorderTags } from '../../../src/tailnet/resolve-tag.ts';
import { openSelfSignedCertificates } from '../../../src/tailnet/self-signed.ts';
import { type Whois, createWhois } from '../../../src/tailnet/whois.ts';
import { ensurePeer } from '../rig/build.ts';
import { type Rig, createRig, freePort } from '../rig/rig.ts';
import { type Tailnet, type TailnetNode, standardPolicy, startTailnet } from '../rig/tailnet.ts';
import { listenOn } from '../../support/listen.ts';

const log = createSilentLogger();

let rig: Rig;
let tailnet: Tailnet;
let proxy: TailnetNode;
let localApi: LocalApi;
let whois: Whois;
const cleanups: (() => unknown)[] = [];

beforeAll(async () => {
  await ensurePeer('tailnet');
  rig = createRig();
  tailnet = await startTailnet(rig);
  proxy = tailnet.node('proxy');
  localApi = createLocalApi({ socketPath: proxy.socketPath });
  whois = createWhois({ localApi });
});

afterEach(async () => {
  for (const cleanup of cleanups.splice(0).toReversed()) await cleanup();
});

afterAll(async () => {
  localApi.close();
  await rig.stop();
});

describe('who is calling, behind a userspace node', () => {
  it('is the same over IPv6', async () => {
    const identity = await identify(await arrive('alice', { ipv6: true }));
    expect(identity).toMatchObject({ login: 'alice@example.com' });
  });

  it('is told apart among connections that come at once', async () => {
    const names = Array.from({ length: 30 }, (_, index) => ['alice', 'bob', 'ci'][index % 3] ?? '');
    const arrivals = await arriveTogether(names);
    const seen = await Promise.all(arrivals.map(async (peer) => (await identify(peer)).nodeName));
    expect(seen.toSorted()).toEqual(names.map((name) => `${name}.lab.ts.net`).toSorted());
  });

  it('is nobody once the connection is gone', async () => {
    const { server, arrivals } = await listen();
    const socket = await tailnet.node('alice').connect(proxy.addresses[0], portOf(server));
    const peer = await arrivals.next();
    await identify(peer);
    socket.destroy();
    // Another client may already use the port, so the closed connection must not be identified again.
    await expect
      .poll(() => identify({ ...peer }).catch((error: unknown) => error), { timeout: 5_000 })
      .toMatchObject({ code: 'IDENTITY_UNKNOWN' });
  });

  it('is known within a second while the machine asks about ports that nobody has', async () => {
    const peer = await arrive('alice');
    const misses = Array.from({ length: 8 }, (_, index) =>
      identify({ address: '127.0.0.1', port: 1 + index, source: 'socket' }).catch((error: unknown) => error),
    );
    const started = performance.now();
    await identify(peer);
    expect(performance.now() - started).toBeLessThan(2_500);
    for (const miss of await Promise.all(misses)) expect(miss).toMatchObject({ code: 'IDENTITY_UNKNOWN' });
  });
});

describe('serve with PROXY protocol', () => {
  it('needs more than a listener on 127.0.0.1, where a userspace node forwards every port to', async () => {
    // With this wrong configuration, bob can pretend to be alice. The next test uses the right configuration.
    const listener = await openTlsListener('127.0.0.1');
    await expect(arrivesAround(listener, 'bob')).resolves.toBe(true);
  });

  it('cannot be spoken by a node that goes around serve, when the listener is not on 127.0.0.1', async () => {
    const listener = await openTlsListener('127.0.0.77');
    await serve(listener.address.port, '127.0.0.77');
    // A userspace node forwards only to 127.0.0.1; serve forwards to its configured target.
    await expect(arrivesAround(listener, 'bob')).resolves.toBe(false);
    const raw = await tailnet.node('alice').connect(proxy.addresses[0], 443);
    cleanups.push(() => raw.destroy());
    const secured = connectTls({ socket: raw, rejectUnauthorized: false, servername: 'localhost' });
    await once(secured, 'secureConnect');
  });
});

describe('the status', () => {
  it('names this node, its peers, and the recorders by their tag', async () => {
    const status = await localApi.status(signal());
    expect(status).toMatchObject({
      backendState: 'Running',
      certificateDomains: [],
      magicDnsSuffix: 'lab.ts.net',
    });
    expect(status.self).toMatchObject({
      name: 'proxy.lab.ts.net',
      tags: ['tag:k8s'],
      addresses: [...proxy.addresses],
    });
    const [ipv4, ipv6] = tailnet.node('recorder').addresses;
    expect(resolveRecorderTags(status, ['tag:recorder'])).toEqual([
      { name: 'recorder.lab.ts.net', addresses: [`${ipv4}:80`, `[${ipv6}]:80`] },
    ]);
    expect(resolveRecorderTags(status, ['tag:absent'])).toEqual([]);
  });

  it('says that the tailnet gives no certificates, in an error that can be shown', async () => {
    await expect(localApi.certificate('proxy.lab.ts.net', signal())).rejects.toMatchObject({
      code: 'CERTIFICATE_UNAVAILABLE',
    });
  });
});

describe('dialling through the tailnet', () => {
  it.each(['IPv4', 'IPv6'] as const)(
    'reaches a port of another node over %s, which sees who dials',
    async (family) => {
      const { server, arrivals } = await listen((socket) => socket.pipe(socket));
      const address = tailnet.node('recorder').addresses[family === 'IPv4' ? 0 : 1];
      const tunnel = await localApi.dial(address, portOf(server), signal());
      cleanups.push(() => tunnel.destroy());
      const recorderApi = createLocalApi({ socketPath: tailnet.node('recorder').socketPath });
      cleanups.push(() => recorderApi.close());
      const seen = await createWhois({ localApi: recorderApi }).whois(await arrivals.next(), signal());
      expect(seen).toMatchObject({ kind: 'tagged', tags: ['tag:k8s'], nodeName: 'proxy.lab.ts.net' });
      tunnel.write('ping');
      expect(String((await once(tunnel, 'data'))[0])).toBe('ping');
    },
  );

  it.each([
    ['an address of this machine', '127.0.0.1'],
    ['an address that no node has', '100.64.9.9'],
  ])('refuses %s', async (_name, address) => {
    const impatient = createLocalApi({ socketPath: proxy.socketPath, dialTimeoutMs: 2_000 });
    cleanups.push(() => impatient.close());
    const { server } = await listen();
    await expect(impatient.dial(address, portOf(server), signal())).rejects.toMatchObject({
      code: 'TAILNET_DIAL_FAILED',
    });
  });

  it('fails where nobody listens, and gives up where the policy lets nobody through', async () => {
    const impatient = createLocalApi({ socketPath: proxy.socketPath, dialTimeoutMs: 2_000 });
    cleanups.push(() => impatient.close());
    const closed = impatient.dial(tailnet.node('recorder').addresses[0], await freePort(), signal());
    await expect(closed).rejects.toMatchObject({ code: 'TAILNET_DIAL_FAILED' });
  });
});

describe('an outage', () => {
  it('of tailscaled hides nothing: what changed before the watch is back is announced when it is', async () => {
    const { changes, lost, reconnect } = await watchChanges({ holdReconnection: true });
    await proxy.program.stop();
    await lost;
    const before = changes.count;
    expect(before).toBeGreaterThan(0);
    proxy.program.start();
    cleanups.push(() => tailnet.setPolicy(standardPolicy()));
    const policy = JSON.stringify(standardPolicy()).replaceAll('rig:viewers', 'rig:editors');
    tailnet.setPolicy(JSON.parse(policy) as object);
    const peer: Peer = { address: tailnet.node('bob').addresses[0], port: 1, source: 'proxy-protocol' };
    await expect
      .poll(async () => groupsOf(await identify(peer)), { timeout: 20_000, interval: 100 })
      .toEqual(['rig:editors']);
    expect(changes.count).toBe(before);
    reconnect();
    await expect.poll(() => changes.count, { timeout: 5_000 }).toBeGreaterThan(before);
  });
});

function signal(): AbortSignal {
  return AbortSignal.timeout(30_000);
}

function identify(peer: Peer): Promise<Identity> {
  whois.flush();
  return whois.whois(peer, signal());
}

function groupsOf(identity: Identity): readonly string[] {
  return parseKubernetesRules(identity.capabilities).impersonation.flatMap(({ groups }) => groups);
}

interface Arrivals<T> {
  next(): Promise<T>;
  readonly waiting: number;
}

function createArrivals<T>(): Arrivals<T> & { add(item: T): void } {
  const items: T[] = [];
  const takers: ((item: T) => void)[] = [];
  return {
    add(item) {
      const taker = takers.shift();
      if (taker === undefined) items.push(item);
      else taker(item);
    },
    next() {
      const item = items.shift();
      return item === undefined ? new Promise((done) => takers.push(done)) : Promise.resolve(item);
    },
    get waiting() {
      return items.length;
    },
  };
}

/**
 * Starts a plain server on 127.0.0.1, to which userspace nodes forward connections. `arrivals` contains the remote end
 * of each connection.
 */
async function listen(
  serve?: (socket: Socket) => void,
): Promise<{ server: Server; arrivals: Arrivals<Peer> }> {
  const arrivals = createArrivals<Peer>();
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket);
    socket.on('error', () => undefined);
    serve?.(socket);
    if (serve === undefined) socket.resume();
    arrivals.add({ address: socket.remoteAddress ?? '', port: socket.remotePort ?? 0, source: 'socket' });
  });
  await listenOn(server);
  cleanups.push(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return { server, arrivals };
}

function portOf(server: Server): number {
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('the server listens on no port');
  return address.port;
}

/** Opens a connection from a node to the proxy node, which stays open until the test ends. */
async function arrive(from: string, { ipv6 = false } = {}): Promise<Peer> {
  const { server, arrivals } = await listen();
  const socket = await tailnet.node(from).connect(proxy.addresses[ipv6 ? 1 : 0], portOf(server));
  cleanups.push(() => socket.destroy());
  return arrivals.next();
}

async function arriveTogether(names: readonly string[]): Promise<readonly Peer[]> {
  const { server, arrivals } = await listen();
  const sockets = await Promise.all(
    names.map((name) => tailnet.node(name).connect(proxy.addresses[0], portOf(server))),
  );
  cleanups.push(() => {
    for (const socket of sockets) socket.destroy();
  });
  return Promise.all(names.map(() => arrivals.next()));
}

async function openTlsListener(host: string): Promise<TailnetListener> {
  const directory = mkdtempSync(join(tmpdir(), 'tctls-'));
  const certificates = await openSelfSignedCertificates({ directory, log });
  const listener = await createTailnetListener({
    host,
    port: 0,
    proxyProtocol: 'require',
    certificates,
    log,
  });
  cleanups.push(async () => {
    await listener.close(AbortSignal.abort());
    rmSync(directory, { recursive: true, force: true });
  });
  return listener;
}

/** Configures `tailscale serve` to send a PROXY header before every connection to port 443 of the proxy node. */
async function serve(port: number, host: string): Promise<void> {
  await proxy.cli('serve', 'reset');
  await proxy.cli('serve', '--bg', '--tcp=443', '--proxy-protocol=2', `tcp://${host}:${port}`);
  cleanups.push(() => proxy.cli('serve', 'reset'));
}

/** Returns true if a node can reach the listener's own port without `serve`, and could therefore forge its identity. */
async function arrivesAround(listener: TailnetListener, from: string): Promise<boolean> {
  const outcome = Promise.withResolvers<boolean>();
  listener.onConnection((socket) => {
    outcome.resolve(true);
    socket.destroy();
  });
  const closed = (): void => outcome.resolve(false);
  const raw = await tailnet.node(from).connect(proxy.addresses[0], listener.address.port).catch(closed);
  if (raw === undefined) return outcome.promise;
  raw.write(`PROXY TCP4 ${tailnet.node('alice').addresses[0]} ${proxy.addresses[0]} 1000 443\r\n`);
  const secured = connectTls({ socket: raw, rejectUnauthorized: false, servername: 'localhost' });
  for (const socket of [raw, secured]) socket.on('error', closed).on('end', closed).on('close', closed);
  try {
    return await outcome.promise;
  } finally {
    secured.destroy();
    raw.destroy();
  }
}

interface Watch {
  readonly changes: { readonly count: number };
  /**
   * Resolves when the watcher has reported the loss of the bus. The watcher then waits for `reconnect`. Only with
   * `holdReconnection`.
   */
  readonly lost: Promise<void>;
  /** Lets the watcher connect again. */
  reconnect(): void;
}

async function watchChanges({ holdReconnection = false } = {}): Promise<Watch> {
  const changes = { count: 0 };
  const begun = Promise.withResolvers<void>();
  const ended = new AbortController();
  const lost = Promise.withResolvers<void>();
  const released = Promise.withResolvers<void>();
  const held: Timer = {
    schedule(_delayMs, action) {
      lost.resolve();
      void released.promise.then(action);
      return () => undefined;
    },
  };
  const running = watchNetmap(
    {
      localApi,
      log,
      onChange() {
        changes.count += 1;
        begun.resolve();
      },
      timer: holdReconnection ? held : systemTimer,
    },
    ended.signal,
  );
  cleanups.push(async () => {
    ended.abort();
    released.resolve();
    await running;
  });
  // The first message of the bus counts as a change, so the test counts only later messages.
  await begun.promise;
  changes.count = 0;
  return { changes, lost: lost.promise, reconnect: () => released.resolve() };
}
