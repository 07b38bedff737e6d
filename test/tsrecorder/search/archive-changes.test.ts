/**
 * Changes in the store: legal holds, removals, replacements and damage. Search results must reflect these changes.
 * Removed recordings must disappear immediately.
 */
import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { changeHold } from '../../../src/tsrecorder/evidence/holds.ts';
import { indexDirectory } from '../../../src/tsrecorder/search/recorder-search.ts';
import { createDiskStore } from '../../../src/tsrecorder/store/disk.ts';
import { runCommand as run } from '../../support/run-command.ts';
import { createRig, HEADER, until, uploadWhole, type Rig, holdSigner } from '../recorder-rig.ts';

const SEARCHING = { searchText: 'all', timing: { listRefreshMs: 0 } } as const;

function cast(text: string): string {
  return `${HEADER}${JSON.stringify([1.5, 'o', `${text}\r\n`])}\n`;
}

interface Session {
  readonly recording: { readonly id: string };
  readonly hits: readonly { readonly text: string }[];
  readonly partial: boolean;
}

async function search(rig: Rig, query: string): Promise<readonly Session[] | undefined> {
  const { status, body } = await rig.get(`/api/v1/search?q=${encodeURIComponent(query)}`);
  return status === 200 ? (JSON.parse(body) as { sessions: Session[] }).sessions : undefined;
}

function found(rig: Rig, query: string, count: number): Promise<readonly Session[]> {
  return until(async () => {
    const sessions = await search(rig, query);
    return sessions?.length === count ? sessions : undefined;
  });
}

/** Resolves when the indexer has read all recordings. */
async function ready(rig: Rig, sessions: number): Promise<void> {
  await until(async () => {
    const index = JSON.parse((await rig.get('/api/v1/index')).body) as Record<string, unknown>;
    return index['state'] === 'ready' && index['sessions'] === sessions && index['rebuilding'] === undefined
      ? true
      : undefined;
  });
}

/** Puts a recording into the store, as another recorder would. */
async function place(rig: Rig, time: string, content: string): Promise<string> {
  const folder = join(rig.directory, 'nOTHER');
  await mkdir(folder, { recursive: true });
  const path = join(folder, `${time}.000000000Z.cast`);
  await writeFile(path, content);
  return path;
}

async function bytesOfIndex(rig: Rig): Promise<string> {
  const directory = indexDirectory(rig.spool);
  const names = await readdir(directory);
  // a file may be removed after it was listed
  const contents = names.map((name) => readFile(join(directory, name), 'latin1').catch(() => ''));
  return (await Promise.all(contents)).join('');
}

it('held recordings stay searchable, and removed ones disappear from results and from the files', async () => {
  const startedAt = Date.now();
  let now = startedAt;
  await using rig = await createRig({
    ...SEARCHING,
    clock: { now: () => now, monotonic: () => performance.now() },
    retention: { maxAgeMs: 3_600_000 },
    timing: { ...SEARCHING.timing, retentionMs: 20 },
  });
  await uploadWhole(rig.recorder, cast('needle heldcanary'));
  await uploadWhole(rig.recorder, cast('needle gonecanary'));
  const [gone, held] = (await found(rig, 'needle', 2)).map(({ recording }) => recording.id);
  await ready(rig, 2);
  const store = await createDiskStore(rig.directory);
  await changeHold(store, held!, { kind: 'held', reason: 'asked for' }, await holdSigner(rig));
  const before = await bytesOfIndex(rig);
  for (const word of ['heldcanary', 'gonecanary']) expect(before, word).toContain(word);
  now = startedAt + 7_200_000;
  // as soon as the list omits the removed recording, search must omit it as well
  await until(async () => ((await rig.list()).length < 2 ? true : undefined));
  expect(await search(rig, 'gonecanary')).toEqual([]);
  expect((await search(rig, 'needle'))?.map(({ recording }) => recording.id)).toEqual([held]);
  expect((await rig.get(`/api/v1/recordings/${encodeURIComponent(gone!)}/search?q=needle`)).status).toBe(404);
  await ready(rig, 1);
  await until(async () => ((await bytesOfIndex(rig)).includes('gonecanary') ? undefined : true));
  const hit = (await search(rig, 'heldcanary'))?.[0]?.hits[0]?.text;
  expect([hit, (await bytesOfIndex(rig)).includes('heldcanary')]).toEqual(['needle heldcanary', true]);
  await changeHold(store, held!, { kind: 'released', reason: '' }, await holdSigner(rig));
  await until(async () => ((await rig.list()).length === 0 ? true : undefined));
  expect(await search(rig, 'heldcanary')).toEqual([]);
  await ready(rig, 0);
  await until(async () => (/(?:held|gone)canary/.test(await bytesOfIndex(rig)) ? undefined : true));
});

