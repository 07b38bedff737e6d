/**
 * With deploy/policy applied, a real API server rejects sessions without the gateway. The accounts of deploy/rbac have
 * exactly the rights of the gateway.
 */
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { runProgram } from '../../../src/cli/program.ts';
import { startGateway, type RunningGateway } from '../../../src/compose/gateway.ts';
import { createApiClient } from '../../../src/doctor/api-client.ts';
import { runChecks } from '../../../src/doctor/checks.ts';
import { permissionChecks } from '../../../src/doctor/permission-checks.ts';
import { createApiServer } from '../../../src/kube/api-server.ts';
import { createSilentLogger } from '../../../src/observe/logger.ts';
import type { Identity } from '../../../src/tailnet/identity.ts';
import { findKubectls, runKubectl, type Kubectl } from '../rig/kubectl.ts';
import { type Kubernetes, type KubernetesVersion, startKubernetes } from '../rig/kubernetes.ts';
import { type Rig, createRig } from '../rig/rig.ts';
import { accountToken, applyManifest, applyYaml, removeManifest } from '../support/manifests.ts';
import { identityOf } from '../support/product.ts';
import { gatewaySettings } from '../../support/settings.ts';

const kubectls = await findKubectls();

describe.each<readonly [KubernetesVersion, string]>([
  ['1.36', 'rbac/gateway.yaml'],
  ['1.34', 'rbac/gateway.yaml'],
  ['1.36', 'rbac/gateway-constrained.yaml'],
])('Kubernetes %s with %s', (version, rbac) => {
  let rig: Rig;
  let cluster: Kubernetes;
  let gateway: RunningGateway;
  let through: string;
  let token: string;
  const kubectl: Kubectl = kubectls.at(-1)!;

  beforeAll(async () => {
    rig = createRig();
    cluster = await startKubernetes(rig, { version, node: { webSockets: version === '1.36' } });
    await applyManifest(cluster, rbac);
    token = await accountToken(cluster);
    const identity: Identity = {
      ...identityOf({ login: 'lock-user' }, undefined),
      // uses its own group instead of `system:masters`, because constrained impersonation never allows that group
      capabilities: new Map([
        ['tailscale.com/cap/kubernetes', [{ impersonate: { groups: ['lock:admins'] } }]],
      ]),
    };
    await cluster.api('POST', '/apis/rbac.authorization.k8s.io/v1/clusterrolebindings', {
      apiVersion: 'rbac.authorization.k8s.io/v1',
      kind: 'ClusterRoleBinding',
      metadata: { name: 'lock-admins' },
      roleRef: { apiGroup: 'rbac.authorization.k8s.io', kind: 'ClusterRole', name: 'cluster-admin' },
      subjects: [{ kind: 'Group', name: 'lock:admins', apiGroup: 'rbac.authorization.k8s.io' }],
    });
    gateway = await startGateway({
      config: gatewaySettings({
        kubeconfig: cluster.kubeconfig('lock-gateway', { token }),
        stateDirectory: join(rig.folder, 'gateway'),
        auditExtras: true,
      }),
      environment: new Map(),
      log: createSilentLogger(),
      accessSink: process.stderr,
      identity,
    });
    rig.onStop(() => gateway.close(500));
    through = cluster.kubeconfig('lock-through', {
      server: `https://127.0.0.1:${gateway.port}`,
      ca: gateway.caPem ?? '',
      token: 'unused',
    });
    await cluster.api('POST', '/api/v1/namespaces/default/pods', {
      apiVersion: 'v1',
      kind: 'Pod',
      metadata: { name: 'locked' },
      spec: { containers: [{ name: 'main', image: 'local/shell', command: ['sleep', '1d'] }] },
    });
    await rig.until('the pod', async () => {
      const pod = (await cluster.api('GET', '/api/v1/namespaces/default/pods/locked')) as {
        status?: { phase?: string };
      };
      return pod.status?.phase === 'Running' || undefined;
    });
  });
  afterAll(() => rig.stop());

  const run = async (kubeconfig: string, ...args: readonly string[]) => {
    const { code, stdout, stderr } = await runKubectl(kubectl, args, { kubeconfig });
    return { code, stdout: stdout.toString(), stderr: stderr.toString() };
  };

  /** Returns the statuses of the checks of `doctor gateway` about rights. */
  async function rights(): Promise<readonly string[]> {
    const apiServer = await createApiServer({
      kubeconfig: [cluster.kubeconfig('lock-gateway', { token })],
      now: () => performance.now(),
      wallClock: Date.now,
    });
    const client = async () => createApiClient(apiServer, Date.now);
    const checks = permissionChecks({ client, mode: 'auth', namespace: 'default' });
    const findings = await runChecks(checks, AbortSignal.timeout(10_000));
    return findings.map(({ status }) => status);
  }

  it('the account may impersonate, and nothing else', async () => {
    expect(await rights()).toEqual(['ok', 'ok']);
  });

  it('the account can do nothing in its own name', async () => {
    const own = cluster.kubeconfig('lock-own', { token });
    for (const args of [
      ['get', 'pods'],
      ['get', 'secrets', '-A'],
      ['exec', 'locked', '--', 'id'],
    ]) {
      const { code, stderr } = await run(own, ...args);
      expect(code).toBe(1);
      expect(stderr).toContain('orbidden');
    }
  });

  it('requests and sessions through the gateway carry their ids into the audit log', async () => {
    expect(await run(through, 'exec', 'locked', '--', 'echo', 'hello')).toMatchObject({
      code: 0,
      stdout: 'hello\n',
    });
    await expect
      .poll(() => {
        const exec = cluster.audit().findLast(({ objectRef }) => objectRef?.subresource === 'exec');
        return exec?.impersonatedUser;
      })
      .toMatchObject({
        username: 'lock-user',
        extra: {
          'tailcast.dev/session': [expect.stringMatching(/^[0-9a-f-]{36}$/)],
          'tailcast.dev/node': [expect.any(String)],
        },
      });
  });

  describe('under lock', () => {
    beforeAll(async () => {
      await applyManifest(cluster, 'policy/sessions-through-gateway.yaml');
      // the API server enforces a new policy after a delay
      await rig.until('the lock', async () => {
        const { stderr } = await run(
          cluster.kubeconfig('lock-admin', { token: cluster.tokens.admin }),
          'exec',
          'locked',
          '--',
          'id',
        );
        return stderr.includes('session-recording gateway') || undefined;
      });
    });
    afterAll(() => removeManifest(cluster, 'policy/sessions-through-gateway.yaml'));

    it('a session at the API server is refused, even to a cluster admin, and the reason is said', async () => {
      const admin = cluster.kubeconfig('lock-admin', { token: cluster.tokens.admin });
      for (const args of [
        ['exec', 'locked', '--', 'id'],
        ['attach', 'locked'],
        ['port-forward', 'locked', ':80'],
        ['debug', 'locked', '--image=local/shell', '--', 'sh'],
        ['get', '--raw', '/api/v1/namespaces/default/pods/locked/proxy/'],
        ['get', '--raw', '/api/v1/namespaces/default/services/kubernetes/proxy/'],
      ]) {
        const { code, stderr } = await run(admin, ...args);
        expect(code, `${args.join(' ')}: ${stderr}`).toBe(1);
        expect(stderr).toContain('only served through the session-recording gateway');
      }
      const nodes = (await cluster.api('GET', '/api/v1/nodes')) as {
        items: { metadata: { name: string } }[];
      };
      const node = nodes.items[0]?.metadata.name ?? '';
      const { stderr } = await run(admin, 'get', '--raw', `/api/v1/nodes/${node}/proxy/pods`);
      expect(stderr).toContain('only served through the session-recording gateway');
    });

    it('ordinary requests at the API server go on', async () => {
      const admin = cluster.kubeconfig('lock-admin', { token: cluster.tokens.admin });
      expect(await run(admin, 'get', 'pods')).toMatchObject({ code: 0 });
    });

    it('sessions through the gateway go on', async () => {
      expect(await run(through, 'exec', 'locked', '--', 'echo', 'still')).toMatchObject({
        code: 0,
        stdout: 'still\n',
      });
    });

    it('an impersonator without the extras is refused', async () => {
      const impersonator = cluster.kubeconfig('lock-impersonator', { token: cluster.tokens.impersonator });
      const { code, stderr } = await run(
        impersonator,
        '--as=lock-user',
        '--as-group=lock:admins',
        'exec',
        'locked',
        '--',
        'id',
      );
      expect(code).toBe(1);
      expect(stderr).toContain('only served through the session-recording gateway');
    });

    it('breaking the glass works, and stands in the audit log', async () => {
      const admin = cluster.kubeconfig('lock-admin', { token: cluster.tokens.admin });
      const args = [
        '--as=lock-user',
        '--as-group=lock:admins',
        '--as-group=tailcast:break-glass',
        'exec',
        'locked',
        '--',
        'echo',
        'glass',
      ];
      expect(await run(admin, ...args)).toMatchObject({ code: 0, stdout: 'glass\n' });
      await expect
        .poll(() =>
          cluster
            .audit()
            .some(({ impersonatedUser }) => impersonatedUser?.groups?.includes('tailcast:break-glass')),
        )
        .toBe(true);
    });
  });

  it('an account with more rights is a reason to warn', async () => {
    await cluster.api('POST', '/apis/rbac.authorization.k8s.io/v1/clusterrolebindings', {
      apiVersion: 'rbac.authorization.k8s.io/v1',
      kind: 'ClusterRoleBinding',
      metadata: { name: 'lock-too-much' },
      roleRef: { apiGroup: 'rbac.authorization.k8s.io', kind: 'ClusterRole', name: 'view' },
      subjects: [{ kind: 'ServiceAccount', name: 'tailcast-gateway', namespace: 'tailcast' }],
    });
    // the authorizer sees a new binding after a delay
    await expect.poll(rights, { timeout: 20_000 }).toEqual(['ok', 'warning']);
  });
});

