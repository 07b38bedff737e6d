/**
 * ProxyGroups of type kube-apiserver: tailcast's gateways next to real tailscaleds, in front of the API server of
 * their own cluster.
 */
import { once } from 'node:events';
import { readFileSync, readdirSync } from 'node:fs';
import type { IncomingMessage } from 'node:http';
import { request } from 'node:https';
import { join } from 'node:path';
import { connect as connectTls } from 'node:tls';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ANNOTATIONS } from '../../../src/operator/proxy-group/resource.ts';
import { PROXY_GROUP } from '../../operator/goldens.ts';
import {
  NAMESPACE,
  accountKubeconfig,
  imageCommands,
  install,
  launchOperator,
} from '../operator/installation.ts';
import { ensurePeer } from '../rig/build.ts';
import { type Kubernetes, startKubernetes } from '../rig/kubernetes.ts';
import { type Program, type Rig, createRig } from '../rig/rig.ts';
import { type Tailnet, startTailnet } from '../rig/tailnet.ts';

const GROUPS = '/apis/tailscale.com/v1alpha1/proxygroups';
const CORE = `/api/v1/namespaces/${NAMESPACE}`;
const APPS = `/apis/apps/v1/namespaces/${NAMESPACE}`;
const RBAC = `/apis/rbac.authorization.k8s.io/v1/namespaces/${NAMESPACE}`;
const CAPABILITY = 'tailscale.com/cap/kubernetes';

interface Listed {
  readonly items: readonly { readonly metadata: { readonly name: string; readonly uid: string } }[];
}
interface Group {
  readonly metadata: { readonly finalizers?: readonly string[] };
  readonly status?: {
    readonly conditions?: readonly {
      readonly type: string;
      readonly status: string;
      readonly reason: string;
      readonly message: string;
    }[];
    readonly devices?: readonly { readonly hostname: string; readonly tailnetIPs?: readonly string[] }[];
    readonly url?: string;
  };
}

let rig: Rig;
let cluster: Kubernetes;
let tailnet: Tailnet;
let operator: Program;
/** Kubeconfig of the gateways, because pods on this node have no token at a fixed path. */
let gatewayKubeconfig: string;

beforeAll(async () => {
  const { tailscaled = '' } = await ensurePeer('tailnet');
  await ensurePeer('kubernetes-1.36');
  // The pods mount a volume at /tmp, and the kubelet double replaces this path everywhere, so the rig's folder must not
  // be below /tmp.
  process.env['TMPDIR'] = '/var/tmp';
  rig = createRig();
  [cluster, tailnet] = await Promise.all([
    startKubernetes(rig, { node: { images: imageCommands(rig, tailscaled) } }),
    startTailnet(rig, {
      nodes: [{ name: 'alice', user: 'alice@example.com' }],
      policy: {
        tagOwners: { 'tag:k8s-gateway': ['alice@example.com'] },
        acls: [{ action: 'accept', src: ['*'], dst: ['*:*'] }],
        grants: [
          {
            src: ['alice@example.com'],
            dst: ['tag:k8s-gateway'],
            app: { [CAPABILITY]: [{ impersonate: { groups: ['sre'] } }] },
          },
        ],
      },
    }),
  ]);
  const { kubeconfig } = await install(rig, cluster);
  gatewayKubeconfig = await accountKubeconfig(cluster, 'kube-apiserver-auth-proxy');
  const apiKey = (await tailnet.admin('apikeys', 'create')) as string;
  operator = launchOperator(rig, { kubeconfig, controlUrl: tailnet.controlUrl, apiKey });
});

afterAll(() => rig?.stop());

/**
 * The group of the golden file with additional addresses: pods share one network here, so each pod listens on its own
 * address.
 */
function group(name: string, network: number, spec: object = {}): object {
  const env = [
    `TAILCAST_KUBECONFIG=${gatewayKubeconfig}`,
    `TAILCAST_LISTEN=127.0.${network}.1$(POD_INDEX):8443`,
    'TAILCAST_OPS_LISTEN=off',
    'TAILCAST_DRAIN_SECONDS=1',
  ];
  return {
    ...PROXY_GROUP,
    metadata: { name, annotations: { [ANNOTATIONS.env]: env.join('\n') } },
    spec: { ...PROXY_GROUP.spec, ...spec },
  };
}

