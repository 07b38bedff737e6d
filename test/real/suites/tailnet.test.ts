/** tailcast's tailnet code with real tailscaled nodes and a real control server. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { connect as connectHttp2 } from 'node:http2';
import { type Server, type Socket, connect, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
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
import { createRecorder } from '../../../src/compose/recorder-parts.ts';
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
  it('is the person, with the grants of the policy', async () => {
    const identity = await identify(await arrive('alice'));
    expect(identity).toMatchObject({
      kind: 'user',
      login: 'alice@example.com',
      nodeName: 'alice.lab.ts.net',
      addresses: [...tailnet.node('alice').addresses],
    });
    expect(parseKubernetesRules(identity.capabilities).recording).toEqual([
      {
        groups: ['system:masters'],
        recorderTags: ['tag:recorder'],
        recorderAddresses: [],
        enforceRecorder: true,
        enableEvents: false,
      },
    ]);
  });

  it('is another person on another node', async () => {
    const identity = await identify(await arrive('bob'));
    expect(identity).toMatchObject({ kind: 'user', login: 'bob@example.com' });
    expect(parseKubernetesRules(identity.capabilities).impersonation).toMatchObject([
      { groups: ['rig:viewers'] },
    ]);
  });

  it('is a role when the node is tagged', async () => {
    const identity = await identify(await arrive('ci'));
    expect(identity).toMatchObject({ kind: 'tagged', tags: ['tag:ci'], nodeName: 'ci.lab.ts.net' });
  });

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

  it('has nothing without a grant', async () => {
    await tailnet.join({ name: 'mallory', user: 'mallory@example.com' });
    const identity = await identify(await arrive('mallory'));
    expect(identity).toMatchObject({ login: 'mallory@example.com' });
    expect(parseKubernetesRules(identity.capabilities)).toEqual({ impersonation: [], recording: [] });
  });

  it('is nobody for a connection from this machine', async () => {
    const { server, arrivals } = await listen();
    const socket = connect(portOf(server), '127.0.0.1');
    cleanups.push(() => socket.destroy());
    await expect(identify(await arrivals.next())).rejects.toMatchObject({ code: 'IDENTITY_UNKNOWN' });
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
  describe.each([1, 2])('version %i', (version) => {
    it.each(['IPv4', 'IPv6'] as const)(
      'names the person behind the connection, over %s and through TLS',
      async (family) => {
        const { listener, ca, arrivals } = await openTlsListener();
        await serve(listener.address.port, version);
        const address = proxy.addresses[family === 'IPv4' ? 0 : 1];
        const raw = await tailnet.node('alice').connect(address, 443);
        const socket = connectTls({
          socket: raw,
          ca,
          servername: 'localhost',
          ALPNProtocols: ['h2', 'http/1.1'],
        });
        cleanups.push(() => socket.destroy());
        await once(socket, 'secureConnect');
        expect(socket.alpnProtocol).toBe('h2');
        const { peer } = await arrivals.next();
        expect(peer).toMatchObject({
          address: tailnet.node('alice').addresses[family === 'IPv4' ? 0 : 1],
          source: 'proxy-protocol',
        });
        expect(await identify(peer)).toMatchObject({ login: 'alice@example.com' });
      },
    );

    it('takes a line that the client itself sends for what it is: no TLS', async () => {
      const { listener, arrivals } = await openTlsListener();
      await serve(listener.address.port, version);
      const socket = await tailnet.node('bob').connect(proxy.addresses[0], 443);
      socket.write(`PROXY TCP4 ${tailnet.node('alice').addresses[0]} ${proxy.addresses[0]} 1000 443\r\n`);
      socket.on('error', () => undefined);
      await text(socket);
      expect(arrivals.waiting).toBe(0);
      expect(listener.openConnections).toBe(0);
    });
  });

  it('is required: a connection without a header is closed', async () => {
    const { listener, arrivals } = await openTlsListener();
    const socket = connect(listener.address.port, '127.0.0.1');
    socket.write('GET / HTTP/1.1\r\n\r\n');
    socket.on('error', () => undefined);
    await text(socket);
    expect(arrivals.waiting).toBe(0);
  });

  it('needs more than a listener on 127.0.0.1, where a userspace node forwards every port to', async () => {
    // With this wrong configuration, bob can pretend to be alice. The next test uses the right configuration.
    const { listener } = await openTlsListener('127.0.0.1');
    await expect(arrivesAround(listener, 'bob')).resolves.toBe(true);
  });

  it('cannot be spoken by a node that goes around serve, when the listener is not on 127.0.0.1', async () => {
    const { listener } = await openTlsListener('127.0.0.77');
    await serve(listener.address.port, 2, '127.0.0.77');
    // A userspace node forwards only to 127.0.0.1; serve forwards to its configured target.
    await expect(arrivesAround(listener, 'bob')).resolves.toBe(false);
    const raw = await tailnet.node('alice').connect(proxy.addresses[0], 443);
    cleanups.push(() => raw.destroy());
    const secured = connectTls({ socket: raw, rejectUnauthorized: false, servername: 'localhost' });
    await once(secured, 'secureConnect');
  });
});

describe('changes of the tailnet', () => {
  afterAll(() => tailnet.setPolicy(standardPolicy()));

  it('are announced, and the next answer has the new grant', async () => {
    const peer = await arrive('bob');
    expect(groupsOf(await identify(peer))).toEqual(['rig:viewers']);
    const { changes } = await watchChanges();
    const policy = JSON.stringify(standardPolicy()).replaceAll('rig:viewers', 'rig:editors');
    tailnet.setPolicy(JSON.parse(policy) as object);
    await expect.poll(() => changes.count, { timeout: 5_000 }).toBeGreaterThan(0);
    await expect
      .poll(async () => groupsOf(await identify(peer)), { timeout: 5_000 })
      .toEqual(['rig:editors']);
  });

  it('are announced when a node is removed, which is nobody from then on', async () => {
    await tailnet.join({ name: 'temp', user: 'temp@example.com' });
    const address = tailnet.node('temp').addresses[0];
    const peer: Peer = { address, port: 1, source: 'proxy-protocol' };
    expect(await identify(peer)).toMatchObject({ login: 'temp@example.com' });
    const { changes } = await watchChanges();
    await tailnet.remove('temp');
    await expect.poll(() => changes.count, { timeout: 5_000 }).toBeGreaterThan(0);
    await expect
      .poll(() => identify({ ...peer }).catch((error: unknown) => error), { timeout: 5_000 })
      .toMatchObject({ code: 'IDENTITY_UNKNOWN' });
    await tailnet.node('temp').program.stop();
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

  it('carries 32 MiB each way without changing a byte', async () => {
    const { server } = await listen((socket) => socket.pipe(socket));
    const tunnel = await localApi.dial(tailnet.node('recorder').addresses[0], portOf(server), signal());
    const sent = Buffer.alloc(32 * 1024 * 1024);
    for (let index = 0; index < sent.length; index += 4)
      sent.writeUInt32LE((index * 2_654_435_761) % 2 ** 32, index);
    tunnel.write(sent);
    const received: Buffer[] = [];
    let length = 0;
    for await (const chunk of tunnel) {
      received.push(chunk as Buffer);
      length += (chunk as Buffer).length;
      if (length >= sent.length) break;
    }
    expect(Buffer.concat(received).equals(sent)).toBe(true);
  });

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

describe('a recording through the tailnet', () => {
  it("is uploaded by the reference's client from the proxy node, and filed under that node", async () => {
    const { 'recording-client': client = '' } = await ensurePeer('reference');
    const directory = mkdtempSync(join(tmpdir(), 'tcrec-'));
    const recorderNode = tailnet.node('recorder');
    const recorderApi = createLocalApi({ socketPath: recorderNode.socketPath });
    const uploaders = createWhois({ localApi: recorderApi });
    const recorder = await createRecorder({
      listen: { host: '127.0.0.1', port: 0 },
      directory,
      log,
      async identify({ address, port }, aborted) {
        const { nodeId, nodeName } = await uploaders.whois({ address, port, source: 'socket' }, aborted);
        return { kind: 'accepted', nodeId, nodeName };
      },
    });
    cleanups.push(async () => {
      await recorder.close();
      recorderApi.close();
      rmSync(directory, { recursive: true, force: true });
    });
    const cast = `${HEADER}\n[0.5,"o","through the tailnet"]\n`;
    const [ipv4] = recorderNode.addresses;
    const result = await uploadWith(client, cast, [
      '-addr',
      `${ipv4}:${recorder.address.port}`,
      '-socks5',
      `127.0.0.1:${proxy.socksPort}`,
    ]);
    expect(result).toMatchObject({ protocol: 'v2', error: '' });
    const self = (await localApi.status(signal())).self;
    const folders = readdirSync(directory).filter((name) => !name.startsWith('.'));
    expect(folders).toEqual([self?.nodeId]);
    const response = await fetch(`${recorder.url}/api/v1/recordings`);
    expect(await response.json()).toMatchObject({
      recordings: [{ destination: { node: 'proxy.lab.ts.net' }, source: { user: 'alice@example.com' } }],
    });
  });

  it('is reached by LocalAPI dial, over HTTP/2 without TLS', async () => {
    const directory = mkdtempSync(join(tmpdir(), 'tcrec-'));
    const recorder = await createRecorder({
      listen: { host: '127.0.0.1', port: 0 },
      directory,
      log,
      identify: async () => ({ kind: 'accepted', nodeId: 'n1', nodeName: 'proxy.lab.ts.net' }),
    });
    cleanups.push(async () => {
      await recorder.close();
      rmSync(directory, { recursive: true, force: true });
    });
    const tunnel = await localApi.dial(
      tailnet.node('recorder').addresses[0],
      recorder.address.port,
      signal(),
    );
    const session = connectHttp2('http://recorder', { createConnection: () => tunnel });
    cleanups.push(() => session.destroy());
    const probe = session.request({ ':method': 'HEAD', ':path': '/v2/record' });
    const [headers] = (await once(probe, 'response')) as [Record<string, unknown>];
    expect(headers).toMatchObject({ ':status': 200, 'tailcast-upgrade': '1' });
  });
});

describe('an outage', () => {
  it('of tailscaled is an error within its time limit, and over when it is back', async () => {
    const peer: Peer = { address: tailnet.node('alice').addresses[0], port: 1, source: 'proxy-protocol' };
    const impatient = createWhois({ localApi, timeoutMs: 1_000 });
    proxy.program.pause();
    try {
      await expect(impatient.whois(peer, signal())).rejects.toMatchObject({ code: 'IDENTITY_UNAVAILABLE' });
      await expect(localApi.status(AbortSignal.timeout(1_000))).rejects.toBeDefined();
    } finally {
      proxy.program.resume();
    }
    await expect(impatient.whois({ ...peer }, signal())).resolves.toMatchObject({
      login: 'alice@example.com',
    });
  });

  it('of the control server takes nobody away who is known', async () => {
    tailnet.control.pause();
    try {
      expect(await identify(await arrive('alice'))).toMatchObject({ login: 'alice@example.com' });
    } finally {
      tailnet.control.resume();
    }
  });

  it('of the recorder node is seen in the status', async () => {
    const recorder = tailnet.node('recorder');
    await recorder.program.stop();
    await expect
      .poll(async () => resolveRecorderTags(await localApi.status(signal()), ['tag:recorder']), {
        timeout: 20_000,
      })
      .toEqual([]);
    recorder.program.start();
    await expect
      .poll(async () => resolveRecorderTags(await localApi.status(signal()), ['tag:recorder']), {
        timeout: 20_000,
      })
      .toHaveLength(1);
  });

  it('of tailscaled breaks the watch, which says so', async () => {
    const { changes } = await watchChanges();
    await proxy.program.stop();
    await expect.poll(() => changes.count, { timeout: 5_000 }).toBeGreaterThan(0);
    await expect(identify(somebody())).rejects.toMatchObject({ code: 'IDENTITY_UNAVAILABLE' });
    proxy.program.start();
    await expect
      .poll(() => identify(somebody()).catch((error: unknown) => error), { timeout: 20_000 })
      .toMatchObject({ login: 'alice@example.com' });
  });

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

const HEADER = JSON.stringify({
  version: 2,
  width: 80,
  height: 24,
  timestamp: 1_785_325_858,
  srcNode: 'alice.lab.ts.net',
  srcNodeID: 'n1',
  srcNodeUserID: 1,
  srcNodeUser: 'alice@example.com',
  env: null,
  sshUser: '',
  localUser: '',
  connectionID: '',
  kubernetes: { PodName: 'web-0', Namespace: 'prod', Container: '', SessionType: 'exec' },
});

function signal(): AbortSignal {
  return AbortSignal.timeout(30_000);
}

function somebody(): Peer {
  return { address: tailnet.node('alice').addresses[0], port: 1, source: 'proxy-protocol' };
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

/** A plain server on 127.0.0.1, the target of userspace nodes; returns the remote end of each connection. */
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

