/**
 * Clients other than kubectl: client libraries and the protocol of a dashboard's frontend. Each client runs the same
 * calls directly and through a recording gateway, and must get the same results.
 */
import { execFile } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { promisify } from 'node:util';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { createPod, deletePod } from '../cases/case.ts';
import { ensurePeer } from '../rig/build.ts';
import { type Kubernetes, type KubernetesVersion, startKubernetes } from '../rig/kubernetes.ts';
import { type Rig, createRig } from '../rig/rig.ts';
import type { StoredRecording } from '../support/archive.ts';
import * as clientNode from '../support/client-node.ts';
import { CLIENT_COLUMNS, publish } from '../support/compatibility.ts';
import { startDigestServer } from '../support/digest-server.ts';
import { ensureFabric8Client } from '../support/fabric8.ts';
import { type Gateway, type Gateways, startGateways } from '../support/gateways.ts';
import * as headlamp from '../support/headlamp.ts';
import { ensureKubeRsClient } from '../support/kube-rs.ts';
import { hasMaven } from '../support/maven.ts';
import { startPathPrefix } from '../support/path-prefix.ts';
import { identityOf, startTestGateway } from '../support/product.ts';
import { type PythonClient, ensurePythonClient } from '../support/python.ts';

const run = promisify(execFile);
const INFORMERS = 200;
const withFabric8 = hasMaven('fabric8 is not driven');
// The build runs at module level, because the first build takes minutes and hooks have a time limit.
const kubeRs = await ensureKubeRsClient();
/** `REAL_MATRIX=ends` omits API server 1.34, whose translation of WebSocket to SPDY the suite `kubectl` covers. */
const versions: readonly KubernetesVersion[] =
  process.env['REAL_MATRIX'] === 'ends' ? ['1.36'] : ['1.36', '1.34'];
/** For each client and operation (a column of the table): the API server versions with which the operation worked. */
const seen = new Map<string, Map<string, KubernetesVersion[]>>();
let counter = 0;

