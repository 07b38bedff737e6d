/** One gateway in front of two API servers of different versions, one with three addresses, and one kubeconfig. */
import { once } from 'node:events';
import { copyFileSync, mkdirSync, writeFileSync } from 'node:fs';
import type { IncomingMessage } from 'node:http';
import { createServer as createHttpsServer, request, type Server } from 'node:https';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import type { Duplex } from 'node:stream';
import { text } from 'node:stream/consumers';
import { connect as connectTls } from 'node:tls';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { writeGatewayKubeconfig } from '../../../src/cli/kubeconfig.ts';
import { startGateway, type RunningGateway } from '../../../src/compose/gateway.ts';
import { createSilentLogger } from '../../../src/observe/logger.ts';
import { startLocalApiDouble, userNode, type LocalApiDouble } from '../../support/local-api-double.ts';
import { createPod } from '../cases/case.ts';
import { PORT_FORWARD_CASES } from '../cases/port-forward.ts';
import { findKubectls, runKubectl, startKubectl, type Transport } from '../rig/kubectl.ts';
import { startKubernetes, type Kubernetes } from '../rig/kubernetes.ts';
import { createRig, freePort, type Rig } from '../rig/rig.ts';
import { openArchive } from '../support/archive.ts';
import { openAddress, type Address } from '../support/address.ts';
import { startTestRecorder, type TestRecorder } from '../support/product.ts';
import { createServerCa, type ServerCa } from '../../support/cluster-rig.ts';
import { gatewaySettings } from '../../support/settings.ts';

const kubectl = (await findKubectls()).at(-1)!;

