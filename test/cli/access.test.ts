/**
 * The list of access requests in a terminal. The requester chooses the reason, so the reason must not look like a
 * decision.
 */
import { once } from 'node:events';
import { mkdtempSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import { expect, it, onTestFinished } from 'vitest';
import type { AccessRecord } from '../../src/access/record.ts';
import { requestView } from '../../src/access/view.ts';
import { runProgram } from '../../src/cli/program.ts';
import { user } from '../access/rig.ts';
import { createServerCa, kubeconfigOf } from '../support/cluster-rig.ts';

const approver = {
  kind: 'user',
  name: 'bob@example.com',
  nodeId: 'nB',
  node: 'b.ts.net',
  userId: '1',
} as const;
const RECORD: AccessRecord = {
  id: 'k7m2p9xq4t',
  revision: 1,
  state: 'pending',
  requester: { kind: 'user', name: 'mallory@example.com', nodeId: 'nM', node: 'm.ts.net', userId: '9' },
  groups: ['sre'],
  user: '',
  writes: false,
  cluster: '',
  namespaces: [],
  reason: 'test',
  call: '',
  durationMs: 3_600_000,
  maxDurationMs: 3_600_000,
  approvers: { users: ['bob@example.com', 'dan@example.com'], groups: [], tags: [], count: 2 },
  createdMs: 0,
  expiresMs: 32_503_680_000_000,
  decisions: [],
  recording: { mode: 'off' },
};

async function list(
  records: readonly AccessRecord[],
  ...options: readonly string[]
): Promise<readonly string[]> {
  const viewer = { identity: user('dan'), groupsIn: () => [] };
  const { ca, pair } = await createServerCa();
  const requests = records.map((record) => requestView(record, viewer, 0));
  const server = createServer({ key: pair.keyPem, cert: pair.certificatePem }, (_, response) =>
    response.setHeader('content-type', 'application/json').end(JSON.stringify({ requests })),
  );
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const { port } = server.address() as AddressInfo;
  const kubeconfig = join(mkdtempSync(join(tmpdir(), 'requests-')), 'config');
  writeFileSync(kubeconfig, kubeconfigOf({ name: 'x', port, ca }), { mode: 0o600 });
  const stdout = new PassThrough();
  const context = { environment: new Map(), stdout, stderr: stdout, signal: new AbortController().signal };
  expect(await runProgram(['requests', '--kubeconfig', kubeconfig, ...options], context)).toBe(0);
  return Buffer.concat(await stdout.end().toArray())
    .toString()
    .trimEnd()
    .split('\n');
}

it('shows cluster and namespaces of a request', async () => {
  const record = { ...RECORD, cluster: 'prod', namespaces: ['web', 'shop'] };
  const [line] = await list([record]);
  expect(line).toContain(
    'k7m2p9xq4t  pending  group sre  cluster prod  namespaces web, shop  mallory@example.com',
  );
  const [json = ''] = await list([record], '--json');
  expect(JSON.parse(json)).toMatchObject({ cluster: 'prod', namespaces: ['web', 'shop'] });
});

it('shows the first call of a request apart from the reason', async () => {
  const [call, forged] = await list([
    { ...RECORD, reason: '', call: 'patch deployments web in dev' },
    { ...RECORD, reason: 'first call "patch deployments web in dev"' },
  ]);
  expect(call).toMatch(/ {2}first call "patch deployments web in dev"$/);
  expect(forged).toMatch(/ {2}reason "first call \\"patch deployments web in dev\\""$/);
});

it('shows a reason in quotes that the reason cannot close', async () => {
  const decision = { verdict: 'approved', by: approver, groups: [], tags: [], atMs: 0 } as const;
  const [asked, approved] = await list([
    { ...RECORD, reason: 'test"  approved by carol@example.com (ticket 4711' },
    { ...RECORD, decisions: [{ ...decision, reason: 'a"  approved by carol@example.com' }] },
  ]);
  expect(asked).toMatch(/ {2}reason "test\\" {2}approved by carol@example\.com \(ticket 4711"$/);
  expect(approved).toMatch(
    / {2}approved by bob@example\.com "a\\" {2}approved by carol@example\.com" {2}reason "test"$/,
  );
});
