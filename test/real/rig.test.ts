import { spawn, spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync } from 'node:fs';
import { request } from 'node:http';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type CaseContext, type KubectlCase, createPod } from './cases/case.ts';
import { OBJECT_CASES } from './cases/objects.ts';
import { PORT_FORWARD_CASES } from './cases/port-forward.ts';
import { STREAM_CASES } from './cases/streams.ts';
import { TERMINAL_CASES } from './cases/terminal.ts';
import { ensurePeer } from './rig/build.ts';
import { ensureDebianProgram } from './rig/debian.ts';
import {
  type Kubectl,
  type Transport,
  findKubectls,
  minorNumber,
  runKubectl,
  speaks,
} from './rig/kubectl.ts';
import { type Kubernetes, type KubernetesVersion, startKubernetes } from './rig/kubernetes.ts';
import { marked } from './rig/reaper.ts';
import { startReferenceProxy } from './rig/reference-proxy.ts';
import { type Rig, createRig } from './rig/rig.ts';
import { startS3 } from './rig/s3.ts';
import { STANDARD_NODES, type Tailnet, standardPolicy, startTailnet } from './rig/tailnet.ts';
import { SUITES } from './suites.ts';

const here = fileURLToPath(new URL('.', import.meta.url));
const READY_MS = 60_000;
const CASES: readonly KubectlCase[] = [
  ...OBJECT_CASES,
  ...STREAM_CASES,
  ...TERMINAL_CASES,
  ...PORT_FORWARD_CASES,
];
const kubectls = await findKubectls();
const oldest = kubectls[0]!;
const newest = kubectls.at(-1)!;

describe('the suites', () => {
  it('are all known to the runner', () => {
    const files = [
      'rig.test.ts',
      ...readdirSync(join(here, 'suites'))
        .filter((file) => file.endsWith('.test.ts'))
        .map((file) => `suites/${file}`),
    ];
    const known = Object.values(SUITES)
      .flat()
      .map(({ file }) => file);
    // The set removes duplicates, because a file may belong to several suites.
    expect([...new Set(known)].toSorted()).toEqual(files.toSorted());
  });
});

const clusters: readonly { version: KubernetesVersion; webSockets: boolean }[] = [
  { version: '1.36', webSockets: false },
  { version: '1.36', webSockets: true },
  { version: '1.34', webSockets: false },
];