describe('two clusters behind one gateway', () => {
  let rig: Rig;
  let recorder: TestRecorder;
  let localApi: LocalApiDouble;
  let alice: Readonly<Record<string, unknown>>;
  let gateway: RunningGateway;
  let kubeconfig: string;
  let kcp: { readonly server: Server; readonly port: number };
  const clusters = new Map<string, Kubernetes>();
  const addresses: Address[] = [];

  beforeAll(async () => {
    rig = createRig();
    const [current, older] = await Promise.all([
      startKubernetes(rig, { version: '1.36', node: { webSockets: true } }),
      startKubernetes(rig, { version: '1.34', node: {} }),
    ]);
    clusters.set('current', current);
    clusters.set('older', older);
    for (const one of clusters.values()) await createPod(one, 'target', { command: ['sleep', 'infinity'] });
    for (let count = 0; count < 3; count++) addresses.push(await openAddress(current.port));
    const { folder } = rig;
    recorder = await startTestRecorder(join(folder, 'recorder'), 'gateway.rig.ts.net');
    localApi = await startLocalApiDouble();
    // returns alice for every whois query, because the test does not know the port of the queried loopback address
    Object.assign(localApi.whois, { get: () => alice });
    grant('*');
    const file = join(folder, 'clusters.yaml');
    const ca = await createServerCa();
    kcp = { server: await startKcp(current, ca), port: await freePort() };
    const kcpKubeconfig = current.kubeconfig('gateway-kcp', {
      token: current.tokens.impersonator,
      server: `https://127.0.0.1:${(kcp.server.address() as AddressInfo).port}`,
      ca: ca.ca,
    });
    writeFileSync(
      file,
      JSON.stringify({
        clusters: [
          { name: 'kcp', kcp: true, listen: `127.0.0.1:${kcp.port}`, kubeconfig: { file: kcpKubeconfig } },
          ...[...clusters].map(([name, one]) => ({
            name,
            kubeconfig: { file: one.kubeconfig(`gateway-${name}`, { token: one.tokens.impersonator }) },
            ...(name === 'current' ? { endpoints: addresses.map(({ port }) => `127.0.0.1:${port}`) } : {}),
          })),
        ],
      }),
    );
    gateway = await startGateway({
      config: gatewaySettings({
        clusters: file,
        identity: 'tailscale',
        socket: localApi.socketPath,
        tls: 'self-signed',
        stateDirectory: join(folder, 'gateway'),
      }),
      environment: new Map(),
      log: createSilentLogger(),
      accessSink: process.stderr,
    });
    const trust = join(folder, 'gateway.crt');
    writeFileSync(trust, gateway.caPem ?? '');
    kubeconfig = join(folder, 'kubeconfig');
    await writeGatewayKubeconfig(
      [`https://127.0.0.1:${gateway.port}`],
      { all: true, certificateAuthority: trust, file: kubeconfig, name: '{name}' },
      { environment: new Map(), stdout: process.stderr } as never,
    );
  });

  afterAll(async () => {
    await gateway.close(1000);
    await recorder.close();
    for (const address of addresses) address.close();
    kcp.server.close();
    await localApi.close();
    await rig.stop();
  });

  /** Gives alice one rule for these clusters. */
  function grant(...names: readonly string[]): void {
    const rule = {
      clusters: names,
      impersonate: { groups: ['system:masters'] },
      recorderAddrs: [recorder.address],
      enforceRecorder: true,
    };
    alice = {
      ...userNode({ Addresses: ['127.0.0.1/32'] }),
      CapMap: { 'tailscale.com/cap/kubernetes': [rule] },
    };
  }

  const run = (context: string, args: readonly string[], transport: Transport = 'websocket') =>
    runKubectl(kubectl, ['--context', context, ...args], { kubeconfig, transport });

  const textOf = async (context: string, args: readonly string[], transport?: Transport): Promise<string> => {
    const { code, stdout, stderr } = await run(context, args, transport);
    expect(stderr.toString()).toBe('');
    expect(code).toBe(0);
    return stdout.toString();
  };

  it('reads and writes in the cluster of the context, as the audit logs prove', async () => {
    for (const [name, one] of clusters) {
      // kubectl warns on stderr about the version of the older cluster
      const { stdout } = await run(name, ['version', '-o', 'json']);
      const version = JSON.parse(stdout.toString()) as {
        readonly serverVersion: { readonly gitVersion: string };
      };
      expect(version.serverVersion.gitVersion).toContain(one.version);
      await textOf(name, ['create', 'configmap', `only-in-${name}`]);
    }
    for (const [name, one] of clusters) {
      expect(await textOf(name, ['get', 'configmaps', '-o', 'name'])).toContain(`only-in-${name}`);
      const created = one
        .audit()
        .filter(({ verb, objectRef }) => verb === 'create' && objectRef?.resource === 'configmaps')
        .filter(({ impersonatedUser }) => impersonatedUser?.username === 'alice@example.com');
      expect(created.map(({ requestURI }) => requestURI.split('?')[0])).toEqual([
        '/api/v1/namespaces/default/configmaps',
      ]);
      expect(created[0]?.responseStatus?.code).toBe(201);
    }
  });

  it.each(['spdy', 'websocket'] as const)('records exec over %s in both clusters', async (transport) => {
    const archive = openArchive(recorder.url);
    for (const name of clusters.keys()) {
      const word = `said-in-${name}-${transport}`;
      expect(await textOf(name, ['exec', 'target', '--', 'echo', word], transport)).toBe(`${word}\n`);
      // waits until the session is stored, because a running session has no notes
      const found = await rig.until(`a recording of ${name}`, async () =>
        (await archive.whole(['target'], 1)).find((one) => JSON.stringify(one).includes(word)),
      );
      const response = await fetch(`${recorder.url}/api/v1/recordings/${found.id}/notes`);
      expect(await response.text()).toContain(`"cluster":"${name}"`);
      const listed = await fetch(`${recorder.url}/api/v1/recordings?cluster=${name}&limit=500`);
      const { recordings } = (await listed.json()) as {
        readonly recordings: readonly { readonly id: string; readonly cluster: string }[];
      };
      expect(recordings.map(({ id }) => id)).toContain(found.id);
      expect(new Set(recordings.map(({ cluster }) => cluster))).toEqual(new Set([name]));
    }
  });

  it('reads logs and watches in each cluster', async () => {
    for (const name of clusters.keys()) {
      const waited = await run(name, ['wait', '--for=condition=Ready', 'pod/target', '--timeout=20s']);
      expect(waited).toMatchObject({ code: 0 });
      expect(await run(name, ['logs', 'target'])).toMatchObject({ code: 0 });
    }
  });

  it.each(['spdy', 'websocket'] as const)('forwards ports over %s', async (transport) => {
    const folder = join(rig.folder, `forward-${transport}`);
    mkdirSync(folder);
    const own = join(folder, 'kubeconfig');
    copyFileSync(kubeconfig, own);
    await runKubectl(kubectl, ['config', 'use-context', 'current'], { kubeconfig: own, transport });
    const [forward] = PORT_FORWARD_CASES;
    const cluster = clusters.get('current')!;
    const context = {
      kubectl,
      transport,
      kubeconfig: own,
      cluster,
      pod: 'target',
      folder,
      unique: transport,
    };
    expect(await forward!.run(context)).toEqual({
      parallel: [true, true, true, true, true],
      halfClose: true,
    });
  });

  it('records exec in a workspace of kcp, and refuses upgrades outside of workspaces', async () => {
    const root = `https://127.0.0.1:${kcp.port}`;
    const inKcp = (path: string, args: readonly string[]) => {
      const own = clusters.get('current')!.kubeconfig('client-kcp', {
        token: 'none',
        server: `${root}${path}`,
        ca: gateway.caPem!,
      });
      return runKubectl(kubectl, args, { kubeconfig: own, transport: 'websocket' });
    };
    const said = await inKcp('/clusters/root:team', ['exec', 'target', '--', 'echo', 'said-in-kcp']);
    expect([said.stderr.toString(), said.stdout.toString()]).toEqual(['', 'said-in-kcp\n']);
    await rig.until('a recording of kcp', async () =>
      (await openArchive(recorder.url).whole(['target'], 1)).find((one) =>
        JSON.stringify(one).includes('said-in-kcp'),
      ),
    );
    for (const path of ['/clusters/*', '/services/view/clusters/root:team', ''])
      expect(await inKcp(path, ['exec', 'target', '--', 'echo', 'unseen'])).not.toMatchObject({ code: 0 });
  });

  it('ends the shell in the cluster whose rule was withdrawn, and not the other one', async () => {
    const shells = [...clusters.keys()].map((name) => {
      const args = ['--context', name, 'exec', 'target', '--', 'sh', '-c', 'echo up; exec sleep 600'];
      const child = startKubectl(kubectl, args, { kubeconfig, transport: 'websocket' });
      onTestFinished(() => void child.kill('SIGKILL'));
      return { child, errors: text(child.stderr!) };
    });
    for (const { child } of shells) expect(String(await once(child.stdout!, 'data'))).toBe('up\n');
    const [current, older] = shells;
    const exit = once(current!.child, 'exit');
    grant('older');
    expect(await exit).toEqual([expect.any(Number), null]);
    expect(await current!.errors).toContain('no grant of yours names it');
    expect((await run('current', ['get', 'namespaces'])).code).not.toBe(0);
    expect(await textOf('older', ['get', 'namespaces', '-o', 'name'])).toContain('namespace/default');
    expect(older!.child.exitCode).toBeNull();
    grant('*');
    expect(
      await rig.until('access', async () => (await run('current', ['get', 'pods'])).code === 0 || undefined),
    ).toBe(true);
  });

  it('fails over to the next address, and creates each object once', async () => {
    for (const address of addresses.slice(0, 2)) {
      address.close();
      for (let count = 0; count < 4; count++) {
        await textOf('current', ['create', 'configmap', `after-${address.port}-${count}`]);
      }
    }
    const created = clusters
      .get('current')!
      .audit()
      .filter(({ verb, objectRef }) => verb === 'create' && objectRef?.resource === 'configmaps')
      .map(({ auditID }) => auditID);
    expect(new Set(created).size).toBe(created.length);
    expect(await textOf('older', ['get', 'namespaces', '-o', 'name'])).toContain('namespace/default');
  });
});

