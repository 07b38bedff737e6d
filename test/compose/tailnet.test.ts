/** Tests how the parts of a role that use the tailnet are composed, with a double of tailscaled. */
import { createServer, type AddressInfo, type Server } from 'node:net';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import {
  createLocalTailnet,
  createStaticTailnet,
  openCertificates,
  tlsKindOf,
} from '../../src/compose/tailnet.ts';
import { createLogger, createSilentLogger } from '../../src/observe/logger.ts';
import { person } from '../proxy/rig.ts';
import { startLocalApiDouble, type LocalApiDouble } from '../support/local-api-double.ts';
import { listenOn } from '../support/listen.ts';

const signal = new AbortController().signal;
const log = createSilentLogger();
const closers: (() => unknown)[] = [];
let localApi: LocalApiDouble;
beforeEach(async () => {
  localApi = await startLocalApiDouble();
  closers.push(() => localApi.close());
});
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close();
});

/** Responds to every connection with `hello`. */
async function greeter(): Promise<number> {
  const server: Server = createServer((socket) => socket.on('error', () => {}).end('hello'));
  await listenOn(server);
  closers.push(() => void server.close());
  return (server.address() as AddressInfo).port;
}

function open(recorderDial: 'direct' | 'tailscale', logger = log): ReturnType<typeof createLocalTailnet> {
  const ended = new AbortController();
  closers.push(() => ended.abort());
  return createLocalTailnet(
    { socket: localApi.socketPath, recorderDial },
    { log: logger, signal: ended.signal },
  );
}

async function greetingOf(dialled: Promise<NodeJS.ReadableStream>): Promise<string> {
  let text = '';
  for await (const chunk of await dialled) text += chunk.toString();
  return text;
}

describe('a recorder', () => {
  it('is dialled directly where the identity is static', async () => {
    const { dialRecorder } = createStaticTailnet(person(), '127.0.0.1');
    expect(await greetingOf(dialRecorder(`127.0.0.1:${await greeter()}`, signal))).toBe('hello');
  });

  it('is dialled directly, or through tailscaled, as the settings say', async () => {
    const port = await greeter();
    expect(await greetingOf(open('direct').dialRecorder(`127.0.0.1:${port}`, signal))).toBe('hello');
    localApi.dials.set('100.64.0.9:80', port);
    expect(await greetingOf(open('tailscale').dialRecorder('100.64.0.9:80', signal))).toBe('hello');
    await expect(open('tailscale').dialRecorder('100.64.0.8:80', signal)).rejects.toThrow(/502|refused/);
  });

  it.each(['recorder.ts.net:80', '100.64.0.9', '', '100.64.0.9:x'])(
    'is an address and a port, and not "%s"',
    async (address) => {
      for (const { dialRecorder } of [
        open('direct'),
        open('tailscale'),
        createStaticTailnet(person(), 'localhost'),
      ])
        await expect(dialRecorder(address, signal)).rejects.toThrow('is not an ip:port');
      expect(localApi.requests.filter(({ url }) => url.includes('dial'))).toEqual([]);
    },
  );

  it('that refuses is an error', async () => {
    const port = await greeter();
    await closers.pop()!();
    await expect(open('direct').dialRecorder(`127.0.0.1:${port}`, signal)).rejects.toMatchObject({
      code: 'ECONNREFUSED',
    });
  });

  it('is called by its node as soon as that is known', async () => {
    localApi.status = {
      BackendState: 'Running',
      Peer: {
        a: { ID: 'nREC', DNSName: 'rec.lab.ts.net.', HostName: 'rec', TailscaleIPs: ['100.64.0.9'] },
      },
    };
    const tailnet = open('direct');
    await expect.poll(() => tailnet.nodeOf('100.64.0.9:80')).toBe('nREC');
    expect(tailnet.nodeOf('100.64.0.10:80')).toBe('100.64.0.10:80');
    expect(tailnet.nodeOf('no address')).toBe('no address');
  });
});