const get = (name: string): Promise<Group> => cluster.api('GET', `${GROUPS}/${name}`) as Promise<Group>;
const change = (name: string, spec: object): Promise<unknown> =>
  cluster.api('PATCH', `${GROUPS}/${name}`, { spec });

async function names(path: string, name: string): Promise<readonly string[]> {
  const query = `labelSelector=app.kubernetes.io/name%3Dproxygroup,app.kubernetes.io/instance%3D${name}`;
  const list = (await cluster.api('GET', `${path}?${query}`)) as Listed;
  return list.items.map(({ metadata }) => metadata.name).toSorted();
}

async function nodes(prefix: string): Promise<readonly string[]> {
  const list = ((await tailnet.admin('nodes', 'list')) as readonly { given_name: string }[] | null) ?? [];
  return list
    .map((node) => node.given_name)
    .filter((name) => name.startsWith(prefix))
    .toSorted();
}

/** Waits until every condition holds for this number of replicas, and headscale knows exactly these nodes. */
function converged(name: string, replicas: number): Promise<Group> {
  return rig.until(
    `${name} with ${replicas} replicas`,
    async () => {
      const object = await get(name);
      const conditions = object.status?.conditions ?? [];
      const wanted = Array.from({ length: replicas }, (_, index) => `${name}-${index}`);
      const devices = (object.status?.devices ?? []).map(({ hostname }) => hostname).toSorted();
      const joined = await nodes(`${name}-`);
      const complete =
        conditions.length === 4 &&
        conditions.every(({ status }) => status === 'True') &&
        conditions.some(({ message }) => message.startsWith(`${replicas}/${replicas} proxy backends`)) &&
        devices.join() === wanted.join() &&
        joined.join() === wanted.join();
      if (complete) return object;
      throw new Error(JSON.stringify({ status: object.status, joined }));
    },
    { timeoutMs: 60_000 },
  );
}

function gone(name: string): Promise<true> {
  return rig.until(
    `${name} is gone`,
    async () => {
      const paths = [
        `${CORE}/secrets`,
        `${CORE}/serviceaccounts`,
        `${CORE}/pods`,
        `${APPS}/statefulsets`,
        `${RBAC}/roles`,
        `${RBAC}/rolebindings`,
        `/apis/policy/v1/namespaces/${NAMESPACE}/poddisruptionbudgets`,
      ];
      const left = (await Promise.all(paths.map((path) => names(path, name)))).flat();
      const exists = await get(name).then(
        () => true,
        () => false,
      );
      return !exists && left.length === 0 && (await nodes(`${name}-`)).length === 0 ? true : undefined;
    },
    { timeoutMs: 60_000 },
  );
}

/** Returns the CA that a replica created, from the folder that replaces the volume of its PersistentVolumeClaim. */
function authorityOf(pod: string): Buffer {
  const path = (readdirSync(rig.folder, { recursive: true, encoding: 'utf8' }) as readonly string[]).find(
    (one) => one.includes(`claims/${NAMESPACE}/state-${pod}/`) && one.endsWith('/ca.crt'),
  );
  if (path === undefined) throw new Error(`${pod} has no authority`);
  return readFileSync(join(rig.folder, path));
}

/** Returns the identity of alice at the API server, through a replica. */
async function whoAmI(
  object: Group,
  pod: string,
  headers: Readonly<Record<string, string>> = {},
): Promise<{ readonly username: string; readonly groups: readonly string[] }> {
  const device = object.status?.devices?.find(({ hostname }) => hostname === pod);
  const socket = await tailnet.node('alice').connect(device?.tailnetIPs?.[0] ?? '', 443);
  const servername = `${pod}.lab.ts.net`;
  const tls = connectTls({ socket, ca: authorityOf(pod), servername: pod });
  await once(tls, 'secureConnect');
  const sent = request({
    method: 'POST',
    path: '/apis/authentication.k8s.io/v1/selfsubjectreviews',
    createConnection: () => tls,
    headers: { host: servername, 'content-type': 'application/json', connection: 'close', ...headers },
  });
  sent.end(JSON.stringify({ apiVersion: 'authentication.k8s.io/v1', kind: 'SelfSubjectReview' }));
  const [response] = (await once(sent, 'response')) as [IncomingMessage];
  const text = (await response.toArray()).join('');
  if (response.statusCode !== 201) throw new Error(text);
  return (JSON.parse(text) as { status: { userInfo: { username: string; groups: string[] } } }).status
    .userInfo;
}

