/** ProxyGroups whose clusters are described by Secrets. */
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { parseClusterFile } from '../../../src/compose/cluster-file.ts';
import { ownerController } from '../../../src/operator/controllers.ts';
import { secretSelector } from '../../../src/operator/proxy-group/clusters.ts';
import { createProxyGroupReconciler } from '../../../src/operator/proxy-group/reconcile.ts';
import { ANNOTATIONS } from '../../../src/operator/proxy-group/resource.ts';
import type { Condition } from '../../../src/operator/workload/status.ts';
import { viewOf } from '../../../src/operator/object-cache.ts';
import { createBench, OWN, settle, TAILSCALE, type Bench } from '../bench.ts';
import { proxyGroupObject } from './proxy-groups.ts';
import { OPTIONS } from '../recorder/recorders.ts';

const GROUP = `${TAILSCALE}/proxygroups/prod`;
const CONFIG = `${OWN}/configmaps/prod-clusters`;
const ROLE = '/apis/rbac.authorization.k8s.io/v1/namespaces/tailcast/roles/prod';
const SET = '/apis/apps/v1/namespaces/tailcast/statefulsets/prod';
const CAPI = 'cluster.x-k8s.io/cluster-name';

let bench: Bench;
beforeEach(async () => {
  bench = await createBench();
  bench.api.put(`${OWN}/serviceaccounts/kube-apiserver-auth-proxy`, {
    apiVersion: 'v1',
    kind: 'ServiceAccount',
    metadata: { name: 'kube-apiserver-auth-proxy', namespace: 'tailcast' },
  });
});
afterEach(() => bench.close());

const run = (leaving = false): Promise<number | undefined> =>
  createProxyGroupReconciler({ ...bench.deps(), leaving }).reconcile('prod');

/** Stores the ProxyGroup with these annotations. */
function annotate(annotations: Readonly<Record<string, string>>, more: object = {}): void {
  const before = bench.object(GROUP);
  const metadata = { ...before?.metadata, annotations, ...more };
  bench.api.put(GROUP, { ...proxyGroupObject({}, metadata), status: before?.['status'] });
}

const kubeconfig = (user: object = { token: 'secret-token' }, cluster: object = {}): string =>
  JSON.stringify({
    clusters: [{ name: 'k', cluster: { server: 'https://192.0.2.7:6443', ...cluster } }],
    contexts: [{ name: 'c', context: { cluster: 'k', user: 'u' } }],
    users: [{ name: 'u', user }],
  });

function secret(
  name: string,
  labels: Readonly<Record<string, string>>,
  data: Readonly<Record<string, string>>,
  more: { readonly namespace?: string; readonly creationTimestamp?: string } = {},
): void {
  const { namespace = 'tailcast', ...metadata } = more;
  bench.api.put(`/api/v1/namespaces/${namespace}/secrets/${name}`, {
    apiVersion: 'v1',
    kind: 'Secret',
    metadata: { name, namespace, labels, ...metadata },
    data: Object.fromEntries(
      Object.entries(data).map(([key, value]) => [key, Buffer.from(value).toString('base64')]),
    ),
  });
}

/** A Secret in the format of Cluster API, with the label `env=prod`. */
const capi = (cluster: string, value = kubeconfig(), more: Parameters<typeof secret>[3] = {}): void =>
  secret(`${cluster}-kubeconfig`, { [CAPI]: cluster, env: 'prod' }, { value }, more);

const conditions = (): Readonly<Record<string, Condition>> =>
  Object.fromEntries(bench.conditions(GROUP).map((one) => [one.type, one]));
const verdict = () => conditions()['KubeAPIServerProxyClusters'];
const file = () => {
  const { data } = bench.object(CONFIG) as unknown as { data: Record<string, string> };
  return parseClusterFile(data['clusters.yaml'] ?? '', 'clusters.yaml');
};
/** Returns the names of the Secrets that the pods may read, except the Secrets of the pods' own tailnet nodes. */
const readable = (): readonly string[] =>
  (bench.object(ROLE)!['rules'] as { resources: string[]; resourceNames?: string[]; verbs: string[] }[])
    .filter(({ resources, verbs }) => resources.includes('secrets') && verbs.join() === 'get')
    .flatMap(({ resourceNames = ['every Secret'] }) => resourceNames);

