/**
 * Gateways with `--exec-upstream spdy` in front of two API servers. Checks the status of each session, and the audit
 * log: it must contain one entry for each request of kubectl, with the verb of that request. The suite `kubectl`
 * compares the output of each command.
 */
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { WebSocket } from 'ws';
import { parse } from 'yaml';
import { createPod } from '../cases/case.ts';
import { findKubectls, type Kubectl, runKubectl, speaks, type Transport } from '../rig/kubectl.ts';
import { type Kubernetes, type KubernetesVersion, startKubernetes } from '../rig/kubernetes.ts';
import { type Rig, createRig } from '../rig/rig.ts';
import { type Gateways, startGateways } from '../support/gateways.ts';
import { startTestGateway } from '../support/product.ts';

const kubectls = await findKubectls();
const kubectl = kubectls.at(-1)!;
const versions: readonly KubernetesVersion[] = ['1.36', '1.34'];

interface Kubeconfig {
  readonly clusters: readonly {
    readonly cluster: { readonly server: string; readonly 'certificate-authority-data'?: string };
  }[];
  readonly users: readonly { readonly user: { readonly token?: string } }[];
}

/** Runs `command` with a client that speaks `v5.channel.k8s.io`. @returns the Status that the client gets at the end */
async function statusOf(kubeconfig: string, pod: string, command: readonly string[]): Promise<unknown> {
  const { clusters, users } = parse(readFileSync(kubeconfig, 'utf8')) as Kubeconfig;
  const { server, 'certificate-authority-data': ca = '' } = clusters[0]!.cluster;
  const query = new URLSearchParams([
    ['stdout', 'true'],
    ['stderr', 'true'],
    ...command.map((word) => ['command', word]),
  ]);
  const url = `${server.replace('https', 'wss')}/api/v1/namespaces/default/pods/${pod}/exec?${query.toString()}`;
  const socket = new WebSocket(url, ['v5.channel.k8s.io'], {
    ca: Buffer.from(ca, 'base64'),
    headers: { authorization: `Bearer ${users[0]!.user.token}` },
  });
  const status: Buffer[] = [];
  socket.on('message', (message: Buffer) => {
    if (message[0] === 3) status.push(message.subarray(1));
  });
  await once(socket, 'close');
  return JSON.parse(Buffer.concat(status).toString());
}

