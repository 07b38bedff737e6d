/**
 * A gateway with misbehaving clients and a misbehaving API server. The gateway must refuse with clear errors, keep its
 * memory small, and serve other users.
 */
import { once } from 'node:events';
import { mkdtemp, writeFile } from 'node:fs/promises';
import { createServer, get, type Agent } from 'node:https';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { connect as connectTls, type TLSSocket } from 'node:tls';
import { fileURLToPath } from 'node:url';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { mergeKubeconfig } from '../../src/kube/kubeconfig-write.ts';
import { createTestAuthority } from '../support/issued-certificates.ts';

import { startRole, type RoleProcess } from '../support/role-process.ts';
import { eventually } from '../support/until.ts';
import { listenOn } from '../support/listen.ts';

const CONNECTIONS = 50;
const MEBIBYTE = 1024 ** 2;
/** Maximum growth of the gateway's memory. */
const MAX_GROWTH = 120 * MEBIBYTE;
/** Preload script for the gateway. */
const COLLECTOR = fileURLToPath(new URL('collect-on-signal.mjs', import.meta.url));
const SMALL = '/api/v1/namespaces/default/configmaps/small';
const BIG = '/api/v1/pods';
const NEVER = '/api/v1/namespaces/default/configmaps/never';

let directory: string;
let gateway: RoleProcess;
let ca: string;
let hanging = 0;
let closeUpstream: () => Promise<void>;
const sockets = new Set<TLSSocket>();

beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), 'tailcast-overload-'));
  const authority = await createTestAuthority();
  const pair = await authority.issue(['localhost', '127.0.0.1']);
  ca = authority.caPem;
  const block = Buffer.alloc(64 * 1024, 'x');
  const upstream = createServer({ key: pair.keyPem, cert: pair.certificatePem }, (request, response) => {
    const path = (request.url ?? '').split('?', 1)[0];
    if (path === NEVER) {
      hanging += 1;
      response.once('close', () => (hanging -= 1));
      return;
    }
    if (path !== BIG) return void response.end('{"kind":"ConfigMap"}');
    // sends an endless response as fast as the client reads
    const more = (): void => {
      while (!response.destroyed && response.write(block));
    };
    response.on('drain', more);
    more();
  });
  await listenOn(upstream);
  closeUpstream = async () => {
    upstream.closeAllConnections();
    upstream.close();
    await once(upstream, 'close');
  };
  const { port } = upstream.address() as AddressInfo;
  const file = (name: string): string => join(directory, name);
  const server = `https://127.0.0.1:${port}`;
  const entry = { name: 'up', server, caPem: ca, userName: 'up', token: 'token' };
  await writeFile(file('kubeconfig'), mergeKubeconfig(undefined, entry, file('kubeconfig')), { mode: 0o600 });
  await writeFile(file('tls.crt'), pair.certificatePem);
  await writeFile(file('tls.key'), pair.keyPem, { mode: 0o600 });
  const capabilities = { 'tailscale.com/cap/kubernetes': [{ impersonate: { groups: ['system:masters'] } }] };
  const identity = { nodeId: 'nLAPTOP', nodeName: 'laptop.test', login: 'alice@example.com', capabilities };
  await writeFile(file('identity.json'), JSON.stringify(identity));
  const flags = {
    kubeconfig: file('kubeconfig'),
    'state-directory': file('state'),
    identity: 'static',
    'static-identity': file('identity.json'),
    tls: 'files',
    'tls-cert': file('tls.crt'),
    'tls-key': file('tls.key'),
    listen: '127.0.0.1:0',
  };
  gateway = await startRole(
    ['gateway', ...Object.entries(flags).flatMap(([name, value]) => [`--${name}`, value])],
    { NODE_OPTIONS: `--expose-gc --import ${COLLECTOR}` },
  );
});

afterEach(async () => {
  for (const socket of sockets) socket.destroy();
  sockets.clear();
  await eventually('all connections are gone', async () =>
    (await gateway.metric('tailcast_client_connections{alpn="http/1.1"}')) === 0 ? true : undefined,
  );
});

afterAll(async () => {
  await gateway.stop();
  await closeUpstream();
});

interface Answer {
  readonly status: number;
  readonly retryAfter: string | undefined;
  readonly connection: string | undefined;
  readonly body: string;
}

