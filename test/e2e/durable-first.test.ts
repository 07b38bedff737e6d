/**
 * Gateway and recorder are killed at the same moment while a shell writes. The recording must contain all output that
 * the user had seen: immediately with `--recorder-window 0`, otherwise after both have restarted. Gateway and recorder
 * run in separate processes.
 */
import { readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { RoleProcess } from '../support/role-process.ts';
import { eventually } from '../support/until.ts';
import { castOf, dataOf, recordings, startSite, type Site } from './site.ts';

let site: Site;

beforeAll(async () => {
  site = await startSite();
});

afterAll(() => site.close());

/** Returns the output of the shell in the only recording. */
async function recordedOutput(recorder: RoleProcess): Promise<string> {
  const only = await eventually(
    'the recording is in the store',
    async () => (await recordings(recorder)).find(({ state }) => state === 'interrupted'),
    120_000,
  );
  return dataOf(await castOf(recorder, only));
}

describe('a gateway that shows only what is durable', () => {
  // Kills both processes only after line 41. Each further case would wait a minute until the recorder marks the
  // session as interrupted.
  it('has recorded all that was seen when it and its recorder are killed', async () => {
    const line = 41;
    await using cleanup = new AsyncDisposableStack();
    cleanup.defer(() => rm(join(site.directory, 'recordings'), { recursive: true, force: true }));
    const name = `line-${line}`;
    const recorder = await site.startRecorder(name);
    const gateway = await site.startGateway([recorder], { 'recorder-window': '0' });
    const count = 'i=0; while :; do i=$((i+1)); echo "line-$i-"; sleep 0.008; done';
    const shell = await site.exec(gateway, ['sh', '-c', count]);
    await shell.until(`line-${line}-`);
    await delay(line % 10);
    recorder.signal('SIGKILL');
    gateway.signal('SIGKILL');
    await Promise.all([recorder.stop(), gateway.stop(), shell.over]);
    const again = await site.startRecorder(name);
    cleanup.defer(async () => void (await again.stop()));
    const recorded = await recordedOutput(again);
    expect(shell.output).toContain(`line-${line}-`);
    expect(recorded.slice(0, shell.output.length)).toBe(shell.output);
  }, 180_000);
});

/** Writes bursts, so that many lines are in transfer at any moment. */
const BURSTS = 'i=0; while :; do i=$((i+1)); echo "line-$i-"; [ $((i % 40)) = 0 ] && sleep 0.01; done';
/** Output without pauses. The recorder gets most of this output before the gateway writes the output to its disk. */
const FLOOD = 'seq -f "line-%.0f-" 1 100000000';

describe('a gateway that shows what it has on disk, or its recorder has', () => {
  it.each([
    ...[17, 41, 79].map((line) => ({ what: 'bursts', count: BURSTS, line })),
    ...[20_000, 700_000].map((line) => ({ what: 'a flood', count: FLOOD, line })),
  ])(
    'brings all that was seen to the only recorder after both were killed after line $line of $what',
    async ({ line, count }) => {
      await using cleanup = new AsyncDisposableStack();
      cleanup.defer(() => rm(join(site.directory, 'recordings'), { recursive: true, force: true }));
      const name = `default-${line}`;
      const recorder = await site.startRecorder(name);
      const gateway = await site.startGateway([recorder]);
      const shell = await site.exec(gateway, ['sh', '-c', count]);
      await shell.until(`line-${line}-`);
      await delay(line % 10);
      recorder.signal('SIGKILL');
      gateway.signal('SIGKILL');
      await Promise.all([recorder.stop(), gateway.stop(), shell.over]);
      const again = await site.startRecorder(name, { listen: `127.0.0.1:${recorder.port}` });
      cleanup.defer(async () => void (await again.stop()));
      const back = await site.startGateway([again]);
      cleanup.defer(async () => void (await back.stop()));
      const seen = shell.output;
      const recorded = await eventually(
        'what was seen is in the recording',
        async () => {
          const [only] = await recordings(again);
          const data = only === undefined ? '' : dataOf(await castOf(again, only));
          return data.length >= seen.length ? data : undefined;
        },
        120_000,
      );
      expect(recorded.slice(0, seen.length)).toBe(seen);
      expect(await recordings(again)).toHaveLength(1);
      await eventually('nothing is left on disk', async () =>
        (await back.metric('tailcast_journal_recordings_left')) === 0 ? true : undefined,
      );
      expect(await readdir(join(site.directory, 'gateway', 'late'))).toHaveLength(1);
    },
    90_000,
  );
});