describe('a ProxyGroup with clusters of Secrets', () => {
  it('serves its own cluster and those of the selected Secrets, and may read only these Secrets', async () => {
    capi('dev');
    secret(
      'argo',
      { 'argocd.argoproj.io/secret-type': 'cluster', env: 'prod' },
      { name: 'stage', server: 'https://192.0.2.8:6443', config: '{"bearerToken":"secret-token"}' },
    );
    // Secrets that are not selected: the first has another label, the second lacks the label of a format, the third
    // contains a key of Cluster API, and the fourth is in another namespace
    secret('other-kubeconfig', { [CAPI]: 'other', env: 'test' }, { value: kubeconfig() });
    secret('credentials', { env: 'prod' }, { value: kubeconfig() });
    secret('dev-ca', { [CAPI]: 'dev', env: 'prod' }, { 'tls.key': 'secret-token' });
    capi('foreign', kubeconfig(), { namespace: 'default' });
    annotate({ [ANNOTATIONS.clusters]: 'env=prod' });
    await run();
    const own = { name: 'prod', inCluster: true };
    expect(file()).toMatchObject({
      clusters: [own],
      discover: [
        { objects: 'capi', namespace: 'tailcast', names: ['dev-kubeconfig'] },
        { objects: 'argocd', namespace: 'tailcast', names: ['argo'] },
      ],
      unscopedRules: 'none',
    });
    expect(readable()).toEqual(['argo', 'dev-kubeconfig']);
    expect(verdict()).toMatchObject({ status: 'True', message: 'serves prod and dev, stage' });
    expect(JSON.stringify(bench.object(SET))).toContain('/etc/tailcast-clusters/clusters.yaml');
    expect(
      JSON.stringify([...bench.api.objects].filter(([path]) => !path.includes('/secrets/'))),
    ).not.toContain('secret-token');
  });

  it('selects by the label of the format first, whatever its own selector is', () => {
    expect(secretSelector('argocd', 'env\u0000')).toBe('argocd.argoproj.io/secret-type=cluster,env\u0000');
  });

  it('follows the Secrets without a restart, and is not written again when nothing changes', async () => {
    capi('dev');
    annotate({ [ANNOTATIONS.clusters]: CAPI });
    await run();
    const generation = bench.object(SET)?.metadata.generation;
    capi('new');
    await run();
    expect(readable()).toEqual(['dev-kubeconfig', 'new-kubeconfig']);
    const version = bench.object(GROUP)?.metadata.resourceVersion;
    await run();
    expect(bench.object(GROUP)?.metadata.resourceVersion).toBe(version);
    for (const name of ['dev', 'new']) bench.api.remove(`${OWN}/secrets/${name}-kubeconfig`);
    await run();
    expect(readable()).toEqual([]);
    expect(file().discover).toEqual([]);
    expect(verdict()).toMatchObject({
      status: 'False',
      reason: 'KubeAPIServerProxyClustersMissing',
      message: 'serves prod and no cluster of a Secret',
    });
    expect(bench.object(SET)?.metadata.generation).toBe(generation);
  });

  it('reports refused Secrets without their content, and serves the others', async () => {
    capi('dev', kubeconfig(), { creationTimestamp: '2026-01-01T00:00:00Z' });
    secret(
      'a-thief',
      { [CAPI]: 'dev' },
      { value: kubeconfig() },
      { creationTimestamp: '2026-02-01T00:00:00Z' },
    );
    capi('prod');
    capi(
      'runs',
      kubeconfig({ exec: { apiVersion: 'client.authentication.k8s.io/v1', command: 'secret-token' } }),
    );
    capi('broken', '"secret-token": "secret-token" secret-token');
    annotate({ [ANNOTATIONS.clusters]: CAPI });
    await run();
    const { status, message } = verdict()!;
    expect(status).toBe('False');
    expect(message).toMatch(/^serves prod and dev; refused: /);
    expect(message).toContain('Secret a-thief: the name dev belongs to Secret dev-kubeconfig');
    expect(message).toContain("Secret prod-kubeconfig: the name prod belongs to the group's own cluster");
    expect(message).toContain('Secret tailcast/runs-kubeconfig: exec is not allowed in an API object');
    expect(message).toContain('Secret broken-kubeconfig: its content is not a valid kubeconfig');
    expect(message).not.toContain('secret-token');
    // gateways keep the last good state of a Secret whose content is invalid
    expect(readable()).toEqual(['broken-kubeconfig', 'dev-kubeconfig', 'runs-kubeconfig']);
  });

  it.each([
    ['env in', '"env in" is not a label selector'],
    ['env=prod\u0000,', '"env=prod'],
    ['every Secret', '"every Secret" is not a label selector'],
  ])('changes nothing while its selector is invalid: %j', async (selector, sentence) => {
    capi('dev');
    annotate({ [ANNOTATIONS.clusters]: CAPI });
    await run();
    const before = [ROLE, CONFIG, SET].map((path) => bench.object(path)?.metadata.resourceVersion);
    annotate({ [ANNOTATIONS.clusters]: selector });
    capi('new');
    await run();
    expect(conditions()['KubeAPIServerProxyValid']).toMatchObject({
      status: 'False',
      message: expect.stringContaining(`tailcast.dev/clusters: ${sentence}`),
    });
    expect([ROLE, CONFIG, SET].map((path) => bench.object(path)?.metadata.resourceVersion)).toEqual(before);
  });

  it('refuses two sources of its clusters', async () => {
    annotate({ [ANNOTATIONS.clusters]: CAPI, [ANNOTATIONS.env]: 'TAILCAST_CLUSTERS=/etc/clusters.yaml' });
    await run();
    expect(conditions()['KubeAPIServerProxyValid']?.message).toContain('exclude each other');
    expect(bench.object(SET)).toBeUndefined();
  });

  it('loses the rights, the file and the condition with the annotation', async () => {
    capi('dev');
    annotate({ [ANNOTATIONS.clusters]: CAPI });
    await run();
    annotate({});
    await run();
    expect(readable()).toEqual([]);
    expect(bench.object(CONFIG)).toBeUndefined();
    expect(verdict()).toBeUndefined();
    expect(JSON.stringify(bench.object(SET))).not.toContain('tailcast-clusters');
    expect(conditions()['KubeAPIServerProxyValid']).toMatchObject({ status: 'True' });
  });

  it.each(['deleted', 'left'])('leaves no rights and no file when it is %s', async (how) => {
    capi('dev');
    annotate({ [ANNOTATIONS.clusters]: CAPI });
    await run();
    if (how === 'deleted') bench.markDeleted(GROUP);
    await settle(() => run(how === 'left'));
    expect(bench.object(CONFIG)).toBeUndefined();
    expect(bench.object(`${OWN}/secrets/dev-kubeconfig`)).toBeDefined();
    expect(bench.object(ROLE) === undefined || how === 'deleted').toBe(true);
  });

  it('keeps the kubeconfig of its settings for its own cluster', async () => {
    annotate({ [ANNOTATIONS.clusters]: CAPI, [ANNOTATIONS.env]: 'TAILCAST_KUBECONFIG=/etc/own.yaml' });
    await run();
    expect(file().clusters).toMatchObject([{ name: 'prod', kubeconfig: { file: '/etc/own.yaml' } }]);
  });

  it('is reconciled when a labelled Secret changes, and other groups are not', () => {
    const { others } = ownerController('ProxyGroup', { reconcile: async () => undefined }, OPTIONS);
    const watch = others.find(({ labelSelector }) => labelSelector === CAPI)!;
    const plain = proxyGroupObject({}, { name: 'plain' });
    const clustered = proxyGroupObject({}, { annotations: { [ANNOTATIONS.clusters]: CAPI } });
    const { resources } = ownerController('ProxyGroup', { reconcile: async () => undefined }, OPTIONS);
    const cached = viewOf([[resources, [plain, clustered]]]);
    expect(watch.namespace).toBe('tailcast');
    expect(watch.names(plain, cached)).toEqual(['prod']);
  });
});