describe.each(versions)('Kubernetes %s', (version) => {
  let rig: Rig;
  let cluster: Kubernetes;
  let gateways: Gateways;
  let callers = 0;

  beforeAll(async () => {
    rig = createRig();
    cluster = await startKubernetes(rig, { version, node: { webSockets: version === '1.36' } });
    gateways = await startGateways(
      rig,
      cluster,
      [
        { mode: 'auth', recorded: true },
        { mode: 'auth', recorded: false },
        { mode: 'noauth', recorded: true },
      ],
      'spdy',
    );
    await createPod(cluster, 'rights', { command: ['sleep', 'infinity'] });
  });

  afterAll(() => rig.stop());

  /** Starts a gateway for a user with `get` on pods and the given verbs on `pods/exec`. */
  async function startAs(
    ...verbs: readonly ('get' | 'create')[]
  ): Promise<(word: string, client?: Kubectl, transport?: Transport) => ReturnType<typeof runKubectl>> {
    const rbac = '/apis/rbac.authorization.k8s.io/v1';
    callers += 1;
    const verb = `${verbs.join('-')}-${callers}`;
    const name = `rig:exec-${verb}`;
    const apiVersion = 'rbac.authorization.k8s.io/v1';
    await cluster.api('POST', `${rbac}/clusterroles`, {
      apiVersion,
      kind: 'ClusterRole',
      metadata: { name },
      rules: [
        { apiGroups: [''], resources: ['pods'], verbs: ['get'] },
        { apiGroups: [''], resources: ['pods/exec'], verbs },
      ],
    });
    await cluster.api('POST', `${rbac}/clusterrolebindings`, {
      apiVersion,
      kind: 'ClusterRoleBinding',
      metadata: { name },
      roleRef: { apiGroup: 'rbac.authorization.k8s.io', kind: 'ClusterRole', name },
      subjects: [{ kind: 'Group', name, apiGroup: 'rbac.authorization.k8s.io' }],
    });
    const gateway = await startTestGateway({
      mode: 'auth',
      upstream: cluster.kubeconfig(`upstream-${verb}`, { token: cluster.tokens.impersonator }),
      stateDirectory: join(rig.folder, `${version}-${verb}`),
      execUpstream: 'spdy',
      identity: {
        kind: 'user',
        nodeId: 'n-1',
        nodeName: 'laptop.example.ts.net',
        addresses: [],
        userId: 1n,
        login: `${verb}@example.com`,
        displayName: verb,
        capabilities: new Map([
          [
            'tailscale.com/cap/kubernetes',
            [
              {
                impersonate: { groups: [name] },
                recorderAddrs: [gateways.recorder],
                enforceRecorder: true,
              },
            ],
          ],
        ]),
      },
    });
    rig.onStop(() => gateway.close(500));
    const kubeconfig = cluster.kubeconfig(`as-${verb}`, {
      server: `https://127.0.0.1:${gateway.port}`,
      ca: gateway.caPem ?? '',
      token: 'unused',
    });
    return (word, client = kubectl, transport = 'websocket') =>
      runKubectl(client, ['exec', 'rights', '--', 'echo', word], { kubeconfig, transport });
  }

  /** Returns verb and status of the audit events for the exec whose command contains this word. */
  const asked = (word: string): readonly string[] =>
    cluster
      .audit()
      .filter(
        ({ requestURI, stage }) => stage === 'ResponseStarted' && requestURI.includes(`command=${word}`),
      )
      .map(({ verb, responseStatus }) => `${verb} ${responseStatus?.code}`);

  it.each([
    ['a program that does not exist', ['/nosuch']],
    ['an exit code', ['sh', '-c', 'exit 7']],
    ['success', ['true']],
  ])('ends a WebSocket of version 5 with the status of the API server: %s', async (_name, command) => {
    const direct = await statusOf(gateways.direct, 'rights', command);
    expect(direct).toMatchObject({ status: expect.stringMatching(/^(Success|Failure)$/) });
    for (const { kubeconfig } of gateways.all)
      expect(await statusOf(kubeconfig, 'rights', command)).toEqual(direct);
  });

  it('gets the verb of the client, recorded or not', async () => {
    await createPod(cluster, 'asked', { command: ['sleep', 'infinity'] });
    for (const { mode, recorded, kubeconfig } of gateways.all) {
      const word = `${mode}-${recorded}`;
      const { code, stdout } = await runKubectl(kubectl, ['exec', 'asked', '--', 'echo', word], {
        kubeconfig,
      });
      expect([code, stdout.toString()]).toEqual([0, `${word}\n`]);
      expect(asked(word)).toEqual(['get 101']);
    }
  });

  const clients = [...new Set([kubectls[0]!, kubectl])].flatMap((client) =>
    (['spdy', 'websocket'] as const)
      .filter((transport) => speaks(client, transport))
      .map((transport) => [client.version, transport, client] as const),
  );

  it.each(clients)(
    'gets one request for one exec of kubectl %s over %s',
    async (minor, transport, client) => {
      const exec = await startAs('get', 'create');
      const word = `one-${minor}-${transport}`;
      const { code, stdout } = await exec(word, client, transport);
      expect([code, stdout.toString()]).toEqual([0, `${word}\n`]);
      expect(asked(word)).toEqual([transport === 'spdy' ? 'create 101' : 'get 101']);
    },
  );

  it('permits a caller with only `create` at the second request of kubectl, as without a gateway', async () => {
    const exec = await startAs('create');
    const { code, stdout } = await exec('created');
    expect([code, stdout.toString()]).toEqual([0, 'created\n']);
    expect(asked('created')).toEqual(['get 403', 'create 101']);
  });

  it('lets a caller with `get` and without `create` do what the API server allows', async () => {
    const exec = await startAs('get');
    const { code, stdout, stderr } = await exec('gotten');
    if (version === '1.34') {
      expect([code, stdout.toString()]).toEqual([0, 'gotten\n']);
      expect(asked('gotten')).toEqual(['get 101']);
    } else {
      // since 1.35, an upgrade by GET also needs `create`, so the API server refuses; kubectl then tries SPDY
      expect([code, stdout.toString()]).toEqual([1, '']);
      expect(stderr.toString()).toContain('cannot create resource "pods/exec"');
      expect(asked('gotten')).toEqual(['get 403', 'create 403']);
    }
  });
});
