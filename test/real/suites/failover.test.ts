/** A shell through the gateway while its recorders are killed: real kubectl on a terminal, recorders as processes. */
import { generateKeyPairSync } from 'node:crypto';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { CreateBucketCommand, S3Client } from '@aws-sdk/client-s3';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startDemoCluster } from '../../../demo/cluster.ts';
import { createSilentLogger } from '../../../src/observe/logger.ts';
import type { Identity } from '../../../src/tailnet/identity.ts';
import type { Recording } from '../../../src/wire/recorder-api/recording.ts';
import type { RecorderPlan } from '../../faults/recorder-process.ts';
import { startRecorder, within, type RecorderProcess } from '../../faults/processes.ts';
import { writeKubeconfig } from '../../support/kubectl.ts';
import { environmentFor, findKubectls, speaks } from '../rig/kubectl.ts';
import { createRig, type Rig } from '../rig/rig.ts';
import { startS3, type S3Server } from '../rig/s3.ts';
import { openTerminal } from '../rig/terminal.ts';
import { identityOf, startTestGateway } from '../support/product.ts';

const LINES = 250;
const COUNT = `i=0; while [ $i -lt ${LINES} ]; do echo "line-$i-"; i=$((i+1)); sleep 0.02; done; echo "all"-"done"`;
const newest = (await findKubectls()).at(-1)!;
const transports = (['spdy', 'websocket'] as const).filter((transport) => speaks(newest, transport));

let rig: Rig;
let s3: S3Server;

beforeAll(async () => {
  rig = createRig();
  s3 = await startS3(rig);
  process.env['AWS_ACCESS_KEY_ID'] = s3.accessKeyId;
  process.env['AWS_SECRET_ACCESS_KEY'] = s3.secretAccessKey;
  const admin = new S3Client({ endpoint: s3.endpoint, region: s3.region, forcePathStyle: true });
  await admin.send(new CreateBucketCommand({ Bucket: 'shells' }));
  admin.destroy();
});

afterAll(() => rig.stop());

/** Returns an identity whose grant names the recorders in this order, and enforces recording. */
function identityWith(recorders: readonly RecorderProcess[]): Identity {
  const rule = {
    impersonate: { groups: ['system:masters'] },
    recorderAddrs: recorders.map(({ address }) => address),
    enforceRecorder: true,
  };
  const identity = identityOf({ login: 'alice@example.com' }, undefined);
  return { ...identity, capabilities: new Map([['tailscale.com/cap/kubernetes', [rule]]]) };
}

async function startSite(
  store: 'a directory' | 'a bucket',
  recorderWindow?: number,
): Promise<
  AsyncDisposable & {
    readonly folder: string;
    readonly one: RecorderProcess;
    readonly two: RecorderProcess;
    readonly kubeconfig: string;
    /** Restarts a killed recorder with the same disk and port. */
    again(machine: 'one' | 'two', port: number): Promise<RecorderProcess>;
  }
> {
  await using stack = new AsyncDisposableStack();
  const folder = await mkdtemp(join(tmpdir(), 'tcshell-'));
  stack.defer(() => rm(folder, { recursive: true, force: true }));
  // Recorders that share a store share a signing key, so that they trust each other's signatures.
  const evidenceKey = join(folder, 'key.pem');
  const { privateKey } = generateKeyPairSync('ed25519');
  await writeFile(evidenceKey, privateKey.export({ format: 'pem', type: 'pkcs8' }), { mode: 0o600 });
  const plan = (machine: string, port = 0): RecorderPlan => ({
    port,
    evidenceKey,
    directory: join(folder, 'store'),
    spoolDirectory: join(folder, machine),
    timing: { resumeGraceMs: 500, listRefreshMs: 0, checkpointMs: 1000, leaseMs: 20_000, closeGraceMs: 100 },
    ...(store === 'a directory'
      ? {}
      : {
          s3: { endpoint: s3.endpoint, region: s3.region, bucket: 'shells', prefix: `${folder.slice(-6)}/` },
        }),
  });
  const start = async (machine: string, port = 0): Promise<RecorderProcess> => {
    const recorder = await startRecorder(plan(machine, port));
    stack.defer(() => recorder.kill());
    return recorder;
  };
  const one = await start('one');
  const two = await start('two');
  const cluster = await startDemoCluster({ log: createSilentLogger() });
  stack.defer(() => cluster.close());
  const { url: server, caPem, adminToken } = cluster;
  const upstream = await writeKubeconfig({ directory: folder, url: server, caPem, token: adminToken });
  const gateway = await startTestGateway({
    mode: 'auth',
    upstream,
    stateDirectory: join(folder, 'gateway'),
    identity: identityWith([one, two]),
    ...(recorderWindow === undefined ? {} : { recorderWindow }),
  });
  stack.defer(() => gateway.close(500));
  const url = `https://127.0.0.1:${gateway.port}`;
  const kubeconfig = await writeKubeconfig({
    directory: folder,
    url,
    caPem: gateway.caPem ?? '',
    token: 'unused',
  });
  const owned = stack.move();
  return {
    folder,
    one,
    two,
    kubeconfig,
    // the deferred `kill` has no effect on a recorder that has stopped already
    again: async (machine, port) => {
      const recorder = await startRecorder(plan(machine, port));
      owned.defer(() => recorder.kill());
      return recorder;
    },
    [Symbol.asyncDispose]: () => owned.disposeAsync(),
  };
}

