/**
 * Clusters that API objects describe. An object may name a server and credentials, but must not make the gateway read
 * files, run programs or connect to its own machine.
 */
import { describe, expect, it } from 'vitest';
import { describeCluster, isForeignHost } from '../../src/kube/cluster-objects.ts';
import { guardedLookup } from '../../src/kube/guarded-lookup.ts';
import type { KubeconfigContext } from '../../src/kube/kubeconfig.ts';

const SERVER = 'https://api.prod.example.com:6443';
const base64 = (text: string): string => Buffer.from(text).toString('base64');

const secret = (data: Readonly<Record<string, string>>, labels?: object): object => ({
  metadata: { name: 'prod-kubeconfig', namespace: 'capi', ...(labels === undefined ? {} : { labels }) },
  data: Object.fromEntries(Object.entries(data).map(([key, value]) => [key, base64(value)])),
});

const kubeconfig = (cluster: object = {}, user: object = { token: 't' }): string =>
  JSON.stringify({
    'current-context': 'c',
    clusters: [{ name: 'k', cluster: { server: SERVER, ...cluster } }],
    contexts: [{ name: 'c', context: { cluster: 'k', user: 'u' } }],
    users: [{ name: 'u', user }],
  });

const capi = (cluster?: object, user?: object) =>
  describeCluster('capi', secret({ value: kubeconfig(cluster, user) }));

const argocd = (config: unknown, server = SERVER) =>
  describeCluster(
    'argocd',
    secret({ name: 'prod', server, config: typeof config === 'string' ? config : JSON.stringify(config) }),
  );

const USERS = new Map<string, KubeconfigContext['user']>([
  ['gke', { file: '/etc/tailcast/users.yaml', value: { tokenFile: '/var/run/token' } }],
]);
const profile = (cluster: object, provider = 'gke') =>
  describeCluster(
    'clusterProfile',
    {
      metadata: { name: 'prod', namespace: 'fleet' },
      status: { accessProviders: [{ name: provider, cluster: { server: SERVER, ...cluster } }] },
    },
    USERS,
  );

describe('a Secret of Cluster API', () => {
  it('names the cluster by its label, and without one by its own name', () => {
    const labels = { 'cluster.x-k8s.io/cluster-name': 'east' };
    const labelled = describeCluster('capi', secret({ value: kubeconfig() }, labels));
    expect(labelled?.name).toBe('east');
    expect(labelled?.context.cluster.value.server).toBe(SERVER);
    expect(labelled?.context.user.value.token).toBe('t');
    expect(capi()?.name).toBe('prod');
    expect(describeCluster('capi', secret({ 'admin.conf': kubeconfig() }))?.name).toBe('prod');
  });

  it('without a kubeconfig describes no cluster', () => {
    expect(describeCluster('capi', secret({}))).toBeUndefined();
    expect(describeCluster('capi', { metadata: { name: 'x' }, data: null })).toBeUndefined();
  });

  it.each([
    ['keys', `{${Array.from({ length: 20_000 }, (_, at) => `k${at}`).join()}}`],
    ['lines', Array.from({ length: 20_000 }, (_, at) => `k${at}: 1`).join('\n')],
    ['brackets', '['.repeat(20_000)],
    ['quoted texts', '""'.repeat(20_000)],
  ])('with thousands of %s is refused before it is parsed', (_what, value) => {
    const startedAt = performance.now();
    expect(() => describeCluster('capi', secret({ value }))).toThrow('the kubeconfig has too many entries');
    expect(performance.now() - startedAt).toBeLessThan(500);
  });

  it.each([
    ['certificate-authority', { 'certificate-authority': '/etc/shadow' }, {}],
    ['proxy-url', { 'proxy-url': 'socks5://127.0.0.1:1055' }, {}],
    ['insecure-skip-tls-verify', { 'insecure-skip-tls-verify': true }, {}],
    ['tokenFile', {}, { tokenFile: '/var/run/secrets/kubernetes.io/serviceaccount/token' }],
    ['client-certificate', {}, { 'client-certificate': '/a', 'client-key': '/b' }],
    ['client-key', {}, { 'client-certificate-data': base64('x'), 'client-key': '/b' }],
    ['exec', {}, { exec: { apiVersion: 'client.authentication.k8s.io/v1', command: 'sh' } }],
    ['auth-provider', {}, { 'auth-provider': { name: 'oidc', config: {} } }],
    ['as', {}, { as: 'system:admin' }],
  ])('is refused with %s', (field, cluster, user) => {
    expect(() => capi(cluster, { token: 't', ...user })).toThrow(`${field} is not allowed in an API object`);
    expect(() => capi(cluster, { token: 't', ...user })).toThrow('Secret capi/prod-kubeconfig');
  });

  it.each([
    ['no mapping', '- 1'],
    ['no YAML', '{'],
    ['an unknown context', kubeconfig().replace('"c"', '"d"')],
    ['many aliases', `a: &a [1]\n${'b: [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a]\n'.repeat(200)}`],
    ['more than 256 KiB', `# ${'x'.repeat(300_000)}\n${kubeconfig()}`],
  ])('is refused: %s', (_, value) => {
    expect(() => describeCluster('capi', secret({ value }))).toThrow('Secret capi/prod-kubeconfig');
  });
});

