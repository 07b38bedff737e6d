/**
 * A session that started at one recorder and continued at another recorder with a separate store. The commands must
 * work with one store and with both stores.
 */
import { mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Writable } from 'node:stream';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { runProgram } from '../../src/cli/program.ts';
import { createSilentLogger } from '../../src/observe/logger.ts';
import { createRecorderClient } from '../../src/recording/recorder-client.ts';
import { loadSigningKey } from '../../src/tsrecorder/evidence/signing-key.ts';
import { dialLoopback } from '../support/recorder-dial.ts';
import { createRig, HEADER, until, type Rig } from '../tsrecorder/recorder-rig.ts';

const SESSION = '{"kind":"session","id":"s","tty":true,"stdin":true,"protocol":"spdy","path":"/x"}\n';
const END =
  '{"kind":"exit","code":3}\n{"kind":"end","outcome":"completed","outputBytes":2,"outputLines":2}\n';

let root: string;
let stores: readonly [string, string];
let one: Rig;
let two: Rig;
let keys: readonly string[];
/** Addresses of the two recorders during the session. */
let addresses: readonly string[];

async function run(...args: readonly string[]): Promise<{ readonly code: number; readonly out: string }> {
  let out = '';
  const stdout = new Writable({
    write(chunk, _encoding, done) {
      out += String(chunk);
      done();
    },
  });
  const { signal } = new AbortController();
  const environment = new Map([['HOME', root]]);
  const code = await runProgram(args, { environment, signal, stdout, stderr: stdout });
  return { code, out };
}

beforeAll(async () => {
  root = await mkdtemp(join(tmpdir(), 'separate-stores-'));
  stores = [join(root, 'one'), join(root, 'two')];
  one = await createRig({ timing: { resumeGraceMs: 60_000, listRefreshMs: 0 } }, stores[0]);
  two = await createRig({ timing: { listRefreshMs: 0 } }, stores[1]);
  addresses = [one, two].map(({ recorder }) => `127.0.0.1:${recorder.address.port}`);
  const client = createRecorderClient({
    dial: dialLoopback,
    nowMs: () => performance.now(),
    log: createSilentLogger(),
    limits: { moveTimeoutMs: 20_000, moveRetryMs: 20, suspectMs: 100 },
  });
  const moved = Promise.withResolvers<void>();
  const upload = await client.open(
    { recorders: addresses, sessionId: 's', moved: () => moved.resolve() },
    new AbortController().signal,
  );
  const before = HEADER + SESSION + '[1,"o","first"]\n';
  await upload.write(before);
  await until(async () => (((await one.list())[0]?.bytes ?? 0) > HEADER.length ? true : undefined));
  // the first recorder restarts and ends the session, because no gateway continues the session there
  one = await one.restart({ timing: { resumeGraceMs: 1, listRefreshMs: 0 } });
  await moved.promise;
  await upload.write(`[2,"o","second"]\n${END}`);
  await upload.end();
  client.close();
  // also waits for `part`, because the state is `interrupted` before the recording is stored
  for (const rig of [one, two]) {
    await until(async () => {
      const [listed] = await rig.list();
      return listed?.state === 'interrupted' && listed.part !== undefined ? true : undefined;
    });
  }
  keys = await Promise.all(
    stores.map(async (store) => {
      const key = await loadSigningKey(join(`${store}.spool`, 'evidence', 'key.pem'), false);
      return key.public.raw;
    }),
  );
});
afterAll(async () => {
  await one.recorder.close();
  await two.recorder.close();
});

describe('a session whose parts are in two stores', () => {
  it('says in each list which bytes of which session are there', async () => {
    const [[first], [second]] = await Promise.all([one.list(), two.list()]);
    const [here = '', there = ''] = addresses;
    expect(first).toMatchObject({ state: 'interrupted', part: { number: 1, from: 0, after: [there] } });
    expect(first?.problem).toContain(`the session may continue at ${there}`);
    expect(second).toMatchObject({ state: 'interrupted', result: '3', part: { number: 2, before: here } });
    expect(second?.part).not.toHaveProperty('after');
    expect(second?.problem).toMatch(
      new RegExp(String.raw`^\d+ bytes of the upload are with the recorder at ${here}, or lost$`),
    );
    expect(second?.part?.session).toBe(first?.part?.session);
    expect(second?.part?.from).toBeLessThanOrEqual(first?.part?.to ?? 0);
  });

  it.each([
    ['stores', () => stores.flatMap((store) => ['--store', store])],
    ['stores, the other way round', () => stores.toReversed().flatMap((store) => ['--store', store])],
    ['recorders', () => [one, two].flatMap(({ recorder }) => ['--recorder', recorder.url])],
    ['a store and a recorder', () => ['--store', stores[1], '--recorder', one.recorder.url]],
  ])('is one recording that ended, over both %s', async (_what, places) => {
    const listed = await run('ls', '--json', ...places());
    const lines = listed.out.trim().split('\n');
    expect(lines).toHaveLength(1);
    expect(JSON.parse(lines[0] ?? '')).toMatchObject({ state: 'completed', result: '3' });
    expect(listed.out).not.toContain('"problem"');
    const played = await run('play', 'latest', '--raw', '--speed', '1000', ...places());
    expect([played.code, played.out]).toEqual([0, 'firstsecond']);
  });

  it('is verified over both stores, and a fault where its beginning is in none', async () => {
    const named = keys.flatMap((key) => ['--key', key]);
    await one.recorder.close();
    await two.recorder.close();
    const both = await run('verify', ...stores, ...named);
    expect([both.code, both.out]).toEqual([0, expect.stringContaining('all stores: verified')]);
    expect(both.out).not.toContain('part-');
    // with only the first store, `verify` finds no fault, and names the recorder that may have the rest
    const start = await run('verify', stores[0], '--key', keys[0] ?? '');
    expect(start.code).toBe(0);
    expect(start.out).toMatch(
      /notice part-after: its session was interrupted at byte \d+; it may continue at /,
    );
    expect(start.out).toContain(`at ${addresses[1]}: name its store as well`);
    const alone = await run('verify', stores[1], '--key', keys[1] ?? '');
    expect(alone.code).toBe(0);
    expect(alone.out).toMatch(
      /notice part-missing: bytes 0 to \d+ of its session are with 127\.0\.0\.1:\d+: name its store/,
    );
    const empty = await createRig({}, join(root, 'three'));
    await empty.recorder.close();
    const third = await loadSigningKey(join(root, 'three.spool', 'evidence', 'key.pem'), false);
    const others = [stores[1], join(root, 'three')];
    const missing = await run('verify', ...others, '--key', keys[1] ?? '', '--key', third.public.raw);
    expect(missing.code).toBe(1);
    expect(missing.out).toMatch(
      /FAULT {2}part-missing: bytes 0 to \d+ of its session are in none of the stores/,
    );
  });
});