describe.each(versions)('Kubernetes %s', (version) => {
  let rig: Rig;
  let cluster: Kubernetes;
  let gateways: Gateways;
  let gateway: Gateway;
  let direct: string;
  let pod: string;
  let clientGo: string;
  let python: PythonClient;

  beforeAll(async () => {
    rig = createRig();
    clientGo = (await ensurePeer('clients'))['client-go']!;
    python = await ensurePythonClient();
    if (withFabric8) await ensureFabric8Client();
    cluster = await startKubernetes(rig, { version, node: { webSockets: version === '1.36' } });
    gateways = await startGateways(rig, cluster, [{ mode: 'auth', recorded: true }]);
    gateway = gateways.all[0]!;
    direct = gateways.direct;
  });

  afterAll(() => rig.stop());

  beforeEach(async () => {
    counter += 1;
    pod = `clients-${counter}`;
    await createPod(cluster, pod, { command: ['sleep', 'infinity'] });
  });

  afterEach(() => deletePod(cluster, pod));

  function works(client: string, column: (typeof CLIENT_COLUMNS)[number], what = '✓'): void {
    const row = seen.get(client) ?? new Map<string, KubernetesVersion[]>();
    seen.set(client, row);
    const key = `${column}: ${what}`;
    row.set(key, [...(row.get(key) ?? []), version]);
  }

  /** Returns the recordings of this test's pod, oldest first. */
  async function recorded(count: number): Promise<readonly StoredRecording[]> {
    const recordings = await gateways.archive.whole([pod], count);
    expect(recordings).toHaveLength(count);
    for (const { state, source } of recordings)
      expect([state, source.user]).toEqual(['completed', 'rig-admin']);
    return recordings;
  }

  async function both(act: (kubeconfig: string) => Promise<unknown>): Promise<unknown> {
    const control = await act(direct);
    const through = await act(gateway.kubeconfig);
    expect(through).toEqual(control);
    return through;
  }

  /**
   * Calls for programs in other languages.
   * @param act runs the program; its arguments start with the call and the kubeconfig
   */
  function itDoesTheOrdinary(
    name: string,
    act: (...args: string[]) => Promise<unknown>,
    says: { readonly missing: unknown; readonly forwarded: unknown },
  ): void {
    it('reads', async () => {
      const answer = await both((kubeconfig) => act('get', kubeconfig, 'tailcast'));
      expect(answer).toEqual({ names: ['kube-root-ca.crt'], missing: says.missing });
      works(name, 'get');
    });

    it('watches', async () => {
      const answer = await both((kubeconfig) => act('watch', kubeconfig, 'default', pod));
      expect(answer).toEqual({ seen: ['ADDED', 'MODIFIED', 'DELETED'] });
      works(name, 'watch');
    });

    it('forwards a port', async () => {
      const server = await startDigestServer('length');
      try {
        const port = String(server.port);
        const answer = await both((kubeconfig) => act('port-forward', kubeconfig, 'default', pod, port));
        expect(answer).toEqual(says.forwarded);
      } finally {
        server.close();
      }
      works(name, 'port-forward', 'WS');
    });
  }

  describe('client-go', () => {
    const go = async (...args: string[]): Promise<unknown> =>
      JSON.parse((await run(clientGo, args, { timeout: 90_000 })).stdout);

    it('reads', async () => {
      expect(await both((kubeconfig) => go('get', kubeconfig, 'tailcast'))).toMatchObject({
        names: ['kube-root-ca.crt'],
        missing: 'configmaps "there-is-no-such-thing" not found',
      });
      works('client-go 0.36', 'get');
    });

    it(`keeps ${INFORMERS} informers in sync at once`, { timeout: 120_000 }, async () => {
      const answer = await go('watch', gateway.kubeconfig, 'default', String(INFORMERS));
      expect(answer).toEqual({ added: INFORMERS, deleted: INFORMERS });
      works('client-go 0.36', 'watch', `${INFORMERS} at once`);
    });

    it.each([
      ['spdy', 'SPDY'],
      ['websocket', 'WS'],
    ])('runs commands over %s, recorded', async (transport, label) => {
      expect(await both((kubeconfig) => go('exec', kubeconfig, transport, 'default', pod))).toEqual({
        equal: true,
        stdout: 'out\n',
        stderr: 'err\n',
        code: 5,
      });
      const [echo, failing] = await recorded(2);
      expect((await gateways.archive.read(echo!.id)).stdout).toHaveLength(8 * 1024 * 1024);
      expect(failing!.result).toBe('5');
      expect((await gateways.archive.read(failing!.id)).stderr.toString()).toBe('err\n');
      works('client-go 0.36', 'exec', label);
    });

    it.each([
      ['spdy', 'SPDY'],
      ['websocket', 'WS'],
    ])('forwards a port over %s', async (transport, label) => {
      const server = await startDigestServer('half-close');
      try {
        const port = String(server.port);
        const answer = await both((kubeconfig) =>
          go('port-forward', kubeconfig, transport, 'default', pod, port),
        );
        expect(answer).toEqual({ equal: true });
      } finally {
        server.close();
      }
      works('client-go 0.36', 'port-forward', label);
    });
  });

  describe('@kubernetes/client-node', () => {
    const node = '@kubernetes/client-node 2';

    it('reads', async () => {
      const answer = await both((kubeconfig) => clientNode.get(clientNode.loadConfig(kubeconfig)));
      expect(answer).toEqual({ names: ['kube-root-ca.crt'], missing: 404 });
      works(node, 'get');
    });

    it('watches', async () => {
      const answer = await both((kubeconfig) => clientNode.watch(clientNode.loadConfig(kubeconfig), pod));
      expect(answer).toEqual({ seen: ['ADDED', 'MODIFIED', 'DELETED'] });
      works(node, 'watch');
    });

    it('runs commands, recorded', async () => {
      const answer = await both((kubeconfig) => clientNode.execute(clientNode.loadConfig(kubeconfig), pod));
      expect(answer).toEqual({
        stdout: 'out\n',
        stderr: 'err\n',
        code: '5',
        counted: 'twelve bytes',
        fine: 'Success',
      });
      expect((await recorded(2)).map(({ result }) => result)).toEqual(['5', '0']);
      works(node, 'exec', 'WS');
    });

    it('forwards a port', async () => {
      const server = await startDigestServer('length');
      const body = randomBytes(1_000_000);
      try {
        const answer = await both((kubeconfig) =>
          clientNode.forward(clientNode.loadConfig(kubeconfig), pod, server.port, body),
        );
        expect(answer).toBe(createHash('sha256').update(body).digest('hex'));
      } finally {
        server.close();
      }
      works(node, 'port-forward', 'WS');
    });
  });

  describe('the Python client', () => {
    const name = 'Python kubernetes 33';
    const act = async (...args: string[]): Promise<unknown> => {
      const { interpreter, script } = python;
      return JSON.parse((await run(interpreter, [script, ...args], { timeout: 60_000 })).stdout);
    };

    itDoesTheOrdinary(name, act, { missing: 404, forwarded: { equal: true, error: null } });

    it('runs commands, recorded although it never tells the size of its terminal', async () => {
      const answer = await both((kubeconfig) => act('exec', kubeconfig, 'default', pod));
      expect(answer).toEqual({
        stdout: 'out\n',
        stderr: 'err\n',
        code: 5,
        terminal: true,
        terminalCode: 3,
      });
      const [failing, shell] = await recorded(2);
      expect([failing!.result, shell!.result]).toEqual(['5', '3']);
      expect((await gateways.archive.read(shell!.id)).text).toContain('from-a-42-shell');
      works(name, 'exec', 'WS');
    });
  });

  describe.runIf(withFabric8)('fabric8', { timeout: 180_000 }, () => {
    const name = 'fabric8 7 (Java)';
    const act = async (...args: string[]): Promise<unknown> => {
      const { program, args: first } = await ensureFabric8Client();
      const { stdout } = await run(program, [...first, ...args], { timeout: 90_000 });
      return JSON.parse(stdout);
    };

    itDoesTheOrdinary(name, act, { missing: true, forwarded: { equal: true } });

    it('runs commands, recorded', async () => {
      const answer = await both((kubeconfig) => act('exec', kubeconfig, 'default', pod));
      expect(answer).toEqual({ stdout: 'out\n', stderr: 'err\n', code: 5, equal: true, echoCode: 0 });
      const [failing, echo] = await recorded(2);
      expect([failing!.result, echo!.result]).toEqual(['5', '0']);
      expect((await gateways.archive.read(failing!.id)).stderr.toString()).toBe('err\n');
      expect((await gateways.archive.read(echo!.id)).stdout).toHaveLength(4 * 1024 * 1024);
      works(name, 'exec', 'WS');
    });
  });

  describe.runIf(kubeRs !== undefined)('kube-rs', () => {
    const name = 'kube-rs 5 (Rust)';
    const act = async (...args: string[]): Promise<unknown> =>
      JSON.parse((await run(kubeRs ?? '', args, { timeout: 90_000 })).stdout);

    itDoesTheOrdinary(name, act, { missing: 404, forwarded: { equal: true } });

    it('runs commands, recorded', async () => {
      const answer = await both((kubeconfig) => act('exec', kubeconfig, 'default', pod));
      expect(answer).toEqual({
        stdout: 'out\n',
        stderr: 'err\n',
        code: 5,
        equal: true,
        echoCode: 0,
        terminal: true,
        terminalCode: 3,
      });
      const [failing, echo, shell] = await recorded(3);
      expect([failing, echo, shell].map((one) => one!.result)).toEqual(['5', '0', '3']);
      expect((await gateways.archive.read(failing!.id)).stderr.toString()).toBe('err\n');
      expect((await gateways.archive.read(echo!.id)).stdout).toHaveLength(4 * 1024 * 1024);
      expect([shell!.width, shell!.height]).toEqual([97, 31]);
      expect((await gateways.archive.read(shell!.id)).text).toContain('from-a-42-shell');
      works(name, 'exec', 'WS');
    });

    it('attaches, recorded', async () => {
      const script = 'while read line; do echo "out $line"; echo "err $line" >&2; done; echo end';
      const attached: string[] = [];
      try {
        // Each run needs its own pod, because the pod stops at the end of its input.
        const answer = await both(async (kubeconfig) => {
          const talking = `${pod}-${attached.length}`;
          attached.push(talking);
          await createPod(cluster, talking, { command: ['sh', '-c', script], stdin: true });
          return act('attach', kubeconfig, 'default', talking);
        });
        expect(answer).toEqual({ stdout: 'out hello\nend\n', stderr: 'err hello\n', status: 'Success' });
        const [recording, ...others] = await gateways.archive.whole(attached, 1);
        expect(others).toEqual([]);
        expect(recording).toMatchObject({
          state: 'completed',
          kind: 'attach',
          source: { user: 'rig-admin' },
        });
        const { stdout, stderr } = await gateways.archive.read(recording!.id);
        expect([stdout.toString(), stderr.toString()]).toEqual(['out hello\nend\n', 'err hello\n']);
      } finally {
        for (const one of attached) await deletePod(cluster, one);
      }
      works(name, 'exec', 'attach');
    });
  });

  describe("Headlamp's frontend", () => {
    const name = 'Headlamp (its frontend’s protocol)';
    const PAGE = 'https://headlamp.example.com';

    async function servers(): Promise<
      Record<'direct' | 'gateway' | 'inFront' | 'behind' | 'unnamed', headlamp.HeadlampServer>
    > {
      counter += 1;
      const leaf = await cluster.authority.issue({
        name: `prefix-${counter}`,
        commonName: 'prefix',
        addresses: ['127.0.0.1'],
      });
      const { readFileSync } = await import('node:fs');
      const certificate = {
        cert: readFileSync(leaf.certificatePath, 'utf8'),
        key: readFileSync(leaf.keyPath, 'utf8'),
      };
      const identity = identityOf({ login: 'rig-admin' }, new URL(gateways.archive.url).host);
      const named = await startTestGateway({
        mode: 'auth',
        upstream: cluster.kubeconfig(`named-${counter}`, { token: cluster.tokens.impersonator }),
        stateDirectory: `${rig.folder}/named-${counter}`,
        identity,
        dashboardOrigins: [PAGE],
      });
      rig.onStop(() => named.close(500));
      const prefix = '/clusters/rig';
      const target = { url: `https://127.0.0.1:${named.port}`, ca: named.caPem ?? '' };
      const inFront = await startPathPrefix(rig, { prefix, target, certificate });
      const unnamed = await startPathPrefix(rig, { prefix, target: gateway, certificate });
      const behind = await startPathPrefix(rig, {
        prefix: '/k8s/clusters/c-1',
        target: { url: cluster.url, ca: cluster.ca },
        certificate,
      });
      const token = cluster.tokens.impersonator;
      const prefixed = await startTestGateway({
        mode: 'auth',
        upstream: cluster.kubeconfig(`prefixed-${counter}`, { server: behind.url, token }),
        stateDirectory: `${rig.folder}/prefixed-${counter}`,
        identity,
      });
      rig.onStop(() => prefixed.close(500));
      return {
        direct: { url: cluster.url, ca: cluster.ca, token: cluster.tokens.admin },
        gateway: { url: gateway.url, ca: gateway.ca, token: gateway.token },
        inFront: { url: inFront.url, ca: cluster.ca, token: gateway.token, origin: PAGE },
        unnamed: { url: unnamed.url, ca: cluster.ca, token: gateway.token, origin: PAGE },
        behind: { url: `https://127.0.0.1:${prefixed.port}`, ca: prefixed.caPem ?? '', token: 'unused' },
      };
    }

    it('runs commands over v4, also where a path prefix stands before or behind the gateway', async () => {
      const all = await servers();
      const command = ['sh', '-c', 'echo out; echo err >&2; exit 5'];
      const control = await headlamp.execute(all.direct, pod, command);
      expect(control).toMatchObject({ protocol: 'v4.channel.k8s.io', stdout: 'out\n', stderr: 'err\n' });
      for (const server of [all.gateway, all.inFront, all.behind])
        expect(await headlamp.execute(server, pod, command)).toEqual(control);
      expect((await recorded(3)).map(({ result }) => result)).toEqual(['5', '5', '5']);
      works(name, 'exec', 'WS v4');
    });

    it('gets nothing through a gateway that does not know its dashboard', async () => {
      const { direct: api, unnamed } = await servers();
      const page = { ...api, origin: PAGE };
      expect(await headlamp.execute(page, pod, ['true'])).toMatchObject({ status: { status: 'Success' } });
      await expect(headlamp.execute(unnamed, pod, ['true'])).rejects.toThrow('403');
      expect(await gateways.archive.of(pod)).toEqual([]);
    });

    it('watches over WebSocket', async () => {
      const all = await servers();
      const path = '/api/v1/namespaces/default/configmaps';
      const watch = (server: headlamp.HeadlampServer): Promise<readonly string[]> =>
        headlamp.watch(server, pod, 3, async () => {
          await cluster.api('POST', path, { metadata: { name: pod }, data: { step: 'one' } });
          await cluster.api('PUT', `${path}/${pod}`, { metadata: { name: pod }, data: { step: 'two' } });
          await cluster.api('DELETE', `${path}/${pod}`);
        });
      for (const server of [all.direct, all.gateway, all.inFront, all.behind])
        expect(await watch(server)).toEqual(['ADDED', 'MODIFIED', 'DELETED']);
      works(name, 'watch', 'WS');
    });
  });
});

describe('test/real/compatibility.md', () => {
  it('says what was seen', ({ skip }) => {
    const rows = new Map(
      [...seen].map(([client, row]) => {
        const everywhere = [...row].filter(([, on]) => on.length === versions.length).map(([key]) => key);
        const cells = CLIENT_COLUMNS.map((column) =>
          everywhere
            .filter((key) => key.startsWith(`${column}: `))
            .map((key) => key.slice(column.length + 2))
            .join(', '),
        );
        return [client, cells.map((cell) => cell || '–')];
      }),
    );
    const worked = [...seen.values()].flatMap((row) => [...row.values()]);
    // 16 cells are required: 6 of client-go, 4 of client-node, 4 of Python, 2 of Headlamp; 4 cells of fabric8 and 5 of
    // kube-rs are optional
    const expected = 16 + (withFabric8 ? 4 : 0) + (kubeRs === undefined ? 0 : 5);
    if (worked.length < expected || worked.some((on) => on.length < versions.length))
      skip('not everything was run');
    expect(publish({ heading: 'Other clients', columns: CLIENT_COLUMNS, rows })).toBeUndefined();
  });
});