describe('a Secret of Argo CD', () => {
  it('contains the server and the credentials', () => {
    const found = argocd({
      bearerToken: 'secret',
      tlsClientConfig: {
        serverName: 'k8s',
        caData: base64('ca'),
        certData: base64('c'),
        keyData: base64('k'),
      },
    });
    expect(found?.name).toBe('prod');
    expect(found?.context.cluster.value).toEqual({
      server: SERVER,
      'certificate-authority-data': base64('ca'),
      'tls-server-name': 'k8s',
    });
    expect(found?.context.user.value).toMatchObject({ token: 'secret', 'client-key-data': base64('k') });
    expect(describeCluster('argocd', secret({ name: 'prod' }))).toBeUndefined();
  });

  it.each([
    ['execProviderConfig', { execProviderConfig: { command: 'sh' } }],
    ['awsAuthConfig', { awsAuthConfig: { clusterName: 'x' } }],
    ['proxyUrl', { proxyUrl: 'http://127.0.0.1' }],
    ['insecure-skip-tls-verify', { tlsClientConfig: { insecure: true } }],
    ['config is not JSON', 'bearerToken: x'],
    ['bearerToken', { bearerToken: 7 }],
    ['config', '[]'],
  ])('is refused: %s', (text, config) => {
    expect(() => argocd(config)).toThrow(text);
  });

  it('keeps its credential out of the error', () => {
    expect(() => argocd({ bearerToken: 'hidden', proxyUrl: 'x' })).not.toThrow('hidden');
    expect(() => argocd('{"bearerToken":"hidden"')).not.toThrow('hidden');
  });
});

describe('a ClusterProfile', () => {
  it('gets the credentials of its access provider from the configuration of the gateway', () => {
    const found = profile({ 'certificate-authority-data': base64('ca') });
    expect(found?.name).toBe('prod');
    expect(found?.context.cluster.value.server).toBe(SERVER);
    expect(found?.context.user).toBe(USERS.get('gke'));
    expect(found?.context.userName).toBe('gke');
  });

  it('of an unknown provider describes no cluster', () => {
    expect(profile({}, 'eks')).toBeUndefined();
    expect(profile({}, '__proto__')).toBeUndefined();
    expect(describeCluster('clusterProfile', { metadata: { name: 'prod' } }, USERS)).toBeUndefined();
  });

  it.each([
    ['certificate-authority', { 'certificate-authority': '/etc/ca' }],
    ['proxy-url', { 'proxy-url': 'http://proxy' }],
    ['insecure-skip-tls-verify', { 'insecure-skip-tls-verify': true }],
    ['the server 127.0.0.1', { server: 'https://127.0.0.1:6443' }],
  ])('is refused with %s', (text, cluster) => {
    expect(() => profile(cluster)).toThrow(text);
  });

  it('does not take credentials from its extensions', () => {
    const extension = { name: 'client.authentication.k8s.io/exec', extension: { command: 'sh' } };
    expect(JSON.stringify(profile({ extensions: [extension] }))).not.toContain('command');
  });
});

describe('a server in an API object', () => {
  it.each([
    'https://127.0.0.1:6443',
    'https://127.1',
    'https://2130706433',
    'https://0x7f.1',
    'https://0',
    'https://localhost:6443',
    'https://LOCALHOST.',
    'https://api.localhost',
    'https://[::1]:6443',
    'https://[::ffff:127.0.0.1]',
    'https://[::ffff:a9fe:a9fe]',
    'https://[fe80::1]',
    'https://[64:ff9b::7f00:1]',
    'https://169.254.169.254',
    'https://[fd00:ec2::254]',
    'https://100.100.100.100',
    'https://224.0.0.1',
    '127.0.0.1:6443',
  ])('must not be an address of the machine or its link: %s', (server) => {
    for (const describe of [() => capi({ server }), () => argocd({}, server), () => profile({ server })])
      expect(describe).toThrow("is an address of the gateway's own machine or link");
  });

  it.each(['https://10.0.0.1:6443', 'https://100.64.0.7', 'https://[fd7a:115c:a1e0::7]', SERVER])(
    'may be %s',
    (server) => {
      expect(capi({ server })?.context.cluster.value.server).toBe(server);
    },
  );

  it('must not resolve to such an address either', async () => {
    const { promise, resolve } = Promise.withResolvers<Error | null>();
    guardedLookup('localhost', {}, (error) => resolve(error));
    expect(String(await promise)).toContain("an address of the gateway's own machine or link");
    expect(isForeignHost('')).toBe(true);
  });
});

describe.each(['capi', 'argocd', 'clusterProfile'] as const)('an object of %s', (format) => {
  it.each([undefined, null, 7, 'text', [], {}, { metadata: {} }, { metadata: { name: 7 } }])(
    'with a wrong shape is refused: %j',
    (object) => {
      expect(() => describeCluster(format, object, USERS)).toThrow(/Secret|ClusterProfile/);
    },
  );

  it('with data of the wrong type is refused or describes no cluster', () => {
    const object = { metadata: { name: 'x' }, data: { value: 7 }, status: { accessProviders: 'x' } };
    expect(() => describeCluster(format, object, USERS)).toThrow(/Secret|ClusterProfile/);
  });
});
