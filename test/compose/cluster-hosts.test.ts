/** Host names of clusters that the certificate of the gateway does not cover. */
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { connect, type ConnectionOptions, type TLSSocket } from 'node:tls';
import { afterEach, describe, expect, it, vi } from 'vitest';
import {
  askHttp2,
  kubeconfigOf,
  openClusterRig,
  startScripted,
  type ClusterRig,
} from '../support/cluster-rig.ts';
import { createTestAuthority } from '../support/issued-certificates.ts';

const closers: (() => Promise<unknown> | void)[] = [];
afterEach(async () => {
  for (const close of closers.splice(0).toReversed()) await close();
});

const HOSTS = ['covered.test', 'missing.test', 'one.wild.test', 'two.one.wild.test'];
const NAMES = 'gateway.test,covered.test,*.wild.test';
const REFUSED = /disconnected|ECONNRESET/;
const eventually = { timeout: 15_000, interval: 50 };

function clustersOf(hosts: readonly string[]): object {
  return {
    clusters: hosts.map((host) => ({
      name: host.replaceAll('.', '-'),
      hosts: [host],
      kubeconfig: { file: 'DIR/a.yaml' },
    })),
  };
}

async function open(
  settings: Readonly<Record<string, unknown>> = {},
  files: Readonly<Record<string, string>> = {},
): Promise<ClusterRig> {
  const server = await startScripted('served');
  closers.push(() => server.close());
  const rig = await openClusterRig({
    content: clustersOf(HOSTS),
    files: { 'a.yaml': kubeconfigOf(server), ...files },
    settings: { tlsNames: NAMES, ...settings },
  });
  closers.push(() => rig.close());
  return rig;
}

/** Connects with a server name. @throws Error of the handshake */
async function secure({ gateway }: ClusterRig, options: ConnectionOptions): Promise<TLSSocket> {
  const { host, port } = gateway;
  const socket = connect({ host, port, rejectUnauthorized: false, ...options });
  closers.push(() => void socket.destroy());
  await once(socket, 'secureConnect');
  return socket;
}

/** Sends a request. Returns the beginning of the response, or nothing if the gateway closes the connection. */
async function answerTo(socket: TLSSocket, host: string): Promise<string> {
  socket.write(`GET /api HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\n\r\n`);
  let text = '';
  try {
    for await (const chunk of socket) text += String(chunk);
  } catch {
    return '';
  }
  return text.slice(0, 12);
}

/** Log lines about refused names, in order. */
function reports(rig: ClusterRig): readonly string[] {
  return rig
    .log()
    .split('\n')
    .filter((line) => line.includes('no certificate covers it'))
    .map((line) => String((JSON.parse(line) as { error: unknown }).error));
}

