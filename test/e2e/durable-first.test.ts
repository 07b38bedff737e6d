/**
 * `--recorder-window 0`: gateway and recorder are killed at the same moment while a shell writes. What the user had seen by
 * then is in the recording. All of them are processes of their own.
 */
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startDemoCluster, type DemoCluster } from '../../src/demo/cluster.ts';
import { mergeKubeconfig } from '../../src/kube/kubeconfig-write.ts';
import { createSilentLogger } from '../../src/observe/logger.ts';
import type { Recording } from '../../src/tsrecorder/recording.ts';
import { openExec } from '../support/exec-client.ts';
import { eventually, startRole, type RoleProcess } from '../workers/role-process.ts';

let directory: string;
let cluster: DemoCluster;

beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), 'tailcast-durable-'));
  cluster = await startDemoCluster({ log: createSilentLogger() });
  const upstream = join(directory, 'upstream');
  const entry = { name: 'up', server: cluster.url, caPem: cluster.caPem, userName: 'admin' };
  const kubeconfig = mergeKubeconfig(undefined, { ...entry, token: cluster.adminToken }, upstream);
  await writeFile(upstream, kubeconfig, { mode: 0o600 });
});

afterAll(async () => {
  await cluster.close();
  await rm(directory, { recursive: true, force: true });
});

function startRecorder(): Promise<RoleProcess> {
  const store = ['--store', join(directory, 'recordings'), '--spool', join(directory, 'spool')];
  const rest = ['--identity', 'loopback', '--listen', '127.0.0.1:0', '--resume-seconds', '1'];
  return startRole(['recorder', ...store, ...rest]);
}

async function startGateway(recorder: RoleProcess): Promise<RoleProcess> {
  const recorderAddrs = [`127.0.0.1:${recorder.port}`];
  const rule = { impersonate: { groups: ['system:masters'] }, recorderAddrs, enforceRecorder: true };
  const identity = join(directory, 'identity.json');
  const node = { nodeId: 'nLAPTOP', nodeName: 'laptop.test', login: 'alice@example.com' };
  const capabilities = { 'tailscale.com/cap/kubernetes': [rule] };
  await writeFile(identity, JSON.stringify({ ...node, capabilities }));
  const who = ['--identity', 'static', '--static-identity', identity, '--check-rights', 'false'];
  const where = ['--kubeconfig', join(directory, 'upstream'), '--listen', '127.0.0.1:0'];
  const state = ['--state-directory', join(directory, 'gateway')];
  return startRole(['gateway', ...who, ...where, ...state, '--recorder-window', '0']);
}

/** What the only recording says the shell has written. */
async function recordedOutput({ port }: RoleProcess): Promise<string> {
  const url = `http://127.0.0.1:${port}/api/v1/recordings`;
  const only = await eventually(
    'the recording is in the store',
    async () => {
      const { recordings } = (await (await fetch(url)).json()) as { readonly recordings: Recording[] };
      return recordings[0]?.state === 'interrupted' ? recordings[0] : undefined;
    },
    30_000,
  );
  const cast = await (await fetch(`${url}/${encodeURIComponent(only.id)}/cast`)).text();
  const events = cast.trimEnd().split('\n').slice(1);
  return events.map((line) => (JSON.parse(line) as readonly [number, string, string])[2]).join('');
}

describe('a gateway that shows only what is durable', () => {
  // the shell writes some hundred lines a second, so each kill comes at another place in the way of a line
  it.each([17, 23, 31, 41, 53])(
    'has recorded all that was seen when it and its recorder are killed after line %s',
    async (line) => {
      await using cleanup = new AsyncDisposableStack();
      cleanup.defer(() => rm(join(directory, 'recordings'), { recursive: true, force: true }));
      cleanup.defer(() => rm(join(directory, 'spool'), { recursive: true, force: true }));
      const recorder = await startRecorder();
      const gateway = await startGateway(recorder);
      const caPem = await readFile(join(directory, 'gateway', 'ca', 'ca.crt'), 'utf8');
      const count = 'i=0; while :; do i=$((i+1)); echo "line-$i-"; sleep 0.008; done';
      const url = `https://127.0.0.1:${gateway.port}`;
      const shell = await openExec({ url, caPem, pod: 'shell', command: ['sh', '-c', count] });
      await shell.until(`line-${line}-`);
      await delay(line % 10);
      recorder.signal('SIGKILL');
      gateway.signal('SIGKILL');
      await Promise.all([recorder.stop(), gateway.stop(), shell.over]);
      const again = await startRecorder();
      cleanup.defer(async () => void (await again.stop()));
      const recorded = await recordedOutput(again);
      expect(shell.output).toContain(`line-${line}-`);
      expect(recorded.slice(0, shell.output.length)).toBe(shell.output);
    },
    60_000,
  );
});