/** Starts a server whose paths begin with a workspace, as at kcp. Every workspace is one API server. */
async function startKcp({ port }: Kubernetes, { pair }: ServerCa): Promise<Server> {
  const server = createHttpsServer({ key: pair.keyPem, cert: pair.certificatePem });
  const inside = (url = ''): string | undefined => /^\/clusters\/root(?::[a-z0-9-]+)*(\/.*)$/.exec(url)?.[1];
  server.on('request', (incoming, response) => {
    const path = inside(incoming.url);
    if (path === undefined) return void response.writeHead(403).end();
    const { method, headers } = incoming;
    const outgoing = request({ host: '127.0.0.1', port, path, method, headers, rejectUnauthorized: false });
    outgoing.on('response', (answer) => {
      response.writeHead(answer.statusCode ?? 502, answer.headers);
      answer.pipe(response);
    });
    outgoing.on('error', () => response.destroy());
    incoming.pipe(outgoing);
  });
  server.on('upgrade', (incoming: IncomingMessage, socket: Duplex, head: Buffer) => {
    const path = inside(incoming.url);
    if (path === undefined) return void socket.destroy();
    const upstream = connectTls({ host: '127.0.0.1', port, rejectUnauthorized: false });
    const fields = incoming.rawHeaders.map((text, index) => text + (index % 2 === 0 ? ': ' : '\r\n'));
    upstream.write(`${incoming.method} ${path} HTTP/1.1\r\n${fields.join('')}\r\n`);
    upstream.write(head);
    for (const one of [socket, upstream]) one.on('error', () => one.destroy());
    socket.pipe(upstream).pipe(socket);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return server;
}