/** Returns the output in a recording. */
function outputOf(cast: string): string {
  return cast
    .trimEnd()
    .split('\n')
    .slice(1)
    .map((line) => JSON.parse(line) as [number, string, string])
    .filter(([, code]) => code === 'o')
    .map(([, , data]) => data)
    .join('');
}

async function onlyRecording(recorder: RecorderProcess): Promise<Recording> {
  return within('the session is one closed recording', 60_000, async () => {
    const found = await recorder.list();
    const [only] = found;
    const settled = only?.state === 'completed' && only.problem === undefined && found.length === 1;
    return settled ? only : Promise.reject(new Error(summaryOf(found)));
  });
}

function summaryOf(recordings: readonly Recording[]): string {
  return JSON.stringify(recordings.map(({ state, problem, bytes }) => [state, problem, bytes]));
}

/** Returns true if `part` equals `whole` with one range of bytes removed. */
function isCutOut(part: string, whole: string): boolean {
  let same = 0;
  while (same < part.length && part[same] === whole[same]) same += 1;
  return part.length < whole.length && whole.endsWith(part.slice(same));
}

describe.each(['a directory', 'a bucket'] as const)('a shell whose recorder is killed, on %s', (store) => {
  // together, the two stores test each transport with both orders: output is shown at once, or when it is durable
  const isFolder = store === 'a directory';
  it.each(
    transports.map((transport) =>
      (transport === 'spdy') === isFolder
        ? { transport, order: 'shown at once', recorderWindow: undefined }
        : { transport, order: 'shown when it is durable', recorderWindow: 0 },
    ),
  )(
    'goes on with the second one over $transport, $order: nothing lost, nothing twice',
    async ({ transport, order, recorderWindow }) => {
      await using site = await startSite(store, recorderWindow);
      const env = environmentFor({ kubeconfig: site.kubeconfig, transport });
      const terminal = openTerminal(newest.path, ['exec', '-it', 'shell', '--', 'sh'], { env });
      await terminal.expect(/[$#] $/);
      terminal.type(`${COUNT}\r`);
      await terminal.expect('line-60-');
      let longestMs = 0;
      let last = performance.now();
      let seen = terminal.output().length;
      const watch = setInterval(() => {
        const now = performance.now();
        if (terminal.output().length > seen) last = now;
        seen = terminal.output().length;
        longestMs = Math.max(longestMs, now - last);
      }, 5);
      await site.one.kill();
      await terminal.expect('all-done', 60_000);
      clearInterval(watch);
      terminal.type('exit\r');
      expect(await terminal.ended).toBe(0);
      expect(longestMs).toBeLessThan(2000);
      const lines = [...terminal.output().matchAll(/line-(\d+)-/g)].map(([, number]) => Number(number));
      expect(lines).toEqual(Array.from({ length: LINES }, (_, index) => index));

      // the first part is on the disk of the killed recorder
      await site.again('one', site.one.port);
      const recording = await onlyRecording(site.two);
      const cast = await site.two.cast(recording.id);
      expect(outputOf(cast)).toBe(terminal.output());
      console.log(
        `${store}, ${transport}, ${order}: longest pause on the screen ${Math.round(longestMs)} ms`,
      );
    },
  );

  it('goes from one to the other and back', { timeout: 120_000 }, async () => {
    await using site = await startSite(store);
    const env = environmentFor({ kubeconfig: site.kubeconfig, transport: 'spdy' });
    const terminal = openTerminal(newest.path, ['exec', '-it', 'shell', '--', 'sh'], { env });
    await terminal.expect(/[$#] $/);
    terminal.type(`${COUNT}\r`);
    await terminal.expect('line-40-');
    await site.one.kill();
    await terminal.expect('line-100-');
    const back = await site.again('one', site.one.port);
    await terminal.expect('line-200-', 60_000);
    await site.two.kill();
    await terminal.expect('all-done', 60_000);
    terminal.type('exit\r');
    expect(await terminal.ended).toBe(0);
    const lines = [...terminal.output().matchAll(/line-(\d+)-/g)].map(([, number]) => Number(number));
    expect(lines).toEqual(Array.from({ length: LINES }, (_, index) => index));
    // Only the disk of the second recorder has the middle part. Without this disk, the recording reports a gap, unless
    // the bucket has a complete copy.
    const partial = await within('the session has ended', 60_000, async () => {
      const found = await back.list();
      const [only] = found;
      if (only !== undefined && found.length === 1 && only.state !== 'running') return only;
      throw new Error(summaryOf(found));
    });
    const shown = outputOf(await back.cast(partial.id));
    console.log(`${store}: ${partial.state}, ${terminal.output().length - shown.length} characters missing`);
    if (store === 'a bucket' && partial.state === 'completed') {
      expect(partial.problem).toBeUndefined();
      expect(shown).toBe(terminal.output());
    } else {
      expect(partial.state).toBe('interrupted');
      expect(partial.problem ?? '').toMatch(/with the recorder at \S+, or lost/);
      expect(isCutOut(shown, terminal.output())).toBe(true);
    }

    // the second recorder returns with its disk, so the recording is complete
    await site.again('two', site.two.port);
    const whole = await onlyRecording(back);
    expect(outputOf(await back.cast(whole.id))).toBe(terminal.output());
  });
});