describe('a tailnet', () => {
  it('with a static identity is for this machine alone, and has no tags', async () => {
    expect(() => createStaticTailnet(person(), '0.0.0.0')).toThrow(/must be on 127\.0\.0\.1/);
    const tailnet = createStaticTailnet(person(), '::1');
    expect(tailnet.localApi).toBeUndefined();
    expect(tailnet.checks).toEqual([]);
    expect(await tailnet.resolveRecorderTags(['tag:x'])).toEqual([]);
    expect(await tailnet.carriesTag('127.0.0.1:80', ['tag:x'])).toBe(true);
    expect(tailnet.nodeOf('127.0.0.1:80')).toBe('127.0.0.1:80');
  });

  it('is ready while tailscaled runs, and not in another state', async () => {
    const [check] = open('direct').checks;
    await check!.check(signal);
    localApi.status = { BackendState: 'NeedsLogin' };
    await expect(check!.check(signal)).rejects.toThrow('tailscaled is in state NeedsLogin');
  });

  it('says that nodes could not be read, and goes on', async () => {
    const lines: string[] = [];
    localApi.failure = { status: 500, body: 'broken' };
    const tailnet = open(
      'direct',
      createLogger({ level: 'warn', destination: { write: (line) => void lines.push(line) } }),
    );
    await expect.poll(() => lines.join('')).toContain('tailnet nodes could not be read');
    expect(tailnet.nodeOf('100.64.0.9:80')).toBe('100.64.0.9:80');
  });

  it('forgets who was who when the tailnet changes', async () => {
    localApi.whois.set('100.64.0.4', {
      Node: { ID: 4, StableID: 'nOne', Name: 'one.ts.net.', User: 1, Addresses: ['100.64.0.4/32'] },
      UserProfile: { ID: 1, LoginName: 'one@example.com' },
      CapMap: {},
    });
    const watched = localApi.nextWatcher();
    const { identities } = open('direct');
    await watched;
    const peer = { address: '100.64.0.4', port: 1, source: 'socket' } as const;
    expect(await identities.whois(peer, signal)).toMatchObject({ login: 'one@example.com' });
    localApi.whois.delete('100.64.0.4');
    localApi.notify({ NetMap: { SelfNode: {} } });
    await expect
      .poll(() => identities.whois(peer, signal).catch((error: { code: string }) => error.code))
      .toBe('IDENTITY_UNKNOWN');
  });
});

describe('certificates', () => {
  const settings = {
    identity: 'tailscale',
    tls: 'files',
    tlsCert: undefined,
    tlsKey: undefined,
    tlsNames: [],
    listen: { host: '127.0.0.1', port: 0 },
  } as const;
  const context = { log, signal };

  it('in files are two', async () => {
    for (const some of [{}, { tlsCert: '/none' }, { tlsKey: '/none' }])
      await expect(openCertificates({ ...settings, ...some }, '/none', undefined, context)).rejects.toThrow(
        'needs both tlsCert and tlsKey',
      );
    await expect(
      openCertificates({ ...settings, tlsCert: '/none', tlsKey: '/none' }, '/none', undefined, context),
    ).rejects.toThrow('/none');
  });

  it('of tailscale need a tailscaled, and are there before anybody asks', async () => {
    const tls = { ...settings, tls: 'tailscale' } as const;
    await expect(openCertificates(tls, '/none', undefined, context)).rejects.toThrow(
      'tls=tailscale needs identity=tailscale',
    );
    const { localApi: api } = open('direct');
    // the double issues no certificates
    await expect(openCertificates(tls, '/none', api, context)).rejects.toMatchObject({
      name: 'TailcastError',
    });
  });

  it('are those of tailscale by default if tailscale identifies the callers', () => {
    const kind = (identity: 'tailscale' | 'static', tls?: 'files'): string => tlsKindOf({ identity, tls });
    expect([kind('tailscale'), kind('static'), kind('tailscale', 'files')]).toEqual([
      'tailscale',
      'self-signed',
      'files',
    ]);
  });

  it('are none where TLS ends in front, and made where they are to be self-signed', async () => {
    expect(await openCertificates({ ...settings, tls: 'none' }, '/none', undefined, context)).toBeUndefined();
    const directory = await mkdtemp(join(tmpdir(), 'tailcast-certificates-'));
    closers.push(() => rm(directory, { recursive: true }));
    const made = await openCertificates(
      { ...settings, tls: 'self-signed', tlsNames: ['gw.example.com'] },
      directory,
      undefined,
      context,
    );
    expect(made?.caPem).toContain('BEGIN CERTIFICATE');
  });
});