describe('a host name of a cluster that the certificate does not cover', () => {
  it.each(['missing.test', 'MISSING.test', 'missing.test.', 'two.one.wild.test'])(
    'is refused in the handshake with the server name %s',
    async (servername) => {
      const rig = await open();
      await expect(secure(rig, { servername })).rejects.toThrow(REFUSED);
    },
  );

  it.each(['covered.test', 'COVERED.test', 'one.wild.test'])('does not affect %s', async (servername) => {
    const rig = await open();
    expect(await answerTo(await secure(rig, { servername }), servername.toLowerCase())).toBe('HTTP/1.1 200');
  });

  it('is logged once when a client names it', async () => {
    const rig = await open();
    for (const _ of [1, 2])
      await expect(secure(rig, { servername: 'missing.test' })).rejects.toThrow(REFUSED);
    await expect(secure(rig, { servername: 'two.one.wild.test' })).rejects.toThrow(REFUSED);
    const covers = 'the certificate covers only localhost, IP Address:127.0.0.1';
    expect(reports(rig)).toEqual([
      expect.stringContaining(`missing.test: ${covers}`),
      expect.stringContaining(`two.one.wild.test: ${covers}`),
    ]);
    expect(reports(rig)[0]).toMatch(/\*\.wild\.test\. Add the name to tlsNames and restart the gateway\.$/);
  });

  it('is refused with 421 on connections of other names', async () => {
    const rig = await open();
    expect((await rig.get('/api', { host: 'missing.test' })).status).toBe(421);
    expect((await rig.get('/api', { host: 'MISSING.test.' })).status).toBe(421);
    expect((await rig.get('/api', { host: 'missing.test', serverName: 'covered.test' })).status).toBe(421);
    expect((await rig.get('/api', { host: 'missing.test', serverName: 'gateway.test' })).status).toBe(421);
    expect((await rig.get('/api', { host: 'covered.test' })).status).toBe(200);
    expect((await rig.get('/api', { host: '127.0.0.1' })).status).toBe(404);
    expect((await rig.get('/clusters/missing-test/api')).status).toBe(200);
    for (const session of [rig.http2('covered.test'), rig.http2('')]) {
      closers.push(() => session.close());
      expect((await askHttp2(session, 'covered.test', '/api')).status).toBe(200);
      expect((await askHttp2(session, 'missing.test', '/api')).status).toBe(421);
    }
  });

  it.each(['TLSv1.2', 'TLSv1.3'] as const)('is refused in a resumed session of %s', async (version) => {
    const rig = await open();
    const only = { minVersion: version, maxVersion: version } as const;
    const first = await secure(rig, { servername: 'covered.test', ...only });
    // with TLS 1.3, the server sends the session ticket after the handshake
    let session = first.getSession();
    first.on('session', (ticket: Buffer<ArrayBuffer>) => (session = ticket));
    await answerTo(first, 'covered.test');
    // Node's client resumes a session only for the same server name, so the test replaces the name in the session
    const renamed = Buffer.from(session!.toString('latin1').replace('covered', 'missing'), 'latin1');
    const answers = [
      ['covered.test', session, 'HTTP/1.1 200'],
      ['missing.test', renamed, version === 'TLSv1.3' ? '' : 'HTTP/1.1 421'],
    ] as const;
    for (const [servername, resumed, answer] of answers) {
      const socket = await secure(rig, { servername, session: resumed, ...only });
      expect(socket.isSessionReused()).toBe(true);
      expect(await answerTo(socket, servername)).toBe(answer);
    }
  });

  it('is served after a reload of the certificate, and refused after a reload of the clusters', async () => {
    const directory = await mkdtemp(join(tmpdir(), 'cluster-hosts-'));
    closers.push(() => rm(directory, { recursive: true }));
    const [tlsCert, tlsKey] = [join(directory, 'tls.crt'), join(directory, 'tls.key')];
    const authority = await createTestAuthority();
    const issue = async (...names: readonly string[]): Promise<void> => {
      const { certificatePem, keyPem } = await authority.issue(names);
      await writeFile(tlsKey, keyPem);
      await writeFile(tlsCert, certificatePem);
    };
    await issue('gateway.test');
    const rig = await open({ tls: 'files', tlsCert, tlsKey });
    const get = (host: string): Promise<string> =>
      secure(rig, { servername: host }).then(
        (socket) => answerTo(socket, host),
        () => 'refused',
      );
    expect(await get('missing.test')).toBe('refused');
    await issue('gateway.test', 'missing.test');
    await vi.waitFor(async () => expect(await get('missing.test')).toBe('HTTP/1.1 200'), eventually);

    expect(await get('new.test')).toBe('HTTP/1.1 400');
    await rig.configure(clustersOf(['missing.test', 'new.test']));
    await vi.waitFor(async () => expect(await get('new.test')).toBe('refused'), eventually);
    expect(reports(rig).at(-1)).toMatch(/^new\.test: .* Replace the file of tlsCert/);
    expect(await get('missing.test')).toBe('HTTP/1.1 200');
  });
});
