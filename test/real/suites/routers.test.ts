/**
 * Two gateways for two clusters behind a real haproxy, with the files of `deploy/routers`. haproxy receives PROXY
 * headers as from `tailscale serve`; the API servers are scripted.
 */
import { spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import { connect, createServer, type Socket } from 'node:net';
import { networkInterfaces } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { setTimeout as wait } from 'node:timers/promises';
import { connect as connectTls } from 'node:tls';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { runChecks } from '../../../src/doctor/checks.ts';
import { silenceCheck } from '../../../src/doctor/silence-check.ts';
import {
  kubeconfigOf,
  openClusterRig,
  startScripted,
  type ClusterRig,
  type ScriptedServer,
} from '../../support/cluster-rig.ts';
import { listenOn } from '../../support/listen.ts';
import { startLocalApiDouble, userNode, type LocalApiDouble } from '../../support/local-api-double.ts';
import { ensureDebianProgram } from '../rig/debian.ts';
import { startRouter, type Router } from '../rig/haproxy.ts';
import { createRig, type Rig } from '../rig/rig.ts';

const ROUTERS = new URL('../../../deploy/routers/', import.meta.url);
/** Addresses of the Tailscale Services of the clusters. */
const VIPS = { a: '100.101.0.1', b: '100.101.0.2' } as const;
const HOST = '127.0.0.1';
const CALLER = '100.64.0.4';
const CAPABILITY = 'tailscale.com/cap/kubernetes';
const RULE = { clusters: ['*'], impersonate: { groups: ['devs'] } };

/** Short timeouts for silent connections. */
const SHORT = [
  ['timeout client 1m', 'timeout client 1s'],
  ['timeout server 1m', 'timeout server 1s'],
] as const;

/** Returns a PROXY header (version 2) of a connection from the tailnet. */
function proxyHeader(destination: string, source = CALLER): Buffer<ArrayBuffer> {
  const addresses = [...source.split('.'), ...destination.split('.')].map(Number);
  return Buffer.from([
    ...Buffer.from('\r\n\r\n\0\r\nQUIT\n', 'latin1'),
    0x21,
    0x11,
    0,
    12,
    ...addresses,
    0x9c,
    0x40,
    0x01,
    0xbb,
  ]);
}

describe('gateways behind haproxy', () => {
  let rig: Rig;
  let router: Router;
  let localApi: LocalApiDouble;
  const servers = new Map<string, ScriptedServer>();
  const gateways: ClusterRig[] = [];

  beforeAll(async () => {
    rig = createRig();
    localApi = await startLocalApiDouble();
    localApi.whois.set(CALLER, { ...userNode(), CapMap: { [CAPABILITY]: [RULE] } });
    for (const name of Object.keys(VIPS)) servers.set(name, await startScripted(name));
    for (let count = 0; count < 2; count++) gateways.push(await openGateway());
    const checksum = addresses().map(({ opsPort }) => {
      const check = `check addr 127.0.0.1 port ${opsPort}`;
      // makes haproxy send a TLV in each PROXY header
      return [check, `proxy-v2-options crc32c ${check}`] as const;
    });
    router = await startRouter(rig, HOST, addresses(), [...SHORT, ...checksum]);
  });

  afterAll(async () => {
    for (const gateway of gateways) await gateway.close();
    for (const server of servers.values()) await server.close();
    await localApi.close();
    await rig.stop();
  });

  const addresses = () =>
    gateways.map(({ gateway: { host, port, opsAddress } }) => ({ host, port, opsPort: opsAddress!.port }));

  function openGateway(): Promise<ClusterRig> {
    return openClusterRig({
      content: {
        clusters: Object.entries(VIPS).map(([name, address]) => ({
          name,
          addresses: [address],
          kubeconfig: { file: `DIR/${name}.yaml` },
        })),
      },
      files: Object.fromEntries([...servers].map(([name, one]) => [`${name}.yaml`, kubeconfigOf(one)])),
      settings: {
        identity: 'tailscale',
        socket: localApi.socketPath,
        listen: '127.0.0.77:0',
        proxyProtocol: 'require',
      },
    });
  }

  /** Opens a connection to haproxy as tailscaled does. */
  async function dial(destination: string, more: Buffer = Buffer.alloc(0)): Promise<Socket> {
    const socket = connect(router.port, HOST);
    await once(socket, 'connect');
    socket.write(Buffer.concat([proxyHeader(destination), more]));
    return socket;
  }

  async function ask(destination: string, path: string, host = 'gateway.test'): Promise<string> {
    const socket = connectTls({ socket: await dial(destination), rejectUnauthorized: false });
    socket.write(`GET ${path} HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\n\r\n`);
    return text(socket);
  }

  const received = (): number => [...servers.values()].reduce((sum, { asked }) => sum + asked.length, 0);

  it('select the cluster by the dialled address, which haproxy passes on', async () => {
    for (const [name, address] of Object.entries(VIPS)) {
      for (let count = 0; count < 4; count++) expect(await ask(address, '/api')).toMatch(`\r\n${name}`);
    }
    // the gateway treats the address in the PROXY header as the caller, instead of the address of haproxy
    const [asked] = servers.get('a')!.asked;
    expect(asked?.headers).toContain('alice@example.com');
    const before = received();
    expect(await ask(VIPS.a, '/clusters/b/api')).toMatch(/^HTTP\/1.1 421 /);
    expect(await ask('100.101.0.9', '/api')).toMatch(/^HTTP\/1.1 404 /);
    expect(received()).toBe(before);
  });

  it('refuse a second header that a caller sends', async () => {
    const before = received();
    const socket = connectTls({
      socket: await dial(VIPS.a, proxyHeader(VIPS.b, '100.64.0.9')),
      rejectUnauthorized: false,
    });
    await expect(once(socket, 'secureConnect')).rejects.toThrow(/disconnected|ECONNRESET/);
    expect(received()).toBe(before);
  });

  it('refuse callers without a header', async () => {
    const socket = connectTls({ port: router.port, host: HOST, rejectUnauthorized: false });
    await expect(once(socket, 'secureConnect')).rejects.toThrow(/disconnected|ECONNRESET/);
  });

  it('keep a silent connection longer than the timeouts of haproxy for idle clients', async () => {
    const socket = connectTls({ socket: await dial(VIPS.a), rejectUnauthorized: false });
    socket.write('GET /hang HTTP/1.1\r\nHost: gateway.test\r\n\r\n');
    const ended = once(socket, 'close').then(() => 'closed');
    expect(await Promise.race([ended, wait(4000, 'open')])).toBe('open');
    socket.destroy();
  });

  it('get a warning of the doctor if haproxy ends silent connections, and none with timeout tunnel', async () => {
    const without = await startRouter(rig, HOST, addresses(), [...SHORT, ['timeout tunnel 24h', '']]);
    for (const [front, expected] of [
      [router, { status: 'ok', summary: expect.stringContaining('kept a connection for 3 s without data') }],
      [without, { status: 'warning', summary: expect.stringContaining('closed a connection after 1 s') }],
    ] as const) {
      // simulates `tailscale serve`
      const serve = createServer((client) => {
        const socket = connect(front.port, HOST);
        for (const one of [client, socket]) one.on('error', () => one.destroy());
        socket.write(proxyHeader(VIPS.a));
        client.pipe(socket).pipe(client);
      });
      const through = new URL(`https://${HOST}:${await listenOn(serve)}`);
      const [finding] = await runChecks(
        [silenceCheck({ through, silentMs: 3000, monotonicMs: () => performance.now() })],
        new AbortController().signal,
      );
      expect(finding).toMatchObject(expected);
      serve.close();
    }
  });

  it('get no new connections while they drain, and finish the old ones', async () => {
    const [first] = gateways;
    const held = Array.from({ length: 4 }, async () => {
      const socket = connectTls({ socket: await dial(VIPS.a), rejectUnauthorized: false });
      socket.write('GET /hang HTTP/1.1\r\nHost: gateway.test\r\n\r\n');
      return socket;
    });
    const sockets = await Promise.all(held);
    await rig.until('requests', async () =>
      servers.get('a')!.asked.filter(({ path }) => path === '/hang').length >= 4 ? true : undefined,
    );
    const closing = first!.gateway.close(60_000);
    await router.allUp(1);
    for (let count = 0; count < 10; count++) expect(await ask(VIPS.b, '/api')).toMatch('\r\nb');
    expect(sockets.map(({ closed }) => closed)).toEqual([false, false, false, false]);
    expect((await fetch(`http://${HOST}:${router.healthPort}/readyz`)).status).toBe(200);
    for (const socket of sockets) socket.destroy();
    await closing;
  });

  it('make the health check of keepalived fail after the last one stopped', async () => {
    await gateways[1]!.gateway.close(0);
    await router.allUp(0);
    expect((await fetch(`http://${HOST}:${router.healthPort}/readyz`)).status).toBe(503);
  });
});

describe('the examples of deploy/routers', () => {
  it('are valid for haproxy, without warnings', () => {
    const { status, stderr } = spawnSync(ensureDebianProgram('haproxy'), ['-c', '-f', 'haproxy.cfg'], {
      cwd: ROUTERS,
      encoding: 'utf8',
    });
    expect({ status, stderr }).toEqual({ status: 0, stderr: '' });
  });

  const network = Object.keys(networkInterfaces()).find((name) => name !== 'lo');

  it.skipIf(network === undefined)('are valid for keepalived', () => {
    const scratch = createRig();
    onTestFinished(() => scratch.stop());
    const check = (name: string, config: string): number | null => {
      const path = join(scratch.folder, name);
      writeFileSync(path, config);
      return spawnSync(ensureDebianProgram('keepalived'), ['-t', '-f', path]).status;
    };
    const example = readFileSync(new URL('keepalived.conf', ROUTERS), 'utf8')
      .replace('interface eth0', `interface ${network}`)
      // keepalived 2.2.7 aborts a configuration test after it has checked a script of another user
      .replace('script_user nobody', 'script_user root');
    expect(check('valid.conf', example)).toBe(0);
    expect(check('invalid.conf', example.replace('virtual_router_id 51', 'virtual_router_id 999'))).not.toBe(
      0,
    );
  });
});
