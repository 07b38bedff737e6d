/**
 * Two gateways for two clusters behind a real haproxy, with the files of `deploy/routers`. haproxy receives PROXY
 * headers as from `tailscale serve`; the API servers are scripted.
 */
import { spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { networkInterfaces } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { setTimeout as wait } from 'node:timers/promises';
import { connect as connectTls } from 'node:tls';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import {
  kubeconfigOf,
  openClusterRig,
  startScripted,
  type ClusterRig,
  type ScriptedServer,
} from '../../support/cluster-rig.ts';
import { startLocalApiDouble, userNode, type LocalApiDouble } from '../../support/local-api-double.ts';
import { ensureDebianProgram } from '../rig/debian.ts';
import { createRig, freePort, type Program, type Rig } from '../rig/rig.ts';

const ROUTERS = new URL('../../../deploy/routers/', import.meta.url);
const haproxyExample = readFileSync(new URL('haproxy.cfg', ROUTERS), 'utf8');
/** Addresses of the Tailscale Services of the clusters. */
const VIPS = { a: '100.101.0.1', b: '100.101.0.2' } as const;
const HOST = '127.0.0.1';
const CALLER = '100.64.0.4';
const CAPABILITY = 'tailscale.com/cap/kubernetes';
const RULE = { clusters: ['*'], impersonate: { groups: ['devs'] } };

const CHECK = 'send-proxy-v2 check addr 127.0.0.1';
/** A TLV with a checksum in each PROXY header of haproxy. */
const WITH_TLV = CHECK.replace(' check', ' proxy-v2-options crc32c check');

/** PROXY header (version 2) of a connection from the tailnet. */
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
  let haproxy: Program;
  let port: number;
  let healthPort: number;
  let statsPath: string;
  let localApi: LocalApiDouble;
  const servers = new Map<string, ScriptedServer>();
  const gateways: ClusterRig[] = [];

  beforeAll(async () => {
    rig = createRig();
    localApi = await startLocalApiDouble();
    localApi.whois.set(CALLER, { ...userNode(), CapMap: { [CAPABILITY]: [RULE] } });
    for (const name of Object.keys(VIPS)) servers.set(name, await startScripted(name));
    for (let count = 0; count < 2; count++) gateways.push(await openGateway());
    [port, healthPort] = [await freePort(), await freePort()];
    statsPath = join(rig.folder, 'haproxy.sock');
    const config = join(rig.folder, 'haproxy.cfg');
    writeFileSync(config, configured());
    haproxy = rig.launch({
      name: 'haproxy',
      path: ensureDebianProgram('haproxy'),
      args: ['-db', '-f', config],
    });
    await rig.until('haproxy', async () => ((await serversUp()) === 2 ? true : undefined), {
      watch: [haproxy],
    });
  });

  afterAll(async () => {
    for (const gateway of gateways) await gateway.close();
    for (const server of servers.values()) await server.close();
    await localApi.close();
    await rig.stop();
  });

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

  /** The example with the addresses of this run, and short timeouts for silent connections. */
  function configured(): string {
    const [one, two] = gateways.map(({ gateway }) => gateway);
    const changes: readonly (readonly [string, string])[] = [
      ['global\n', `global\n  stats socket ${statsPath} mode 600\n`],
      ['127.0.0.78:8443', `${HOST}:${port}`],
      ['127.0.0.1:9100', `${HOST}:${healthPort}`],
      ['127.0.0.77:8443', `${one!.host}:${one!.port}`],
      ['127.0.0.77:8444', `${two!.host}:${two!.port}`],
      [`${CHECK} port 9002`, `${WITH_TLV} port ${one!.opsAddress!.port}`],
      [`${CHECK} port 9012`, `${WITH_TLV} port ${two!.opsAddress!.port}`],
      ['timeout client 1m', 'timeout client 1s'],
      ['timeout server 1m', 'timeout server 1s'],
      ['inter 1s fall 1 rise 1\n  server two', 'inter 200ms fall 1 rise 1\n  server two'],
    ];
    return changes.reduce((config, [from, to]) => {
      expect(config.split(from)).toHaveLength(2);
      return config.replace(from, to);
    }, haproxyExample);
  }

  async function serversUp(): Promise<number> {
    const socket = connect(statsPath);
    socket.write('show stat\n');
    const rows = (await text(socket)).split('\n').map((line) => line.split(','));
    return rows.filter(
      ([proxy, server, ...rest]) => proxy === 'gateways' && server !== 'BACKEND' && rest.includes('UP'),
    ).length;
  }

  /** Opens a connection to haproxy as tailscaled does. */
  async function dial(destination: string, more: Buffer = Buffer.alloc(0)): Promise<Socket> {
    const socket = connect(port, HOST);
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
    // the caller of the header, not haproxy
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
    const socket = connectTls({ port, host: HOST, rejectUnauthorized: false });
    await expect(once(socket, 'secureConnect')).rejects.toThrow(/disconnected|ECONNRESET/);
  });

  it('keep a silent connection longer than the timeouts of haproxy for idle clients', async () => {
    const socket = connectTls({ socket: await dial(VIPS.a), rejectUnauthorized: false });
    socket.write('GET /hang HTTP/1.1\r\nHost: gateway.test\r\n\r\n');
    const ended = once(socket, 'close').then(() => 'closed');
    expect(await Promise.race([ended, wait(4000, 'open')])).toBe('open');
    socket.destroy();
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
    await rig.until('one server', async () => ((await serversUp()) === 1 ? true : undefined));
    for (let count = 0; count < 10; count++) expect(await ask(VIPS.b, '/api')).toMatch('\r\nb');
    expect(sockets.map(({ closed }) => closed)).toEqual([false, false, false, false]);
    expect((await fetch(`http://${HOST}:${healthPort}/readyz`)).status).toBe(200);
    for (const socket of sockets) socket.destroy();
    await closing;
  });

  it('make the health check of keepalived fail after the last one stopped', async () => {
    await gateways[1]!.gateway.close(0);
    await rig.until('no server', async () => ((await serversUp()) === 0 ? true : undefined));
    expect((await fetch(`http://${HOST}:${healthPort}/readyz`)).status).toBe(503);
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
      // keepalived 2.2.7 exits after it checked a script of another user in a configuration test
      .replace('script_user nobody', 'script_user root');
    expect(check('valid.conf', example)).toBe(0);
    expect(check('invalid.conf', example.replace('virtual_router_id 51', 'virtual_router_id 999'))).not.toBe(
      0,
    );
  });
});