describe('Kubernetes 1.36 with the accounts of `tailcast policy rbac`', () => {
  let rig: Rig;
  let cluster: Kubernetes;
  const kubectl: Kubectl = kubectls.at(-1)!;

  beforeAll(async () => {
    rig = createRig();
    cluster = await startKubernetes(rig, { version: '1.36' });
  });
  afterAll(() => rig.stop());

  it.each([
    ['named', []],
    ['named-constrained', ['--constrained']],
  ])('%s may only be whom it was given', async (account, options) => {
    const lines: string[] = [];
    const sink = { write: (text: string) => lines.push(text) > 0 };
    const names = ['--user', 'lock-user', '--group', 'lock:admins', '--account', account];
    await runProgram(['policy', 'rbac', ...names, ...options], {
      environment: new Map(),
      stdout: sink as never,
      stderr: sink as never,
      signal: AbortSignal.timeout(30_000),
    });
    await applyYaml(cluster, lines.join(''));
    const kubeconfig = cluster.kubeconfig(account, { token: await accountToken(cluster, account) });
    const whoAs = async (...as: readonly string[]) => {
      const { code, stdout, stderr } = await runKubectl(kubectl, [...as, 'auth', 'whoami', '-o', 'json'], {
        kubeconfig,
      });
      return { code, text: stdout.toString() + stderr.toString() };
    };
    // the authorizer sees a new role after a delay
    await expect
      .poll(() => whoAs('--as=lock-user', '--as-group=lock:admins'), { timeout: 20_000 })
      .toMatchObject({ code: 0, text: expect.stringContaining('lock:admins') as unknown });
    expect(await whoAs('--as=lock-user')).toMatchObject({ code: 0 });
    for (const as of [
      ['--as=somebody'],
      ['--as=lock-user', '--as-group=system:masters'],
      ['--as=lock-user', '--as-group=lock:admins', '--as-group=system:masters'],
      ['--as=system:serviceaccount:kube-system:default'],
      ['--as=system:node:worker-1'],
      ['--as=lock-user', '--as-uid=1'],
      ['--as=lock-user', '--as-user-extra=tailcast.dev/session=x'],
    ]) {
      const { code, stderr } = await runKubectl(kubectl, [...as, 'get', '--raw', '/version'], { kubeconfig });
      expect(code, `${as.join(' ')}: ${stderr.toString()}`).toBe(1);
      expect(stderr.toString()).toContain('cannot impersonate');
    }
  });
});
