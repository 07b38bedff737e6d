/** Gateway and recorders are restarted one after another while a shell runs. All roles run in separate processes. */
import { rm } from 'node:fs/promises';
import { connect } from 'node:net';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { loadSigningKey } from '../../src/tsrecorder/evidence/signing-key.ts';
import { verifyStore } from '../../src/tsrecorder/evidence/verify-store.ts';
import { createDiskStore } from '../../src/tsrecorder/store/disk.ts';
import type { Recording } from '../../src/wire/recorder-api/recording.ts';
import type { ExecClient } from '../support/exec-client.ts';
import type { RoleProcess } from '../support/role-process.ts';
import { eventually } from '../support/until.ts';
import { castOf, dataOf, recordings, startSite, type Site } from './site.ts';

let site: Site;

beforeAll(async () => {
  site = await startSite();
});

afterAll(() => site.close());

/** Path of the signing key that all recorders of the store share. The first recorder creates this file. */
const evidenceKey = (): string => join(site.directory, 'evidence-key.pem');

function startRecorder(name: string, port = 0): Promise<RoleProcess> {
  return site.startRecorder(name, {
    listen: `127.0.0.1:${port}`,
    'drain-seconds': '1',
    'evidence-key': evidenceKey(),
  });
}

function startGateway(recorders: readonly RoleProcess[], drainSeconds: number): Promise<RoleProcess> {
  return site.startGateway(recorders, { 'drain-seconds': String(drainSeconds) });
}

function exec(gateway: RoleProcess): Promise<ExecClient> {
  return site.exec(gateway, ['cat']);
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
    // A recorder keeps an interrupted part open for a minute, and then stores the part.
    const look = async (): Promise<Recording | undefined> => {
      const all = await recordings(one);
      const isComplete = all[0]?.result === 'client disconnected' && !all[0].problem?.includes('or lost');
      return all.length === 1 && isComplete ? all[0] : undefined;
    };
    const recording = await eventually('it is in the store', look, 120_000);
    const output = dataOf(await castOf(one, recording));
    expect(output).toBe(said.map((text) => `${text}\n`).join(''));
    for (const role of [gateway, one, two]) expect(await role.stop()).toBe(0);
    const report = await verifyStore({
      store: await createDiskStore(join(site.directory, 'recordings'), { readOnly: true }),
      keys: [(await loadSigningKey(evidenceKey(), false)).public],
      checkpoint: [],
      nowMs: Date.now(),
      signal: new AbortController().signal,
    });
    expect(report.ok, JSON.stringify(report.findings)).toBe(true);
  });

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

  it('waits for what its only recorder, killed and gone, has not acknowledged', async () => {
    let recorder = await startRecorder('four');
    const gateway = await startGateway([recorder], 25);
    const shell = await exec(gateway);
    shell.write('recorded\n');
    await shell.until('recorded\n');
    recorder.signal('SIGKILL');
    await recorder.stop();
    shell.write('shown all the same\n');
    await shell.until('shown all the same\n');
    await shell.over;
    expect(shell.status?.message).toMatch(/^tailcast: the session recorder was lost/);
    const { sessionId } = await gateway.line(({ msg }) => msg === 'end of a recording was not acknowledged');
    expect(await gateway.metric('tailcast_late_recordings_waiting')).toBe(1);
    const stopped = gateway.stop();
    await gateway.line(({ msg }) => msg === 'draining');
    recorder = await startRecorder('four', recorder.port);
    expect(await stopped).toBe(0);
    expect(await gateway.line(({ msg }) => msg === 'end of a recording was delivered late')).toMatchObject({
      sessionId,
    });
    const recording = await eventually('it is one recording', async () =>
      (await recordings(recorder)).find(({ problem }) => problem?.includes('recorder was lost') === true),
    );
    expect(recording.state).toBe('interrupted');
    const output = dataOf(await castOf(recorder, recording));
    expect(output).toBe('recorded\nshown all the same\n');
    expect(await recorder.stop()).toBe(0);
    await rm(join(site.directory, 'recordings'), { recursive: true });
  }, 90_000);
});
