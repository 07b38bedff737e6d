/**
 * Two gateways for two clusters behind a real haproxy, with one kubeconfig. kubectl runs on nodes of a real tailnet:
 * tailscaled → `tailscale serve` with PROXY headers → haproxy → gateway → API server.
 */
import { execFile, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { createPod } from '../cases/case.ts';
import { startRouter, type Router } from '../rig/haproxy.ts';
import {
  findKubectls,
  runKubectl,
  startKubectl,
  type KubectlResult,
  type Transport,
} from '../rig/kubectl.ts';
import { startKubernetes, type Kubernetes } from '../rig/kubernetes.ts';
import { createRig, type Rig } from '../rig/rig.ts';
import { startTailnet, type Tailnet, type TailnetNode } from '../rig/tailnet.ts';
import { openArchive } from '../support/archive.ts';
import { startTestRecorder, type TestRecorder } from '../support/product.ts';
import { startSiteGateway, WITHOUT_MARKER, type SiteGateway } from '../support/site.ts';

const run = promisify(execFile);
const MAIN = fileURLToPath(new URL('../../../src/main.ts', import.meta.url));
/** A userspace tailscaled forwards connections to this address only through `serve`. */
const HOST = '127.0.0.79';
/** Number of consecutive requests that certainly reach both gateways, because haproxy alternates between them. */
const BOTH = 4;
const kubectl = (await findKubectls()).at(-1)!;
describe('two gateways for several clusters behind haproxy', () => {
  let rig: Rig;
  let tailnet: Tailnet;
  let proxy: TailnetNode;
  let recorder: TestRecorder;
  let router: Router;
  let current: Kubernetes;
  let older: Kubernetes;
  let trust: string;
  const gateways: SiteGateway[] = [];

  beforeAll(async () => {
    rig = createRig();
    recorder = await startTestRecorder(join(rig.folder, 'recorder'), 'gateway.rig.ts.net');
    rig.onStop(() => recorder.close());
    [current, older, tailnet] = await Promise.all([
      startKubernetes(rig, { version: '1.36', node: { webSockets: true } }),
      startKubernetes(rig, { version: '1.34', node: {} }),
      startTailnet(rig, {
        nodes: [
          { name: 'proxy', tags: ['tag:k8s'] },
          { name: 'alice', user: 'alice@example.com' },
          { name: 'bob', user: 'bob@example.com' },
        ],
        policy: policy(),
      }),
    ]);
    proxy = tailnet.node('proxy');
    const ownName = proxy.dnsName.replace('proxy', 'current');
    tailnet.setNames({ [ownName]: proxy.addresses[0] });
    for (const cluster of [current, older])
      await createPod(cluster, 'target', { command: ['sleep', 'infinity'] });
    const clusters = join(rig.folder, 'clusters.yaml');
    writeFileSync(
      clusters,
      JSON.stringify({
        clusters: [
          {
            name: 'current',
            hosts: [ownName],
            kubeconfig: { file: upstream(current) },
          },
          { name: 'older', kubeconfig: { file: upstream(older) } },
        ],
      }),
    );
    for (const name of ['one', 'two']) {
      gateways.push(
        await startSiteGateway(rig, {
          name: `gateway-${name}`,
          node: proxy,
          cluster: current,
          host: HOST,
          settings: {
            clusters,
            'recorder-dial': 'direct',
            'tls-names': [proxy.dnsName, ownName].join(','),
            'drain-seconds': '120',
          },
        }),
      );
    }
    router = await startRouter(rig, HOST, gateways);
    await proxy.cli('serve', '--bg', '--tcp=443', '--proxy-protocol=2', `tcp://${HOST}:${router.port}`);
    trust = join(rig.folder, 'gateways.crt');
    // each gateway has its own CA
    writeFileSync(trust, gateways.map(({ ca }) => ca).join('\n'));
  });

  afterAll(() => rig?.stop());

  /** Returns a policy: Alice has a rule for every cluster, and Bob has a rule only for the older cluster. */
  function policy(): object {
    const grant = (src: string, clusters: readonly string[], groups: readonly string[]): object => ({
      src: [src],
      dst: ['tag:k8s'],
      app: {
        'tailscale.com/cap/kubernetes': [
          { clusters, impersonate: { groups }, recorderAddrs: [recorder.address], enforceRecorder: true },
        ],
      },
    });
    return {
      tagOwners: { 'tag:k8s': ['alice@example.com'] },
      acls: [{ action: 'accept', src: ['*'], dst: ['*:*'] }],
      grants: [
        grant('alice@example.com', ['*'], ['system:masters']),
        grant('bob@example.com', ['old*'], ['rig:viewers']),
      ],
    };
  }

  const upstream = (cluster: Kubernetes): string =>
    cluster.kubeconfig('gateway-account', { token: cluster.tokens.impersonator });

  const proxyOf = (name: string): string => `http://127.0.0.1:${tailnet.node(name).httpProxyPort}`;

  /** Runs `tailcast kubeconfig --all` on the node of a user. Returns the path of the kubeconfig. */
  async function writeKubeconfig(user: string): Promise<string> {
    const path = join(rig.folder, `${user}.kubeconfig`);
    const args = [
      '--all',
      '--file',
      path,
      '--certificate-authority',
      trust,
      '--name',
      '{name}',
      proxy.dnsName,
    ];
    await run('env', [...WITHOUT_MARKER, process.execPath, MAIN, 'kubeconfig', ...args], {
      env: { PATH: process.env['PATH'], HTTPS_PROXY: proxyOf(user), NODE_USE_ENV_PROXY: '1' },
    });
    return path;
  }

  const access = (user: string, transport: Transport = 'websocket') => ({
    kubeconfig: join(rig.folder, `${user}.kubeconfig`),
    proxyUrl: proxyOf(user),
    transport,
  });

  const at = (
    context: string,
    args: readonly string[],
    { user = 'alice', transport }: { readonly user?: string; readonly transport?: Transport } = {},
  ): Promise<KubectlResult> => runKubectl(kubectl, ['--context', context, ...args], access(user, transport));

  async function textOf(...[context, args, options]: Parameters<typeof at>): Promise<string> {
    const { code, stdout, stderr } = await at(context, args, options);
    expect({ code, stderr: stderr.toString() }).toEqual({ code: 0, stderr: '' });
    return stdout.toString();
  }

  /**
   * Waits until both gateways together have this number of sessions. @returns the number of sessions at each gateway
   */
  const sessions = (total: number): Promise<readonly number[]> =>
    rig.until(`${total} sessions`, async () => {
      const counts = await Promise.all(gateways.map((one) => one.metric('tailcast_sessions_active')));
      return counts.reduce((sum, count) => sum + count) === total ? counts : undefined;
    });

  interface Shell {
    readonly gateway: SiteGateway;
    readonly context: string;
    readonly child: ChildProcess;
    /** Sends a line to the shell, and waits until the shell has returned the line. */
    echo(word: string): Promise<void>;
  }

  /** @param open number of open shells */
  async function openShell(context: string, open: number): Promise<Shell> {
    const before = await sessions(open);
    const child = startKubectl(
      kubectl,
      ['--context', context, 'exec', '-i', 'target', '--', 'cat'],
      access('alice'),
    );
    onTestFinished(() => void child.kill('SIGKILL'));
    let output = '';
    child.stdout!.setEncoding('utf8').on('data', (part: string) => (output += part));
    child.stdin!.on('error', () => undefined);
    const echo = async (word: string): Promise<void> => {
      child.stdin!.write(`${word}\n`);
      await rig.until(word, () => Promise.resolve(output.includes(`${word}\n`) || undefined));
    };
    await echo(`open-in-${context}`);
    const after = await sessions(open + 1);
    const index = after.findIndex((count, position) => count > before[position]!);
    return { gateway: gateways[index]!, context, child, echo };
  }

  /** Opens one shell at each gateway. */
  async function shellAtEach(contexts: readonly [string, string]): Promise<readonly [Shell, Shell]> {
    const first = await openShell(contexts[0], 0);
    for (let count = 0; count < 10; count++) {
      const second = await openShell(contexts[1], 1);
      if (second.gateway !== first.gateway) return [first, second];
      second.child.kill('SIGKILL');
      // opens one more connection: `kubectl exec` opens an even number, so otherwise the next shell reaches the same
      // gateway
      await textOf(contexts[1], ['get', '--raw', '/version']);
    }
    throw new Error('haproxy uses one gateway only');
  }

  /** Runs kubectl for both clusters again and again. `stop` returns the errors. */
  function startLoad() {
    const errors: string[] = [];
    let [finished, isOver] = [0, false];
    const requests = ['current', 'older'].map(async (context) => {
      while (!isOver) {
        const { code, stderr } = await at(context, ['get', 'pods', '-o', 'name']);
        if (code !== 0) errors.push(`${context}: ${stderr.toString()}`);
        finished += 1;
      }
    });
    onTestFinished(() => void (isOver = true));
    return {
      finished: () => finished,
      async stop(): Promise<readonly string[]> {
        isOver = true;
        await Promise.all(requests);
        return errors;
      },
    };
  }

  const createdIn = (cluster: Kubernetes, prefix: string): readonly (string | undefined)[] =>
    cluster
      .audit()
      .filter(({ verb, requestURI }) => verb === 'create' && requestURI.includes('/configmaps'))
      .filter(({ objectRef }) => objectRef?.name?.startsWith(prefix) === true)
      .map(({ impersonatedUser }) => impersonatedUser?.username);

  it('reach the API server of the context as the caller, through both gateways', async () => {
    for (let count = 0; count < BOTH; count++) {
      await textOf('current', ['create', 'configmap', `current-${count}`]);
      await textOf('older', ['create', 'configmap', `older-${count}`]);
    }
    const byAlice = Array.from({ length: BOTH }, () => 'alice@example.com');
    expect(createdIn(current, 'current-')).toEqual(byAlice);
    expect(createdIn(older, 'older-')).toEqual(byAlice);
    expect([...createdIn(current, 'older-'), ...createdIn(older, 'current-')]).toEqual([]);
    for (const gateway of gateways)
      expect(await gateway.metric('tailcast_requests_total')).toBeGreaterThan(0);
    expect(
      await textOf('older', ['auth', 'whoami', '-o', 'jsonpath={.status.userInfo.username}'], {
        user: 'bob',
      }),
    ).toBe('bob@example.com');
    // adds a context that the gateway has not given to bob
    const { kubeconfig } = access('bob');
    const server = `https://${proxy.dnsName}/clusters/current`;
    await runKubectl(kubectl, ['config', 'set-cluster', 'older', `--server=${server}`], { kubeconfig });
    const refused = await at('older', ['exec', 'target', '--', 'true'], { user: 'bob' });
    expect(refused.code).not.toBe(0);
    expect(refused.stderr.toString()).toContain('Forbidden');
    await writeKubeconfig('bob');
  });

  it('keep both shells while one gateway drains, and the shell of the other after it', async () => {
    const [drained, kept] = await shellAtEach(['current', 'older']);
    const load = startLoad();
    const served = await kept.gateway.metric('tailcast_requests_total');
    drained.gateway.program.signal('SIGTERM');
    await router.allUp(1);
    await drained.echo('while it drains');
    await kept.echo('next to it');
    expect(await textOf('current', ['exec', 'target', '--', 'echo', 'new'])).toBe('new\n');
    // the gateway exits before the end of the drain, because its last session has ended
    const exit = once(drained.child, 'exit');
    drained.child.stdin!.end();
    expect(await exit).toEqual([0, null]);
    await rig.until('exit', () => Promise.resolve(drained.gateway.program.running ? undefined : true));
    expect(await load.stop()).toEqual([]);
    expect(load.finished()).toBeGreaterThan(BOTH);
    await kept.echo('after it');
    expect(await kept.gateway.metric('tailcast_requests_total')).toBeGreaterThan(served);
    drained.gateway.program.start();
    await router.allUp(2);
  });

  it('answer new requests after one gateway was killed, and keep the shell of the other', async () => {
    const [killed, kept] = await shellAtEach(['older', 'current']);
    const exit = once(killed.child, 'exit');
    killed.gateway.program.signal('SIGKILL');
    for (let count = 0; count < BOTH; count++) {
      expect(await textOf('older', ['get', 'pods', '-o', 'name'])).toBe('pod/target\n');
      expect(await textOf('current', ['get', 'pods', '-o', 'name'])).toBe('pod/target\n');
    }
    expect((await exit)[0]).not.toBe(0);
    await kept.echo('still-here');
    const end = once(kept.child, 'exit');
    kept.child.stdin!.end();
    expect(await end).toEqual([0, null]);
    const archive = openArchive(recorder.url);
    const header = await rig.until('the recording', async () => {
      const ended = (await archive.of('target')).filter(
        ({ command, state }) => command === 'cat' && state !== 'running',
      );
      const found = await Promise.all(ended.map(({ id }) => archive.read(id)));
      return found.find(({ text }) => text.includes('still-here'))?.header;
    });
    expect(header).toMatchObject({ tailcastCluster: 'current' });
    killed.gateway.program.start();
    await router.allUp(2);
  });
});