describe.each(clusters)(
  'Kubernetes $version, node takes WebSockets: $webSockets',
  ({ version, webSockets }) => {
    let rig: Rig;
    let cluster: Kubernetes;
    let readyMs = Infinity;

    beforeAll(async () => {
      await Promise.all([ensurePeer('kubernetes-1.36'), ensurePeer('kubernetes-1.34')]);
      rig = createRig();
      const started = performance.now();
      cluster = await startKubernetes(rig, { version, node: { webSockets } });
      await createPod(cluster, 'shell', { command: ['sleep', 'infinity'] });
      readyMs = performance.now() - started;
    });

    afterAll(() => rig.stop());

    it('runs its first pod soon', () => {
      expect(readyMs).toBeLessThan(READY_MS);
    });

    describe.each(clients())('kubectl $kubectl.minor over $transport', ({ kubectl, transport }) => {
      it.each(CASES.filter((item) => applies(item, kubectl, transport)))('$name', async ({ name, run }) => {
        const observation = await run(context(cluster, kubectl, transport));
        expect(observation).toMatchObject(EXPECTED[name] ?? {});
      });
    });

    it('knows its users and what they may do', async () => {
      const who = async (user: 'admin' | 'viewer' | 'nobody' | 'impersonator'): Promise<unknown> => {
        const review = { apiVersion: 'authentication.k8s.io/v1', kind: 'SelfSubjectReview' };
        const answer = await cluster.api(
          'POST',
          '/apis/authentication.k8s.io/v1/selfsubjectreviews',
          review,
          user,
        );
        return (answer as { status: { userInfo: { username: string } } }).status.userInfo.username;
      };
      expect(await Promise.all([who('admin'), who('viewer'), who('nobody'), who('impersonator')])).toEqual([
        'rig-admin',
        'rig-viewer',
        'rig-nobody',
        'system:serviceaccount:tailcast:gateway',
      ]);
      const pods = '/api/v1/namespaces/default/pods';
      await expect(cluster.api('GET', pods, undefined, 'viewer')).resolves.toBeDefined();
      await expect(cluster.api('GET', pods, undefined, 'nobody')).rejects.toThrow('403');
      await expect(cluster.api('GET', pods, undefined, 'impersonator')).rejects.toThrow('403');
    });

    it.each([
      { transport: 'spdy', verb: 'create' },
      { transport: 'websocket', verb: 'get' },
    ] as const)('is really spoken to over $transport', async ({ transport, verb }) => {
      await STREAM_CASES.find(({ name }) => name === 'exec stdin ends')!.run(
        context(cluster, newest, transport),
      );
      const execs = cluster.audit().filter((event) => event.objectRef?.subresource === 'exec');
      expect(execs.at(-1)).toMatchObject({ verb, responseStatus: { code: 101 } });
    });

    // Runs only with 1.36, because older versions have no metric for translations.
    it.runIf(version === '1.36')('translates WebSocket where the node does not take it', async () => {
      await STREAM_CASES.find(({ name }) => name === 'exec stdin ends')!.run(
        context(cluster, newest, 'websocket'),
      );
      const metrics = String(await cluster.api('GET', '/metrics'));
      const counters = metrics.match(/websocket_streaming_requests_total\{[^}]*"exec"[^}]*\}/g) ?? [];
      const wanted = webSockets ? 'proxied_to_kubelet' : 'translated_at_apiserver';
      expect(counters).toEqual([expect.stringContaining(wanted)]);
    });

    it('writes down who did what', async () => {
      const { KubectlCaseContext } = { KubectlCaseContext: context(cluster, newest, 'spdy') };
      await STREAM_CASES.find(({ name }) => name === 'exec stdin ends')!.run(KubectlCaseContext);
      const execs = cluster.audit().filter((event) => event.objectRef?.subresource === 'exec');
      expect(execs.at(-1)).toMatchObject({
        verb: 'create',
        user: { username: 'rig-admin' },
        objectRef: { name: 'shell' },
      });
    });
  },
);

