/** Gateway and recorders are restarted one after another while a shell runs. All of them are processes of their own. */
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startDemoCluster, type DemoCluster } from '../../src/demo/cluster.ts';
import { mergeKubeconfig } from '../../src/kube/kubeconfig-write.ts';
import { createSilentLogger } from '../../src/observe/logger.ts';
import { verifyStore } from '../../src/tsrecorder/evidence/verify-store.ts';
import type { Recording } from '../../src/tsrecorder/recording.ts';
import { createDiskStore } from '../../src/tsrecorder/store/disk.ts';
import { openExec, type ExecClient } from '../support/exec-client.ts';
import { eventually, startRole, type RoleProcess } from '../workers/role-process.ts';

let directory: string;
let cluster: DemoCluster;

beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), 'tailcast-rolling-'));
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

/** One of several recorders with the same store. */
function startRecorder(name: string, port = 0): Promise<RoleProcess> {
  const flags = {
    store: join(directory, 'recordings'),
    spool: join(directory, `spool-${name}`),
    identity: 'loopback',
    listen: `127.0.0.1:${port}`,
    'drain-seconds': '1',
    'resume-seconds': '1',
  };
  return startRole(['recorder', ...words(flags)]);
}

/** @param recorders in order of preference; none: nothing is recorded */
async function startGateway(
  recorders: readonly RoleProcess[],
  drainSeconds: number,
  workers = 1,
): Promise<RoleProcess> {
  const rule = {
    impersonate: { groups: ['system:masters'] },
    ...(recorders.length === 0
      ? {}
      : { recorderAddrs: recorders.map(({ port }) => `127.0.0.1:${port}`), enforceRecorder: true }),
  };
  const capabilities = { 'tailscale.com/cap/kubernetes': [rule] };
  const identity = join(directory, 'identity.json');
  const node = { nodeId: 'nLAPTOP', nodeName: 'laptop.test', login: 'alice@example.com' };
  await writeFile(identity, JSON.stringify({ ...node, capabilities }));
  const flags = {
    kubeconfig: join(directory, 'upstream'),
    identity: 'static',
    'static-identity': identity,
    listen: '127.0.0.1:0',
    'state-directory': join(directory, 'gateway'),
    'check-rights': 'false',
    'drain-seconds': String(drainSeconds),
    workers: String(workers),
  };
  return startRole(['gateway', ...words(flags)]);
}

function words(flags: Readonly<Record<string, string>>): readonly string[] {
  return Object.entries(flags).flatMap(([name, value]) => [`--${name}`, value]);
}

async function exec(gateway: RoleProcess): Promise<ExecClient> {
  const caPem = await readFile(join(directory, 'gateway', 'ca', 'ca.crt'), 'utf8');
  return openExec({ url: `https://127.0.0.1:${gateway.port}`, caPem, pod: 'shell', command: ['cat'] });
}

async function recordings({ port }: RoleProcess): Promise<readonly Recording[]> {
  const response = await fetch(`http://127.0.0.1:${port}/api/v1/recordings?limit=100`);
  return ((await response.json()) as { readonly recordings: Recording[] }).recordings;
}

async function castOf({ port }: RoleProcess, { id }: Recording): Promise<string> {
  const url = `http://127.0.0.1:${port}/api/v1/recordings/${encodeURIComponent(id)}/cast`;
  return (await fetch(url)).text();
}

/** @returns whether a connection to the port is accepted */
function accepts(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1');
    socket.once('connect', () => {
      socket.destroy();
      resolve(true);
    });
    socket.once('error', () => resolve(false));
  });
}