function ask(path: string, agent: Agent | false = false): Promise<Answer> {
  return new Promise((resolve, reject) => {
    get({ host: '127.0.0.1', port: gateway.port, path, ca, agent }, (response) => {
      let body = '';
      response.on('data', (chunk: Buffer) => (body += chunk.toString()));
      response.once('end', () =>
        resolve({
          status: response.statusCode ?? 0,
          retryAfter: response.headers['retry-after'],
          connection: response.headers.connection,
          body,
        }),
      );
    }).once('error', reject);
  });
}

async function open(): Promise<TLSSocket> {
  const socket = connectTls({ host: '127.0.0.1', port: gateway.port, ca });
  sockets.add(socket);
  socket.on('error', () => undefined);
  await once(socket, 'secureConnect');
  return socket;
}

function openMany(count: number): Promise<readonly TLSSocket[]> {
  return Promise.all(Array.from({ length: count }, open));
}

function closed(socket: TLSSocket): Promise<void> {
  return new Promise((resolve) => {
    if (socket.closed) resolve();
    else socket.once('close', () => resolve());
  });
}

function drained(socket: TLSSocket): Promise<void> {
  return new Promise((resolve) => {
    socket.once('drain', resolve);
  });
}

/**
 * Returns the memory of the gateway after a garbage collection, because the amount of garbage depends on the machine.
 */
async function heldMemory(): Promise<number> {
  const collected = (): number => gateway.lines.filter(({ msg }) => msg === 'collected').length;
  const before = collected();
  gateway.signal('SIGUSR2');
  await eventually('its garbage is collected', async () => (collected() > before ? true : undefined));
  return gateway.metric('process_resident_memory_bytes');
}

/** Waits until the memory is within its limit, because freed pages return to the OS only after a delay. */
async function keepsItsSize(before: number): Promise<void> {
  await eventually('it has its size', async () =>
    (await heldMemory()) - before < MAX_GROWTH ? true : undefined,
  );
}

const HEAD = (path: string): string => `GET ${path} HTTP/1.1\r\nHost: 127.0.0.1\r\n`;

describe('a gateway', () => {
  it('ends floods of headers with a Status and keeps its size', async () => {
    const before = await heldMemory();
    const flooding = await openMany(40);
    const line = `X-Flood: ${'f'.repeat(8000)}\r\n`;
    const answers = await Promise.all(
      flooding.map(async (socket) => {
        let said = '';
        socket.on('data', (chunk: Buffer) => (said += chunk.toString()));
        socket.write(HEAD(SMALL));
        while (!socket.destroyed && said === '') {
          if (!socket.write(line)) await Promise.race([drained(socket), closed(socket)]);
          else await new Promise((resolve) => setImmediate(resolve));
        }
        return said;
      }),
    );
    // omits empty responses, because a client that is still writing may get a reset before it has read the response
    const responses = answers.filter((said) => said !== '');
    expect(responses.length).toBeGreaterThan(0);
    for (const said of responses) expect(said).toMatch(/^HTTP\/1\.1 431 [^]*"kind":"Status"/);
    expect((await ask(SMALL)).status).toBe(200);
    await keepsItsSize(before);
  });

  it('keeps its size under clients that ask for much and never read', async () => {
    const before = await heldMemory();
    const greedy = await openMany(CONNECTIONS);
    for (const socket of greedy) {
      socket.pause();
      socket.write(`${HEAD(BIG)}\r\n`);
    }
    await eventually('all are asked for', async () =>
      (await gateway.metric('tailcast_requests_in_flight')) >= greedy.length ? true : undefined,
    );
    for (let count = 0; count < 50; count++) {
      expect((await ask(SMALL)).status).toBe(200);
    }
    await keepsItsSize(before);
  });

  it('keeps its size under an API server that never answers, and lets go when clients do', async () => {
    const before = await heldMemory();
    const waiting = await openMany(CONNECTIONS);
    for (const socket of waiting) socket.write(`${HEAD(NEVER)}\r\n`);
    await eventually('all wait', async () => (hanging === waiting.length ? true : undefined));
    for (let count = 0; count < 20; count++) expect((await ask(SMALL)).status).toBe(200);
    await keepsItsSize(before);
    for (const socket of waiting) socket.destroy();
    await eventually('nobody waits any more', async () => (hanging === 0 ? true : undefined));
    await eventually('nothing is in flight', async () =>
      (await gateway.metric('tailcast_requests_in_flight')) === 0 ? true : undefined,
    );
  });
});
