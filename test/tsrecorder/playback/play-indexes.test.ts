import { mkdir, mkdtemp, readdir, rm, stat, utimes, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';
import { describe, expect, it } from 'vitest';
import { TailcastError } from '../../../src/errors.ts';
import { GROWING_STEP_BYTES, type PlayIndex } from '../../../src/screen/play-index.ts';
import { describeState } from '../../../src/screen/snapshot.ts';
import { createTerminal } from '../../../src/screen/terminal.ts';
import { createLogger } from '../../../src/observe/logger.ts';
import type { TranscriptDocument } from '../../../src/search/transcript-document.ts';
import type { CatalogEntry } from '../../../src/tsrecorder/library/catalog-entry.ts';
import {
  openPlayIndexes,
  type PlayIndexes,
  type PlayIndexOptions,
} from '../../../src/tsrecorder/playback/play-indexes.ts';
import { buildPlayIndex, type KnownPlace } from '../../../src/bundle/build-index.ts';
import { createRig, HEADER } from '../recorder-rig.ts';

const HEAD = '{"version":2,"width":40,"height":10,"srcNode":"a","srcNodeID":"b","tailcast":1}\n';

async function build(
  text: string,
  places: readonly KnownPlace[] = [],
): Promise<{ index: PlayIndex; screens: string[]; transcript: TranscriptDocument }> {
  const screens: string[] = [];
  const bytes = Buffer.from(text);
  async function* chunks(): AsyncGenerator<Uint8Array> {
    for (let start = 0; start < bytes.length; start += 60_001) yield bytes.subarray(start, start + 60_001);
  }
  const built = await buildPlayIndex({
    chunks: chunks(),
    places,
    onFrame: async (screen) => void screens.push(screen),
    onProgress: () => undefined,
  });
  return { ...built, screens };
}

/** Returns a cast with a few megabytes of output of full-screen programs. */
function busyCast(): string {
  const lines = [HEAD];
  for (let count = 0; count < 30_000; count += 1) {
    const at = `\x1b[${(count % 10) + 1};${(count % 37) + 1}H`;
    const text =
      count % 500 === 250
        ? '\x1b[?1049h\x1b[3;8r'
        : count % 500 === 0
          ? '\x1b[?1049l\x1b[r'
          : `${at}\x1b[3${count % 8}m漢 ${count}\r\n`;
    lines.push(`${JSON.stringify([count / 100, 'o', text + '\x1b[0m '.repeat(10)])}\n`);
    if (count % 7000 === 6999) lines.push(`[${count / 100},"r","${40 + (count % 3)}x${10 + (count % 4)}"]\n`);
  }
  return lines.join('');
}

describe('a play index', () => {
  it('has keyframes from which playback shows the same as from the start', async () => {
    const text = busyCast();
    const { index, screens } = await build(text);
    expect(index.frames.length).toBeGreaterThanOrEqual(3);
    expect(screens).toHaveLength(index.frames.length);
    const bytes = Buffer.from(text);
    const whole = createTerminal({ columns: 40, rows: 10, withoutTerminal: false });
    let position = HEAD.length;
    const playTo = async (terminal: typeof whole, from: number, to: number): Promise<void> => {
      let text = '';
      for (const line of bytes.subarray(from, to).toString().split('\n')) {
        if (line === '') continue;
        const [, code, data] = JSON.parse(line) as [number, string, string];
        if (code === 'o') text += data;
        else {
          await terminal.write(text);
          text = '';
          const [columns = 0, rows = 0] = data.split('x').map(Number);
          terminal.resize({ columns, rows });
        }
      }
      await terminal.write(text);
    };
    for (const [number, frame] of index.frames.entries()) {
      await playTo(whole, position, frame.offset);
      position = frame.offset;
      const restored = createTerminal({ ...frame, withoutTerminal: false });
      await restored.write(screens[number] ?? '');
      expect(describeState(restored.emulator)).toBe(describeState(whole.emulator));
    }
  });

  it('has marks for resizes, gaps, damage and the interruption at their positions', async () => {
    const text = `${HEAD}[1,"o","a"]\n[2,"r","50x12"]\n[3,"m","deploy"]\nnonsense\n[5,"o","b"]\n[6,"o","lo`;
    const { index } = await build(text, [{ offset: text.indexOf('[5'), kind: 'gap', text: '7 bytes' }]);
    expect(index.marks.map(({ at, kind }) => [at, kind])).toEqual([
      [2, 'resize'],
      [3, 'marker'],
      [3, 'damage'],
      [3, 'gap'],
      [5, 'damage'],
    ]);
    expect(index).toMatchObject({ seconds: 5, characters: 2, badLines: 1, isCut: true, isBinary: false });
  });

  it('distinguishes data from text, without a terminal', async () => {
    const head = HEAD.replace('40', '0').replace('10', '0');
    const data = JSON.stringify([1, 'o', '\u0000\ufffdab'.repeat(100)]);
    expect((await build(`${head}${data}\n`)).index.isBinary).toBe(true);
    expect((await build(`${head}[1,"o","${'text\\n'.repeat(100)}"]\n`)).index.isBinary).toBe(false);
    expect((await build(`${HEAD}${data}\n`)).index.isBinary).toBe(false);
  });
});

describe('a transcript', () => {
  const prompt = (at: number, text: string): string => `${JSON.stringify([at, 'o', text])}\n`;

  it('contains all readable text once, in order of time, and commands as marks', async () => {
    const text = [
      HEAD,
      prompt(1, '$ '),
      prompt(2, 'vim notes\r\n'),
      prompt(3, '\x1b[?1049h\x1b[Hin the editor\x1b[5;1Hstatus'),
      prompt(4, '\x1b[?1049l$ '),
      prompt(5, '\x1b]133;C;cmdline_url=rm%20-rf%20x\x07done\r\n'),
      prompt(6, '\x1b[Hdone'),
    ].join('');
    const { transcript, index } = await build(text, [{ offset: 0, kind: 'part', text: 'part 2 of 2' }]);
    expect(transcript.rows.map(([, row]) => row)).toEqual([
      '$',
      '$ vim notes',
      'in the editor',
      'status',
      '$ done',
      'donem notes',
    ]);
    const times = transcript.rows.map(([at]) => at);
    expect(times).toEqual(times.toSorted((left, right) => left - right));
    expect(index.marks.map(({ kind, text: about }) => [kind, about])).toEqual([
      ['part', 'part 2 of 2'],
      ['command', 'vim notes'],
      ['command', 'rm -rf x'],
    ]);
    expect(transcript.isPartial).toBe(false);
  });

  it('marks missing output on the time line even if the output contains many commands', async () => {
    const lines = Array.from({ length: 3000 }, (_, n) => prompt(n, `\x1b]133;C;cmdline_url=c${n}\x07`));
    const { index } = await build(HEAD + lines.join(''), [
      { offset: 1e9, kind: 'gap', text: 'output missing' },
    ]);
    expect(index.marks.filter(({ kind }) => kind === 'command')).toHaveLength(1000);
    expect(index.marks.filter(({ kind }) => kind === 'gap')).toHaveLength(1);
    expect(index.markCount).toBe(3001);
  });

  it('has a limited size, and reports that it is incomplete', async () => {
    const lines = Array.from({ length: 9000 }, (_, n) => prompt(n, `${n} ${'word '.repeat(200)}\r\n`));
    const { transcript } = await build(HEAD.replace('"width":40', '"width":1000') + lines.join(''));
    const text = transcript.rows.reduce((sum, [, row]) => sum + row.length, 0);
    expect(text).toBeLessThanOrEqual(8 * 1024 ** 2);
    expect(text).toBeGreaterThan(7 * 1024 ** 2);
    expect(transcript.isPartial).toBe(true);
  });

  it('is served to everyone who may view the recording', async () => {
    await using rig = await createRig();
    const id = await put(rig.directory, HEADER + '[1,"o","hello there\\r\\n"]\n');
    const text = await settled(() => rig.get(`/api/v1/recordings/${id}/transcript?view=1`));
    expect(JSON.parse(text)).toEqual({
      version: 2,
      rows: [[1, 'hello there']],
      isPartial: false,
      hidden: { characters: 0, rows: [] },
    });
    expect((await rig.get('/api/v1/recordings/nX_2026-01-02T03:04:05.000000001Z/transcript')).status).toBe(
      404,
    );
  });
});

describe('the recorder', () => {
  it('creates the index at the first view, keeps it, and creates it again after it was removed', async () => {
    await using rig = await createRig();
    const id = await put(rig.directory, busyCast());
    const first = await settled(() => rig.get(`/api/v1/recordings/${id}/playback`));
    const frames = (JSON.parse(first) as PlayIndex).frames;
    expect(frames.length).toBeGreaterThanOrEqual(3);
    const frame = await rig.get(`/api/v1/recordings/${id}/playback?frame=1`);
    expect(JSON.parse(frame.body)).toContain('\x1b[');
    expect((await rig.get(`/api/v1/recordings/${id}/playback?frame=9999`)).status).toBe(404);
    const folder = join(rig.spool, 'playback');
    const kept = await findFolder(rig.directory, folder);
    expect((await readdir(kept)).map((name) => name.replace(/^.*\./, '.')).toSorted()).toEqual([
      '.frames',
      '.json',
      '.text',
    ]);
    // broken indexes are built again
    for (const name of await readdir(kept)) await writeFile(join(kept, name), '{"half":');
    expect(await settled(() => rig.get(`/api/v1/recordings/${id}/playback`))).toBe(first);
  });

  it('creates the index again after a file with the same size and time took the place of the recording', async () => {
    await using rig = await createRig();
    const text = (word: string): string => `${HEAD}[0.1,"o","${word}\\r\\n"]\n`;
    const id = await put(rig.directory, text('forged'));
    const path = join(rig.directory, 'nX', '2026-01-02T03:04:05.000000000Z.cast');
    await utimes(path, 1_800_000_000, 1_800_000_000);
    const transcript = (): Promise<string> => settled(() => rig.get(`/api/v1/recordings/${id}/transcript`));
    expect(await transcript()).toContain('forged');
    await writeFile(path, text('honest'));
    await utimes(path, 1_800_000_000, 1_800_000_000);
    await expect.poll(transcript).toContain('honest');
  });

  it('reports that an invalid recording has no index, and continues', async () => {
    await using rig = await createRig();
    const id = await put(rig.directory, 'no header\n');
    await expect.poll(async () => (await rig.get(`/api/v1/recordings/${id}/playback`)).status).toBe(404);
    expect((await rig.get('/readyz')).status).toBe(200);
  });

  it('sends one access event for one viewing, and one for each download', async () => {
    await using rig = await createRig();
    const id = await put(rig.directory, HEADER + '[1,"o","x"]\n');
    const path = `/api/v1/recordings/${id}`;
    for (let count = 0; count < 5; count += 1) {
      await rig.get(`${path}?view=1`);
      await rig.get(`${path}/cast?view=1`, { range: `bytes=${count}-` });
      await rig.get('/api/v1/recordings');
    }
    await rig.get(`${path}/cast`);
    await rig.get(`${path}/cast`);
    const { body } = await rig.get('/api/v1/events?type=tailcast-recording-access');
    const { events } = JSON.parse(body) as { events: { event: { action: string } }[] };
    expect(events.map(({ event }) => event.action).toSorted()).toEqual([
      'download',
      'download',
      'list',
      'play',
    ]);
  });
});

describe('the play indexes of a process', () => {
  const ids = ['nX_2026-01-02T03:04:05.000000000Z', 'nX_2026-01-02T03:04:06.000000000Z'] as const;

  /** Opens two recordings, and the folder of their indexes. */
  async function open(options: Partial<PlayIndexOptions> = {}): Promise<{
    readonly indexes: PlayIndexes;
    readonly entries: readonly [CatalogEntry, CatalogEntry];
    /** Names of the stored index files, without the versions of the recordings. */
    readonly kept: () => Promise<readonly string[]>;
    readonly directory: string;
    [Symbol.asyncDispose](): Promise<void>;
  }> {
    const rig = await createRig();
    await mkdir(join(rig.directory, 'nX'), { recursive: true });
    for (const id of ids)
      await writeFile(
        join(rig.directory, 'nX', `${id.slice(3)}.cast`),
        `${HEADER}[1,"o","hello ${id}\\r\\n"]\n`,
      );
    const found = await Promise.all(ids.map((id) => rig.recorder.catalog.find(id, 'everything')));
    const directory = await mkdtemp(join(tmpdir(), 'tailcast-playback-'));
    const indexes = await openPlayIndexes({
      directory,
      maxBytes: 1024 ** 2,
      maxBuilding: 1,
      maxWaiting: 1,
      placesOf: async () => [],
      log: createLogger({ level: 'silent' }),
      ...options,
    });
    return {
      indexes,
      entries: [found[0]!, found[1]!],
      kept: async () =>
        (await readdir(directory)).map((name) => decodeURIComponent(name).replace(/~[^.]*/, '')).toSorted(),
      directory,
      async [Symbol.asyncDispose]() {
        await indexes.close();
        await rig[Symbol.asyncDispose]();
      },
    };
  }

  async function made(indexes: PlayIndexes, entry: CatalogEntry): Promise<PlayIndex> {
    let index: PlayIndex | undefined;
    await expect
      .poll(async () => {
        const found = await indexes.find(entry);
        index = 'progress' in found ? undefined : found;
        return index;
      })
      .toBeDefined();
    return index!;
  }
  const filesOf = (id: string): string[] => ['frames', 'json', 'text'].map((ending) => `${id}.${ending}`);

  it('are all kept while there is space; otherwise the least recently used one is removed', async () => {
    await using roomy = await open();
    for (const entry of roomy.entries) await made(roomy.indexes, entry);
    expect(await roomy.kept()).toEqual(ids.flatMap(filesOf));
    // even if the size limit is smaller than one index, the newest index is kept
    await using narrow = await open({ maxBytes: 1 });
    await made(narrow.indexes, narrow.entries[0]);
    expect(await narrow.kept()).toEqual(filesOf(ids[0]));
    await made(narrow.indexes, narrow.entries[1]);
    await expect.poll(narrow.kept).toEqual(filesOf(ids[1]));
  });

  it('count as used when they are requested, and others are removed first', async () => {
    await using all = await open();
    for (const entry of all.entries) await made(all.indexes, entry);
    const sizes = await Promise.all(
      (await readdir(all.directory)).map(async (name) => (await stat(join(all.directory, name))).size),
    );
    const total = sizes.reduce((sum, size) => sum + size, 0);
    for (const name of await readdir(all.directory)) {
      const isFirst = name.startsWith(encodeURIComponent(ids[0]));
      const seconds = isFirst ? 1000 : 2000;
      await utimes(join(all.directory, name), seconds, seconds);
    }
    // a request for the older index makes this index the most recently used one
    await made(all.indexes, all.entries[0]);
    const third = { ...all.entries[0], recording: { ...all.entries[0].recording, id: 'nX_third' } };
    const indexes = await openPlayIndexes({
      directory: all.directory,
      // space for two indexes
      maxBytes: total + 100,
      maxBuilding: 1,
      maxWaiting: 1,
      placesOf: async () => [],
      log: createLogger({ level: 'silent' }),
    });
    await made(indexes, third);
    await expect.poll(all.kept).toEqual([...filesOf(ids[0]), ...filesOf('nX_third')]);
    await indexes.close();
  });

  it('are started for thumbnails only while half of the queue is free', async () => {
    const go = Promise.withResolvers<readonly []>();
    await using all = await open({ maxWaiting: 2, placesOf: () => go.promise });
    const [first] = all.entries;
    const named = (id: string): CatalogEntry => ({ ...first, recording: { ...first.recording, id } });
    const listed = ['nX_1', 'nX_2', 'nX_3', 'nX_4'].map(named);
    expect(await all.indexes.thumbnails(listed)).toEqual(new Map());
    // thumbnails may use only one running and one queued build, so a viewer's request still fits into the queue
    expect(await all.indexes.find(named('nX_played'))).toEqual({ progress: 0 });
    await expect(all.indexes.find(named('nX_other'))).rejects.toMatchObject({ code: 'RECORDER_BUSY' });
    go.resolve([]);
  });

  it('are created one after another, and too many requests are refused', async () => {
    const go = Promise.withResolvers<readonly []>();
    let asked = 0;
    await using all = await open({
      placesOf() {
        asked += 1;
        return go.promise;
      },
    });
    const [first, second] = all.entries;
    expect(await all.indexes.find(first)).toEqual({ progress: 0 });
    expect(await all.indexes.transcript(second)).toEqual({ progress: 0 });
    expect(asked).toBe(1);
    // a repeated request does not add a build
    expect(await all.indexes.find(first)).toEqual({ progress: 0 });
    const third = { ...first, recording: { ...first.recording, id: 'nX_third' } };
    await expect(all.indexes.find(third)).rejects.toMatchObject({ code: 'RECORDER_BUSY' });
    go.resolve([]);
    for (const entry of all.entries) await made(all.indexes, entry);
    expect(asked).toBe(2);
  });

  it('that could not be created are not tried again, and leave no files', async () => {
    let asked = 0;
    await using all = await open({
      async placesOf() {
        asked += 1;
        throw new Error('no notes');
      },
    });
    const [entry] = all.entries;
    for (const _ of [1, 2])
      await expect(all.indexes.find(entry)).rejects.toMatchObject({
        code: 'PLAY_INDEX_UNAVAILABLE',
        message: expect.stringContaining('no notes'),
      });
    expect(asked).toBe(1);
    expect(await all.kept()).toEqual([]);
  });

  it('that could not be created because the store failed are tried again', async () => {
    let isDown = true;
    await using all = await open({
      async placesOf() {
        if (isDown) throw new TailcastError('STORE_FAILED', 'the bucket does not respond');
        return [];
      },
    });
    const [entry] = all.entries;
    await expect(all.indexes.find(entry)).rejects.toMatchObject({ code: 'PLAY_INDEX_UNAVAILABLE' });
    isDown = false;
    await made(all.indexes, entry);
  });

  it('exist only for finished sessions, and have no missing frames', async () => {
    await using all = await open();
    const [entry] = all.entries;
    await expect(all.indexes.frame(entry, 0)).rejects.toMatchObject({ code: 'PLAY_INDEX_UNAVAILABLE' });
    await made(all.indexes, entry);
    await expect(all.indexes.frame(entry, 0)).rejects.toMatchObject({ code: 'PLAY_INDEX_UNAVAILABLE' });
    await expect(all.indexes.find({ ...entry, version: undefined })).rejects.toThrow(
      'the session is not over',
    );
  });

  it('cover complete steps of a running session, and keyframes stay valid when it grows and ends', async () => {
    await using all = await open({ maxBytes: 1024 ** 3 });
    // the recording consists mostly of input, which is fast to index because it is not rendered
    const typed = 'x'.repeat(60_000);
    const lines = Array.from(
      { length: Math.ceil(GROWING_STEP_BYTES / typed.length) + 2 },
      (_, second) => `[${second},"o","second ${second}\\r\\n"]\n[${second},"i","${typed}"]\n`,
    );
    const bytes = Buffer.from(HEADER + lines.join(''));
    const entryOf = (version: string | undefined, length = bytes.length): CatalogEntry => ({
      ...all.entries[0],
      version,
      pieces: [
        {
          start: 0,
          end: () => length,
          async *read({ start, end }) {
            for (let at = start; at < end; at += 1_000_000)
              yield bytes.subarray(at, Math.min(end, at + 1_000_000));
          },
          live: undefined,
        },
      ],
    });
    const running = entryOf(undefined);
    const index = await made(all.indexes, running);
    expect(index.frames.length).toBeGreaterThan(10);
    expect(index.frames.every(({ offset }) => offset < GROWING_STEP_BYTES)).toBe(true);
    const last = index.frames.length - 1;
    const screen = (await all.indexes.frame(running, last)).toString();
    expect(screen).toContain(`second ${index.frames[last]!.at}`);
    // keyframes of the indexed part remain valid before the rest of the recording is indexed
    expect((await all.indexes.frame(entryOf(undefined, 2 * bytes.length), last)).toString()).toBe(screen);
    expect((await all.indexes.frame(entryOf('whole'), last)).toString()).toBe(screen);
    const whole = await made(all.indexes, entryOf('whole'));
    expect(whole.frames.slice(0, index.frames.length)).toEqual(index.frames);
    expect((await all.indexes.frame(entryOf('whole'), last)).toString()).toBe(screen);
    await expect(all.indexes.transcript(running)).rejects.toThrow('the session is not over');
  });

  it('are cancelled without a log message when the process exits', async () => {
    const go = Promise.withResolvers<readonly []>();
    const lines: string[] = [];
    await using all = await open({
      placesOf: () => go.promise,
      log: createLogger({ level: 'warn', destination: { write: (line) => void lines.push(line) } }),
    });
    expect(await all.indexes.find(all.entries[0])).toEqual({ progress: 0 });
    expect(await all.indexes.find(all.entries[1])).toEqual({ progress: 0 });
    const closed = all.indexes.close();
    go.reject(new Error('closing'));
    await closed;
    expect(await all.kept()).toEqual([]);
    expect(lines).toEqual([]);
  });

  it('of an earlier process are removed if they are incomplete', async () => {
    await using all = await open();
    await made(all.indexes, all.entries[0]);
    const whole = await all.kept();
    for (const name of ['other.frames', 'other.text', 'other.json.new'])
      await writeFile(join(all.directory, name), 'x');
    const again = await openPlayIndexes({
      directory: all.directory,
      maxBytes: 1024 ** 2,
      maxBuilding: 1,
      maxWaiting: 1,
      placesOf: async () => [],
      log: createLogger({ level: 'silent' }),
    });
    expect(await all.kept()).toEqual(whole);
    expect(gunzipSync((await again.transcript(all.entries[0])) as Buffer).toString()).toContain('hello');
    await again.close();
  });
});

describe('the data that is derived from a removed recording', () => {
  const retention = { maxAgeMs: 1000 };
  const old = 'nX_2026-01-02T03:04:05.000000000Z';

  it('is removed with it', async () => {
    const directory = await mkdtemp(join(tmpdir(), 'tailcast-playback-'));
    const folder = join(`${directory}.spool`, 'playback');
    await mkdir(folder, { recursive: true });
    for (const id of [old, 'nY_2026-01-02T03:04:05.000000000Z'])
      for (const ending of ['json', 'frames', 'text'])
        await writeFile(join(folder, `${encodeURIComponent(`${id}~1`)}.${ending}`), 'x');
    await put(directory, HEADER + '[1,"o","x"]\n');
    await using _rig = await createRig({ retention }, directory);
    await expect
      .poll(async () => (await readdir(folder)).filter((name) => name.startsWith('nX')))
      .toEqual([]);
    expect(await readdir(folder)).toHaveLength(3);
  });

  it('is not created again by an index that was being built', async () => {
    const directory = await mkdtemp(join(tmpdir(), 'tailcast-playback-'));
    const gaps = Promise.withResolvers<readonly []>();
    const asked = Promise.withResolvers<void>();
    const lines: string[] = [];
    const log = createLogger({ level: 'warn', destination: { write: (line) => void lines.push(line) } });
    const indexes = await openPlayIndexes({
      directory,
      maxBytes: 1024 ** 2,
      maxBuilding: 1,
      maxWaiting: 1,
      placesOf() {
        asked.resolve();
        return gaps.promise;
      },
      log,
    });
    await using rig = await createRig();
    const id = await put(rig.directory, HEADER + '[1,"o","x"]\n');
    const entry = await rig.recorder.catalog.find(id, 'everything');
    const found = indexes.find(entry!);
    await asked.promise;
    await indexes.forget([id]);
    gaps.resolve([]);
    await found.catch(() => undefined);
    await expect.poll(() => lines.join('')).toContain('the recording was removed');
    expect(await readdir(directory)).toEqual([]);
    await indexes.close();
    await rm(directory, { recursive: true });
  });
});

async function put(directory: string, text: string): Promise<string> {
  await mkdir(join(directory, 'nX'), { recursive: true });
  await writeFile(join(directory, 'nX', '2026-01-02T03:04:05.000000000Z.cast'), text);
  return 'nX_2026-01-02T03:04:05.000000000Z';
}

async function findFolder(root: string, usual: string): Promise<string> {
  const found = (await readdir(root, { recursive: true })).find((name) => name.endsWith('/playback'));
  return found === undefined ? usual : join(root, found);
}

/** Repeats the request until the index is built. */
async function settled(ask: () => Promise<{ status: number; body: string }>): Promise<string> {
  let body = '';
  await expect
    .poll(async () => {
      const answer = await ask();
      body = answer.body;
      return answer.status;
    })
    .toBe(200);
  return body;
}