describe('a rolling restart', () => {
  it('of the recorders loses nothing of a shell that goes on', async () => {
    let one = await startRecorder('one');
    let two = await startRecorder('two');
    const gateway = await startGateway([one, two], 1);
    const shell = await exec(gateway);
    const said: string[] = [];
    const say = async (text: string): Promise<void> => {
      said.push(text);
      shell.write(`${text}\n`);
      await shell.until(`${text}\n`);
    };
    await say('with the first recorder');
    expect(await one.stop()).toBe(0);
    await say('the first one is gone');
    const moved = await gateway.line(({ msg, resumed }) => msg === 'recorder lost' && resumed === true);
    expect(moved).toMatchObject({ recorder: `127.0.0.1:${two.port}` });
    one = await startRecorder('one', one.port);
    await say('the first one is back');
    expect(await two.stop()).toBe(0);
    await say('the second one is gone');
    await eventually('it went back', async () =>
      gateway.lines.filter(({ msg, resumed }) => msg === 'recorder lost' && resumed === true).length === 2
        ? true
        : undefined,
    );
    two = await startRecorder('two', two.port);
    await say('all is well');
    shell.close();
    // the other recorder may still be storing its part: until then the first one says what is missing
    const recording = await eventually('it is in the store', async () => {
      const all = await recordings(one);
      return all.length === 1 && all[0]?.state === 'closed' ? all[0] : undefined;
    });
    const output = (await castOf(one, recording))
      .trimEnd()
      .split('\n')
      .slice(1)
      .map((line) => (JSON.parse(line) as readonly [number, string, string])[2])
      .join('');
    expect(output).toBe(said.map((text) => `${text}\n`).join(''));
    for (const role of [gateway, one, two]) expect(await role.stop()).toBe(0);
    const report = await verifyStore({
      store: await createDiskStore(join(directory, 'recordings'), { readOnly: true }),
      keys: [],
      checkpoint: [],
      nowMs: Date.now(),
      signal: new AbortController().signal,
    });
    expect(report.ok, JSON.stringify(report.findings)).toBe(true);
  }, 90_000);

  it.each([
    ['recorded', true],
    ['unrecorded', false],
  ])(
    'of a gateway sends new clients elsewhere and lets its shell go on for a while: %s',
    async (_, recorded) => {
      const recorder = await startRecorder('three');
      const gateway = await startGateway(recorded ? [recorder] : [], 5);
      const shell = await exec(gateway);
      shell.write('before\n');
      await shell.until('before\n');
      const stopped = gateway.stop();
      await eventually('it is not ready', async () => {
        const response = await fetch(`${gateway.ops}/readyz`);
        return response.status === 503 && (await response.text()).includes('draining') ? true : undefined;
      });
      await eventually('it accepts nobody', async () => ((await accepts(gateway.port)) ? undefined : true));
      shell.write('while it drains\n');
      await shell.until('while it drains\n');
      await shell.over;
      expect(shell.status?.message).toMatch(/^tailcast: the gateway is shutting down/);
      expect(await stopped).toBe(0);
      if (recorded) {
        const [recording] = (await recordings(recorder)).filter(({ state }) => state === 'interrupted');
        expect(recording?.problem).toMatch(/shutting down/);
        expect(await castOf(recorder, recording!)).toContain('while it drains');
      }
      expect(await recorder.stop()).toBe(0);
    },
    60_000,
  );

  it.each([1, 2])(
    'of a gateway with %s processes waits for what its only recorder, killed and gone, has not acknowledged',
    async (workers) => {
      let recorder = await startRecorder(`four-${workers}`);
      const gateway = await startGateway([recorder], 25, workers);
      const shell = await exec(gateway);
      shell.write('recorded\n');
      await shell.until('recorded\n');
      recorder.signal('SIGKILL');
      await recorder.stop();
      shell.write('shown all the same\n');
      await shell.until('shown all the same\n');
      await shell.over;
      expect(shell.status?.message).toMatch(/^tailcast: the session recorder was lost/);
      const { sessionId } = await gateway.line(
        ({ msg }) => msg === 'end of a recording was not acknowledged',
      );
      expect(await gateway.metric('tailcast_late_recordings_waiting')).toBe(1);
      const stopped = gateway.stop();
      await gateway.line(({ msg }) => msg === 'draining');
      recorder = await startRecorder(`four-${workers}`, recorder.port);
      expect(await stopped).toBe(0);
      expect(await gateway.line(({ msg }) => msg === 'end of a recording was delivered late')).toMatchObject({
        sessionId,
      });
      const recording = await eventually('it is one recording', async () =>
        (await recordings(recorder)).find(({ problem }) => problem?.includes('recorder was lost') === true),
      );
      expect(recording.state).toBe('interrupted');
      const output = (await castOf(recorder, recording))
        .trimEnd()
        .split('\n')
        .slice(1)
        .map((line) => (JSON.parse(line) as readonly [number, string, string])[2]);
      expect(output.join('')).toBe('recorded\nshown all the same\n');
      expect(await recorder.stop()).toBe(0);
      await rm(join(directory, 'recordings'), { recursive: true });
    },
    90_000,
  );
});