describe('a rig', () => {
  it('leaves no process and no file when its own process is killed', async () => {
    const source = `
      import { createRig } from ${JSON.stringify(join(here, 'rig/rig.ts'))};
      const rig = createRig();
      rig.launch({ name: 'sleeper', path: 'sh', args: ['-c', 'setsid sleep 600 & sleep 600'] });
      console.log(JSON.stringify({ id: rig.id, folder: rig.folder }));
      setInterval(() => undefined, 1000);`;
    const owner = spawn(process.execPath, ['--input-type=module', '--eval', source], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    const line = await new Promise<string>((done) =>
      owner.stdout.once('data', (chunk: Buffer) => done(chunk.toString())),
    );
    const { id, folder } = JSON.parse(line) as { id: string; folder: string };
    while (marked(id).length < 3) await delay(20);
    owner.kill('SIGKILL');
    await expect.poll(() => marked(id), { timeout: 10_000 }).toEqual([]);
    await expect.poll(() => existsSync(folder), { timeout: 10_000 }).toBe(false);
  });

  it('says what a program printed when it does not come up', async () => {
    const rig = createRig();
    const program = rig.launch({ name: 'broken', path: 'sh', args: ['-c', 'echo no such flag >&2; exit 3'] });
    const failure = rig.until('broken', async () => undefined, { watch: [program] });
    await expect(failure).rejects.toThrow(/broken ended[^]*no such flag/);
    await rig.stop();
    expect(existsSync(rig.folder)).toBe(false);
  });

  it('has frozen a program when pausing returns', async () => {
    const rig = createRig();
    // This program sends each response immediately, from four threads.
    const source = `
      const { Worker, isMainThread } = require('node:worker_threads');
      const server = require('node:http').createServer((_, answer) => answer.end('here'));
      server.listen(0, '127.0.0.1', () => console.log(JSON.stringify({ port: server.address().port })));
      for (let n = 0; n < 3; n += 1) new Worker('for (;;) {}', { eval: true });`;
    const program = rig.launch({ name: 'busy', path: process.execPath, args: ['--eval', source] });
    const { port } = (await program.firstLine) as { port: number };
    for (let round = 0; round < 20; round += 1) {
      program.pause();
      const answer = fetch(`http://127.0.0.1:${port}`, { signal: AbortSignal.timeout(50) });
      await expect(answer).rejects.toMatchObject({ name: 'TimeoutError' });
      program.resume();
    }
    await rig.stop();
  });

  it('starts a program again after it was ended', async () => {
    const rig = createRig();
    const program = rig.launch({
      name: 'clock',
      path: 'sh',
      args: ['-c', 'echo "{\\"pid\\":$$}"; sleep 600'],
    });
    const first = await program.firstLine;
    await program.stop();
    expect(program.running).toBe(false);
    program.start();
    expect(await program.firstLine).not.toEqual(first);
    await rig.stop();
  });
});

describe('the tailnet', () => {
  let rig: Rig;
  let tailnet: Tailnet;
  let readyMs = Infinity;

  beforeAll(async () => {
    await ensurePeer('tailnet');
    rig = createRig();
    const started = performance.now();
    tailnet = await startTailnet(rig);
    readyMs = performance.now() - started;
  });

  afterAll(() => rig.stop());

  it('is meshed soon', () => {
    expect(readyMs).toBeLessThan(READY_MS);
  });

  it('tells the proxy node who is calling and what the grant gives', async () => {
    const seen = await whoisOfCaller(tailnet, 'alice', 'proxy');
    expect(seen).toMatchObject({
      Node: { Name: 'alice.lab.ts.net.' },
      UserProfile: { LoginName: 'alice@example.com' },
      CapMap: {
        'tailscale.com/cap/kubernetes': [
          { impersonate: { groups: ['system:masters'] }, recorder: ['tag:recorder'], enforceRecorder: true },
        ],
      },
    });
    expect(await whoisOfCaller(tailnet, 'ci', 'proxy')).toMatchObject({
      Node: { Tags: ['tag:ci'] },
      UserProfile: { LoginName: 'tagged-devices' },
    });
  });

  it('changes what a grant gives while it runs', async () => {
    const policy = JSON.stringify(standardPolicy()).replaceAll('rig:viewers', 'rig:editors');
    tailnet.setPolicy(JSON.parse(policy) as object);
    await expect
      .poll(async () => JSON.stringify(await whoisOfCaller(tailnet, 'bob', 'proxy')), { timeout: 10_000 })
      .toContain('rig:editors');
  });

  it('knows which node is the recorder, by its tag', async () => {
    const status = JSON.parse(await tailnet.node('proxy').cli('status', '--json')) as {
      Peer: Record<string, { Tags?: string[]; TailscaleIPs: string[]; Online: boolean }>;
    };
    const recorders = Object.values(status.Peer).filter((peer) => peer.Tags?.includes('tag:recorder'));
    expect(recorders).toMatchObject([
      { TailscaleIPs: [...tailnet.node('recorder').addresses], Online: true },
    ]);
  });
});

describe("the reference's proxy", () => {
  it('is a node of the tailnet that impersonates whoever calls', async () => {
    await Promise.all([ensurePeer('kubernetes-1.36'), ensurePeer('tailnet'), ensurePeer('reference')]);
    const rig = createRig();
    try {
      const [kubernetes, tailnet] = await Promise.all([
        startKubernetes(rig, { node: false }),
        startTailnet(rig, {
          nodes: STANDARD_NODES.filter(({ name }) => ['alice', 'bob'].includes(name)),
          policy: unrecorded(),
        }),
      ]);
      const proxy = await startReferenceProxy(rig, { mode: 'auth', kubernetes, tailnet });
      const whoami = async (from: string): Promise<string> => {
        const args = [
          'auth',
          'whoami',
          '--output=jsonpath={.status.userInfo.username} {.status.userInfo.groups}',
        ];
        const { stdout, stderr } = await runKubectl(newest, args, { kubeconfig: proxy.kubeconfig(from) });
        return stdout.toString() + stderr.toString();
      };
      expect(await whoami('alice')).toBe('alice@example.com ["system:masters","system:authenticated"]');
      expect(await whoami('bob')).toBe('bob@example.com ["rig:viewers","system:authenticated"]');
    } finally {
      await rig.stop();
    }
  });
});

describe('the S3 server', () => {
  it('answers, and refuses those without a signature', async () => {
    await ensurePeer('versitygw');
    const rig = createRig();
    const s3 = await startS3(rig);
    const response = await fetch(s3.endpoint);
    expect(response.status).toBe(403);
    expect(await response.text()).toContain('AccessDenied');
    await rig.stop();
  });
});

describe("the reference's programs", () => {
  it('are built and say how they are used', async () => {
    const programs = await ensurePeer('reference');
    const client = spawnSync(programs['recording-client'] ?? '', [], { encoding: 'utf8' });
    expect([client.status, client.stderr]).toEqual([2, expect.stringContaining('recording-client upload')]);
    const proxy = spawnSync(programs['api-proxy'] ?? '', ['-help'], { encoding: 'utf8' });
    expect(proxy.stderr).toContain('-kubeconfig');
  });
});

describe('programs from Debian', () => {
  it.each(['haproxy', 'chromium'] as const)('%s is there', (name) => {
    const path = ensureDebianProgram(name);
    const flag = name === 'haproxy' ? '-v' : '--version';
    expect(spawnSync(path, [flag], { encoding: 'utf8' }).stdout.toLowerCase()).toContain(
      name === 'haproxy' ? 'haproxy' : 'chrom',
    );
  });
});

/** Expected responses for all clients. */
const EXPECTED: Readonly<Record<string, object>> = {
  get: {
    nodes: { code: 0, stdout: 'node/node-1\n' },
    missing: { code: 1, stderr: expect.stringContaining('NotFound') },
  },
  'get -w': { lines: ['ADDED NAME one', 'MODIFIED NAME two', 'DELETED NAME two'] },
  apply: {
    steps: [
      { stdout: 'configmap/NAME created\n' },
      { stdout: 'configmap/NAME unchanged\n' },
      { stdout: 'configmap/NAME configured\n' },
    ],
    read: { stdout: 'two' },
    removed: 0,
  },
  'auth whoami': { code: 0, stdout: 'rig-admin' },
  'aggregated path that is absent': {
    raw: { code: 1, stderr: expect.stringContaining('NotFound') },
    top: { code: 1 },
  },
  'exec exit codes and streams': {
    failing: { code: 7, stdout: 'to-stdout\n', stderr: 'to-stderr\ncommand terminated with exit code 7\n' },
    passing: { code: 0, stdout: '' },
    killed: 137,
    argument: { stdout: 'a b||*|"q"|ä€😀|' },
  },
  'exec refused': {
    pod: { code: 1, stderr: expect.stringContaining('not found') },
    container: { code: 1 },
    command: { code: 1 },
  },
  'exec stdin ends': { counted: '12', empty: '0', codes: [0, 0] },
  'exec 8 MiB both ways': { code: 0, bytes: 8 * 1024 * 1024, equal: true },
  attach: { code: 0, stdout: ['out one', 'out two', 'end'], stderr: ['err one', 'err two'] },
  'run -i --rm': { code: 5, said: true },
  debug: { code: 0, said: true },
  logs: { code: 0, lines: ['', 'first', 'second', 'third'], tail: 'third\n' },
  'cp both ways': { codes: [0, 0], equal: true, text: 'text' },
  'exec on a terminal': { size: true, resized: true, interrupted: true, jobs: true, unicode: true, code: 42 },
  'attach on a terminal': { size: true, interrupted: true, code: 0 },
  'run -it --rm': { size: true, code: 3, removed: true },
  'port-forward': { parallel: [true, true, true, true, true], halfClose: true },
};

function clients(): { kubectl: Kubectl; transport: Transport }[] {
  const both = oldest === newest ? [oldest] : [oldest, newest];
  return both.flatMap((kubectl) =>
    (['spdy', 'websocket'] as const)
      .filter((transport) => speaks(kubectl, transport))
      .map((transport) => ({ kubectl, transport })),
  );
}

function applies(item: KubectlCase, kubectl: Kubectl, transport: Transport): boolean {
  if (item.sinceMinor !== undefined && minorNumber(kubectl) < item.sinceMinor) return false;
  if (item.streams === 'none') return transport === 'spdy';
  return speaks(kubectl, transport, item.streams);
}

/**
 * The standard grants without recorders. With enforced recording and no recorder address, the reference refuses all
 * requests.
 */
function unrecorded(): object {
  const text = JSON.stringify(standardPolicy());
  return JSON.parse(text.replace(',"recorder":["tag:recorder"],"enforceRecorder":true', '')) as object;
}

let counter = 0;
function context(cluster: Kubernetes, kubectl: Kubectl, transport: Transport): CaseContext {
  counter += 1;
  const unique = `case-${counter}`;
  const folder = join(cluster.caPath, '..', unique);
  mkdirSync(folder);
  const kubeconfig = cluster.kubeconfig(unique, { token: cluster.tokens.admin });
  return { kubectl, transport, kubeconfig, cluster, pod: 'shell', folder, unique };
}

/** Connects from one node to a port of another node, and asks that node's tailscaled for the caller. */
async function whoisOfCaller(tailnet: Tailnet, from: string, to: string): Promise<unknown> {
  const { createServer, connect } = await import('node:net');
  const server = createServer();
  server.listen(0, '127.0.0.1');
  await new Promise((done) => server.once('listening', done));
  const address = server.address();
  const port = typeof address === 'object' && address !== null ? address.port : 0;
  const accepted = new Promise<{ remotePort: number; end(): void }>((done) =>
    server.once('connection', (socket) => {
      socket.on('error', () => undefined);
      done({ remotePort: socket.remotePort ?? 0, end: () => socket.destroy() });
    }),
  );
  const socket = connect(tailnet.node(from).httpProxyPort, '127.0.0.1');
  socket.on('error', () => undefined);
  socket.write(`CONNECT ${tailnet.node(to).addresses[0]}:${port} HTTP/1.1\r\nHost: x\r\n\r\n`);
  const caller = await accepted;
  try {
    return await localApi(
      tailnet.node(to).socketPath,
      `/localapi/v0/whois?proto=tcp&addr=127.0.0.1:${caller.remotePort}`,
    );
  } finally {
    caller.end();
    socket.destroy();
    server.close();
  }
}

function localApi(socketPath: string, path: string): Promise<unknown> {
  return new Promise((done, fail) => {
    const sent = request({ socketPath, path, headers: { host: 'local-tailscaled.sock' } }, (response) => {
      let text = '';
      response.on('data', (chunk: Buffer) => (text += chunk.toString()));
      response.on('end', () =>
        response.statusCode === 200 ? done(JSON.parse(text)) : fail(new Error(text)),
      );
    });
    sent.on('error', fail);
    sent.end();
  });
}