interface TlsListener {
  readonly listener: TailnetListener;
  readonly ca: string;
  readonly arrivals: Arrivals<{ readonly peer: Peer; readonly alpn: string }>;
}

async function openTlsListener(host = '127.0.0.1'): Promise<TlsListener> {
  const directory = mkdtempSync(join(tmpdir(), 'tctls-'));
  const certificates = await openSelfSignedCertificates({ directory, log });
  const listener = await createTailnetListener({
    host,
    port: 0,
    proxyProtocol: 'require',
    certificates,
    log,
  });
  const arrivals = createArrivals<{ peer: Peer; alpn: string }>();
  listener.onConnection((socket, alpn, peer) => {
    socket.on('error', () => undefined);
    socket.resume();
    socket.once('end', () => socket.end());
    arrivals.add({ peer, alpn });
  });
  cleanups.push(async () => {
    await listener.close(AbortSignal.abort());
    rmSync(directory, { recursive: true, force: true });
  });
  return { listener, ca: certificates.caPem, arrivals };
}

/** Configures `tailscale serve` to send a PROXY header before every connection to port 443 of the proxy node. */
async function serve(port: number, version: number, host = '127.0.0.1'): Promise<void> {
  await proxy.cli('serve', 'reset');
  await proxy.cli('serve', '--bg', '--tcp=443', `--proxy-protocol=${version}`, `tcp://${host}:${port}`);
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
   * Resolves when the watcher has reported that it has lost the bus, and waits for `reconnect`. Only with
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

async function uploadWith(client: string, body: string, args: readonly string[]): Promise<unknown> {
  const child = spawn(client, ['upload', ...args], { stdio: ['pipe', 'pipe', 'inherit'] });
  child.stdin.end(body);
  return JSON.parse(await text(child.stdout));
}