describe('a ProxyGroup of type kube-apiserver', () => {
  it('becomes gateways of the tailnet, each under its own name', async () => {
    await cluster.api('POST', `${GROUPS}?fieldValidation=Strict`, group('prod', 71));
    const object = await converged('prod', 2);
    expect(object.metadata.finalizers).toEqual(['tailscale.com/kube-apiserver-finalizer']);
    expect(object.status?.url).toBe('https://prod-0.lab.ts.net');
    expect(
      object.status?.conditions?.find(({ type }) => type === 'KubeAPIServerProxyConfigured')?.message,
    ).toContain('the control server has no Services');
    expect(await names(`${CORE}/serviceaccounts`, 'prod')).toEqual([]);
    expect(await names(`${CORE}/secrets`, 'prod')).toEqual([
      'prod-0',
      'prod-1',
      'prod-auth-0',
      'prod-auth-1',
    ]);
  });

  it('serves callers through every replica as whom the tailnet says they are', async () => {
    const object = await get('prod');
    for (const pod of ['prod-0', 'prod-1']) {
      const caller = await rig.until(`${pod} answers`, () => whoAmI(object, pod));
      expect(caller.username).toBe('alice@example.com');
      expect(caller.groups).toContain('sre');
    }
  });

  it('grows and shrinks without a restart, also while its operator is killed, and leaves no node behind', async () => {
    const pod = async (): Promise<string> =>
      ((await cluster.api('GET', `${CORE}/pods/prod-0`)) as { metadata: { uid: string } }).metadata.uid;
    const before = await pod();
    for (const replicas of [1, 3, 1]) {
      await change('prod', { replicas });
      await operator.stop();
      operator.start();
    }
    await converged('prod', 1);
    expect(await pod()).toBe(before);
    expect(await names(`${CORE}/secrets`, 'prod')).toEqual(['prod-0', 'prod-auth-0']);
  });

  it('passes on the credentials of clients in noauth mode, under an account that may keep its state only', async () => {
    await cluster.api('POST', GROUPS, group('plain', 72, { replicas: 1, kubeAPIServer: { mode: 'noauth' } }));
    const object = await converged('plain', 1);
    expect(await names(`${CORE}/serviceaccounts`, 'plain')).toEqual(['plain']);
    const caller = await rig.until('the gateway answers', () =>
      whoAmI(object, 'plain-0', { authorization: `Bearer ${cluster.tokens.viewer}` }),
    );
    expect(caller.username).not.toBe('alice@example.com');
    const role = (await cluster.api('GET', `${RBAC}/roles/plain`)) as { rules: object[] };
    expect(role.rules).toMatchObject([
      { resources: ['secrets'], resourceNames: ['plain-0'] },
      { resources: ['events'] },
    ]);
  });

  it('of type ingress reports that it is not served without addresses, and goes when it is deleted', async () => {
    const ingress = { ...PROXY_GROUP, metadata: { name: 'ingress' }, spec: { type: 'ingress' } };
    await cluster.api('POST', GROUPS, ingress);
    const object = await rig.until('a word', async () => {
      const read = await get('ingress');
      return read.status?.conditions === undefined ? undefined : read;
    });
    expect(object.status?.conditions).toMatchObject([
      { type: 'ProxyGroupReady', status: 'False', reason: 'ProxyGroupNotServed' },
    ]);
    expect(await names(`${CORE}/secrets`, 'ingress')).toEqual([]);
    await cluster.api('DELETE', `${GROUPS}/ingress`);
    await gone('ingress');
  });

  it('takes everything away when it is deleted', async () => {
    for (const name of ['prod', 'plain']) await cluster.api('DELETE', `${GROUPS}/${name}`);
    await gone('prod');
    await gone('plain');
    expect(await nodes('')).toEqual(['alice']);
  });
});
