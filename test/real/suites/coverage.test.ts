/** `tailcast coverage` with the audit log of a real API server: recorded sessions and sessions without the gateway. */
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { runProgram } from '../../../src/cli/program.ts';
import { startGateway } from '../../../src/compose/gateway.ts';
import { createSilentLogger } from '../../../src/observe/logger.ts';
import { createPod } from '../cases/case.ts';
import { findKubectls, runKubectl } from '../rig/kubectl.ts';
import { type Kubernetes, startKubernetes } from '../rig/kubernetes.ts';
import { type Rig, createRig } from '../rig/rig.ts';
import { wantedExecUpstream } from '../support/gateways.ts';
import { accountToken, applyManifest } from '../support/manifests.ts';
import { identityOf, startTestRecorder, type TestRecorder } from '../support/product.ts';
import { gatewaySettings } from '../../support/settings.ts';

const kubectl = (await findKubectls()).at(-1)!;

describe('coverage', () => {
  let rig: Rig;
  let cluster: Kubernetes;
  let recorder: TestRecorder;
  let through: string;
  let direct: string;
  /** Kubeconfig of a gateway in noauth mode. */
  let own: string;

  beforeAll(async () => {
    rig = createRig();
    cluster = await startKubernetes(rig, { node: { webSockets: true } });
    const folder = join(rig.folder, 'product');
    mkdirSync(folder);
    recorder = await startTestRecorder(folder, 'gateway.example.ts.net');
    rig.onStop(() => recorder.close());
    await applyManifest(cluster, 'rbac/gateway.yaml');
    const kubeconfig = cluster.kubeconfig('gateway', { token: await accountToken(cluster) });
    const start = async (
      mode: 'auth' | 'noauth',
    ): Promise<{ readonly server: string; readonly ca: string }> => {
      const gateway = await startGateway({
        config: gatewaySettings({
          kubeconfig,
          mode,
          stateDirectory: join(folder, mode),
          auditExtras: mode === 'auth',
          execUpstream: wantedExecUpstream() ?? 'spdy',
        }),
        environment: new Map(),
        log: createSilentLogger(),
        accessSink: process.stderr,
        identity: identityOf({ login: 'alice@example.com' }, recorder.address),
      });
      rig.onStop(() => gateway.close(500));
      return { server: `https://127.0.0.1:${gateway.port}`, ca: gateway.caPem ?? '' };
    };
    through = cluster.kubeconfig('through', { ...(await start('auth')), token: 'unused' });
    own = cluster.kubeconfig('own', { ...(await start('noauth')), token: cluster.tokens.admin });
    direct = cluster.kubeconfig('direct', { token: cluster.tokens.admin });
    await createPod(cluster, 'covered', { command: ['sleep', '1d'] });
  });
  afterAll(() => rig.stop());

  const exec = (kubeconfig: string, ...command: readonly string[]) =>
    runKubectl(kubectl, ['exec', 'covered', '--', ...command], { kubeconfig });

  async function coverage(...options: readonly string[]): Promise<{ code: number; text: string }> {
    const lines: string[] = [];
    const sink = { write: (text: string) => lines.push(text) > 0 };
    const auditLog = join(rig.folder, 'k1.36', 'audit.log');
    const code = await runProgram(['coverage', auditLog, '--recorder', recorder.url, ...options], {
      environment: new Map(),
      stdout: sink as never,
      stderr: sink as never,
      signal: AbortSignal.timeout(30_000),
    });
    return { code, text: lines.join('') };
  }

  it('is complete while everything goes through the gateway', async () => {
    for (const word of ['one', 'two']) {
      const { code, stderr } = await exec(through, 'echo', word);
      expect(code, stderr.toString()).toBe(0);
    }
    await expect
      .poll(() => coverage(), { timeout: 20_000 })
      .toMatchObject({
        code: 0,
        text: expect.stringContaining('2 recorded, 0 unrecorded, 0 without a sign of a gateway') as unknown,
      });
  });

  it('is complete with sessions under credentials of the client through a gateway in noauth mode', async () => {
    const { code, stderr } = await exec(own, 'echo', 'three');
    expect(code, stderr.toString()).toBe(0);
    await expect
      .poll(() => coverage(), { timeout: 20_000 })
      .toMatchObject({
        code: 0,
        text: expect.stringContaining('3 recorded, 0 unrecorded, 0 without a sign of a gateway') as unknown,
      });
  });

  it('names the session that went past the gateway, and only that', async () => {
    expect(await exec(direct, 'echo', 'past')).toMatchObject({ code: 0 });
    await expect
      .poll(async () => (await coverage()).text, { timeout: 20_000 })
      .toContain('1 without a sign of a gateway');
    const { code, text } = await coverage();
    expect(code).toBe(1);
    expect(text).toContain('rig-admin');
    expect(text).toContain('default pods/covered');
    expect(text).not.toContain('alice');
  });

  it('says all as JSON', async () => {
    const { text } = await coverage('--json');
    const kinds = text
      .trim()
      .split('\n')
      .map((line) => (JSON.parse(line) as { coverage: string }).coverage);
    expect(kinds.toSorted()).toEqual(['direct', 'recorded', 'recorded', 'recorded']);
  });
});
