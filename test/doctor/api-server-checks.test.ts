import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { apiServerChecks } from '../../src/doctor/api-server-checks.ts';
import { runChecks, type CheckFinding } from '../../src/doctor/checks.ts';
import { permissionChecks } from '../../src/doctor/permission-checks.ts';
import { startApiServerDouble, type ApiServerDouble } from '../support/api-server-double.ts';
import { createTestAuthority } from '../support/issued-certificates.ts';

let double: ApiServerDouble;

beforeEach(async () => {
  double = await startApiServerDouble();
});
afterEach(() => double.close());

async function examine(
  options: { apiServer?: ApiServerDouble['apiServer']; mode?: 'auth' | 'noauth'; podName?: string } = {},
): Promise<Record<string, CheckFinding>> {
  const source = apiServerChecks({
    open: () => Promise.resolve(options.apiServer ?? double.apiServer),
    unixMs: Date.now,
  });
  const findings = await runChecks(
    [
      ...source.checks,
      ...permissionChecks({
        client: source.client,
        mode: options.mode ?? 'auth',
        namespace: 'default',
        podName: options.podName,
      }),
    ],
    new AbortController().signal,
  );
  return Object.fromEntries(findings.map((finding) => [finding.id, finding]));
}

describe('the API server checks', () => {
  it('find nothing to complain about in a good set-up', async () => {
    const findings = await examine();
    expect(Object.values(findings).map(({ status }) => status)).toEqual(['ok', 'ok', 'ok', 'ok', 'ok']);
    expect(findings['api-server']?.summary).toContain('v1.36.3');
    expect(findings['credential']?.summary).toBe('accepted as system:serviceaccount:tailcast:gateway');
  });

  it('say what to do when nobody answers', async () => {
    await double.close();
    const findings = await examine();
    expect(findings['api-server']).toMatchObject({
      status: 'failed',
      summary: expect.stringContaining('connection refused'),
      remedy: expect.stringContaining('NetworkPolicy'),
    });
    expect(findings['may-impersonate']?.status).toBe('skipped');
    double = await startApiServerDouble();
  });

  it('say what to do when its certificate is not trusted', async () => {
    const { caPem } = await createTestAuthority();
    const apiServer = { ...double.apiServer, tls: { ...double.apiServer.tls, ca: caPem } };
    expect((await examine({ apiServer }))['api-server']).toMatchObject({
      status: 'failed',
      summary: expect.stringContaining('add its CA to the kubeconfig'),
    });
  });

  it('notice that something else answers', async () => {
    double.version = { hello: 'world' };
    expect((await examine())['api-server']).toMatchObject({
      status: 'failed',
      remedy: expect.stringContaining('address of the Kubernetes API server'),
    });
  });

  it('warn of a version that is not tested', async () => {
    double.version = { major: '1', minor: '24+', gitVersion: 'v1.24.9-eks' };
    expect((await examine())['api-server']).toMatchObject({
      status: 'warning',
      remedy: expect.stringContaining('1.29'),
    });
  });

  it('tell a refused credential from a missing one', async () => {
    double.failure = 401;
    expect((await examine())['credential']).toMatchObject({
      status: 'failed',
      remedy: expect.stringContaining('renew it'),
    });
    double.failure = undefined;
    double.username = 'system:anonymous';
    expect((await examine())['credential']).toMatchObject({
      status: 'failed',
      remedy: expect.stringContaining('automountServiceAccountToken'),
    });
  });

  it.each([
    [-10_000, 'warning', 'ahead of'],
    [10_000, 'warning', 'behind'],
    [-300_000, 'failed', 'ahead of'],
    [300_000, 'failed', 'behind'],
    [500, 'ok', 'agrees'],
    [-1500, 'ok', ''],
  ])('compare the clocks: %d ms', async (skewMs, status, word) => {
    double.skewMs = skewMs;
    const clock = (await examine())['clock'];
    expect(clock).toMatchObject({ status, summary: expect.stringContaining(word) });
    if (status !== 'ok') expect(clock).toMatchObject({ remedy: expect.stringContaining('NTP') });
  });
});

describe('the permission checks', () => {
  it('fail when impersonation is not allowed', async () => {
    double.allowed = () => false;
    double.rules = [];
    expect((await examine())['may-impersonate']).toMatchObject({
      status: 'failed',
      summary: 'the account may not impersonate users and groups',
      remedy: expect.stringContaining('deploy/rbac/gateway.yaml'),
    });
  });

  it('accept a rule that is limited to names', async () => {
    double.allowed = ({ verb, resource }) => verb === 'impersonate' && resource === 'users';
    double.rules = [
      { verbs: ['impersonate'], apiGroups: [''], resources: ['groups'], resourceNames: ['sre', 'dev'] },
    ];
    expect((await examine())['may-impersonate']).toMatchObject({
      status: 'ok',
      summary: 'only groups sre, dev',
    });
  });

  it.each([
    [{ verb: '*', resource: '*' }, 'do everything'],
    [{ verb: 'get', resource: 'secrets' }, 'get secrets'],
    [{ verb: 'create', resource: 'pods', subresource: 'exec' }, 'create pods/exec'],
    [{ verb: 'impersonate', resource: 'serviceaccounts' }, 'impersonate serviceaccounts'],
    [
      { verb: 'create', resource: 'clusterrolebindings' },
      'create clusterrolebindings.rbac.authorization.k8s.io',
    ],
  ])('fail when the account may %j', async (dangerous, words) => {
    const before = double.allowed;
    double.allowed = (access) =>
      before(access) ||
      (access.verb === dangerous.verb &&
        access.resource === dangerous.resource &&
        access.subresource === (dangerous as { subresource?: string }).subresource);
    expect((await examine())['may-nothing-else']).toMatchObject({
      status: 'failed',
      summary: `the account may ${words} in every namespace`,
      remedy: expect.stringContaining('remove these rights'),
    });
  });

  it('warn of what else it may in its namespace', async () => {
    double.rules = [...double.rules, { verbs: ['get', 'list'], apiGroups: [''], resources: ['configmaps'] }];
    expect((await examine())['may-nothing-else']).toMatchObject({
      status: 'warning',
      summary: 'in namespace default the account may also get/list configmaps',
      remedy: expect.stringContaining('remove these rights'),
    });
  });

  it('accept the Secrets that keep the keys of the nodes of its own pods, and no others', async () => {
    const rule = { verbs: ['get', 'patch'], apiGroups: [''], resources: ['secrets'] };
    double.rules = [...double.rules, { ...rule, resourceNames: ['tc-gateway-0', 'tc-gateway-1'] }];
    expect((await examine({ podName: 'tc-gateway-1' }))['may-nothing-else']?.status).toBe('ok');
    expect((await examine({ podName: 'other-0' }))['may-nothing-else']?.status).toBe('warning');
    double.rules = [...double.rules, rule];
    expect((await examine({ podName: 'tc-gateway-1' }))['may-nothing-else']?.status).toBe('warning');
  });

  it('say when the API server cannot list everything', async () => {
    double.incomplete = true;
    expect((await examine())['may-nothing-else']?.summary).toBe('as far as the API server can list it');
  });

  it('have nothing to ask in noauth mode', async () => {
    const findings = await examine({ mode: 'noauth' });
    expect(findings['may-impersonate']).toMatchObject({
      status: 'skipped',
      summary: expect.stringContaining('client certificates do not work through a gateway') as unknown,
    });
    expect(findings['may-nothing-else']?.status).toBe('skipped');
    expect(double.requests.some((request) => request.includes('authorization'))).toBe(false);
  });
});