it('reports a replaced cast, and finds its new words after the cast is read again', async () => {
  await using rig = await createRig(SEARCHING);
  const path = await place(rig, '2026-01-02T00:00:00', cast('needle before'));
  await uploadWhole(rig.recorder, cast('needle other'));
  await found(rig, 'needle', 2);
  await ready(rig, 2);
  const recorder = ['--recorder', rig.recorder.url];
  expect(await run('index', 'verify', ...recorder)).toMatchObject({ code: 0 });
  await writeFile(path, cast('needle afterwards and longer'));
  const { code, out } = await run('index', 'verify', ...recorder);
  expect([code, out]).toEqual([1, expect.stringMatching(/^nOTHER_\S+ {2}the index has an older version/m)]);
  expect(await run('index', 'rebuild', ...recorder)).toMatchObject({ code: 0 });
  expect((await found(rig, 'afterwards', 1))[0]?.recording.id).toContain('nOTHER');
  expect(await search(rig, 'before')).toEqual([]);
  expect(await found(rig, 'needle', 2)).toHaveLength(2);
  expect(await run('index', 'verify', ...recorder)).toMatchObject({ code: 0 });
});

it('finds the readable part of a damaged cast, marks it as partial, and finds the others as before', async () => {
  await using rig = await createRig(SEARCHING);
  const line = (text: string): string => `${JSON.stringify([2, 'o', `${text}\r\n`])}\n`;
  await place(
    rig,
    '2026-01-02T00:00:00',
    `${cast('needle inside')}[3,"o","cut\n\0\0\0{}\n${line('behind it')}`,
  );
  await place(rig, '2026-01-03T00:00:00', `${cast('needle end')}${line('lastword').slice(0, -9)}`);
  await place(rig, '2026-01-04T00:00:00', '\0'.repeat(5000));
  await place(rig, '2026-01-05T00:00:00', '');
  await place(rig, '2026-01-06T00:00:00', `${HEADER}${'x'.repeat(100_000)}\n${line('needle after')}`);
  await uploadWhole(rig.recorder, cast('needle whole'));
  const sessions = await found(rig, 'needle', 4);
  expect(sessions.map(({ partial, hits }) => [hits[0]?.text, partial])).toEqual([
    ['needle whole', false],
    ['needle after', true],
    ['needle end', true],
    ['needle inside', true],
  ]);
  expect(await found(rig, '"behind it"', 1)).toHaveLength(1);
  const { status, body } = await rig.get('/api/v1/index');
  expect([status, (JSON.parse(body) as { state: string }).state]).toEqual([200, 'ready']);
});

it('a rebuilt index gives the same responses', async () => {
  await using rig = await createRig(SEARCHING);
  for (const word of ['alpha', 'beta', 'gamma']) await uploadWhole(rig.recorder, cast(`needle ${word}`));
  await place(rig, '2026-01-02T00:00:00', `${cast('old needle alpha')}broken\n`);
  const sessions = await found(rig, 'needle', 4);
  await ready(rig, 4);
  const answers = async (): Promise<readonly string[]> => {
    const all: string[] = [];
    for (const query of [
      '',
      'needle',
      '"needle beta"',
      'need*',
      'needle NOT alpha',
      'old OR gamma',
      'absent',
    ]) {
      const q = encodeURIComponent(query);
      for (const path of [
        `search?q=${q}`,
        `search?q=${q}&limit=2`,
        `search/facets?q=${q}`,
        `recordings?text=${q}`,
        ...sessions.map(({ recording }) => `recordings/${encodeURIComponent(recording.id)}/search?q=${q}`),
      ]) {
        const { status, body } = await rig.get(`/api/v1/${path}`);
        expect(status, body).toBe(200);
        const { index: _index, ...kept } = JSON.parse(body) as Record<string, unknown>;
        all.push(`${path} ${JSON.stringify(kept)}`);
      }
    }
    return all;
  };
  const before = await answers();
  expect(before.join('')).toContain('"next"');
  const files = await bytesOfIndex(rig);
  expect(await run('index', 'rebuild', '--recorder', rig.recorder.url)).toMatchObject({ code: 0 });
  await ready(rig, 4);
  expect(await bytesOfIndex(rig)).not.toBe(files);
  expect(await answers()).toEqual(before);
});
