/** Recordings of other programs, as found in existing archives. */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { readCastStart } from '../../../src/screen/cast-reader.ts';
import { screenText } from '../../../src/screen/cells.ts';
import { Playback } from '../../../src/screen/playback.ts';
import { createTerminal } from '../../../src/screen/terminal.ts';
import type { CatalogEntry } from '../../../src/tsrecorder/library/catalog-entry.ts';
import { createDescriber } from '../../../src/tsrecorder/library/describe-stored.ts';
import { readCast } from '../../../src/tsrecorder/library/replay.ts';
import { buildPlayIndex, type BuiltIndex } from '../../../src/bundle/build-index.ts';
import { createS3Store } from '../../../src/tsrecorder/store/s3.ts';
import { createMemoryBucket } from '../store/memory-bucket.ts';

const KEY = { nodeId: 'nGATE1CNTRL', time: '2026-07-29T11:50:50.123456789Z' };

function pathOf(name: string): string {
  return join(import.meta.dirname, '../../fixtures/field', `${name}.cast`);
}

async function stored(cast: Uint8Array): Promise<CatalogEntry> {
  const bucket = createMemoryBucket();
  await bucket.put(`${KEY.nodeId}/${KEY.time}.cast`, cast);
  const store = createS3Store({ bucket, nowMs: () => 0, recentMs: 0, fullListMs: 0 });
  const described = await createDescriber(store, 10)({ key: KEY, hasSidecar: false });
  if (described === undefined) throw new Error('the recording is not in the store');
  return described.entry;
}

function indexOf(entry: CatalogEntry): Promise<BuiltIndex> {
  return buildPlayIndex({
    chunks: readCast(entry, { start: 0, end: Infinity }),
    places: [],
    onFrame: async () => undefined,
    onProgress: () => undefined,
  });
}

interface Opened {
  readonly playback: Playback;
  readonly screen: () => string;
}

async function open(cast: Uint8Array): Promise<Opened> {
  const headerBytes = cast.indexOf(0x0a) + 1;
  const start = readCastStart(Buffer.from(cast.subarray(0, headerBytes)).toString());
  const terminal = createTerminal({ ...start.size, withoutTerminal: start.withoutTerminal });
  const playback = new Playback({
    cast: { bytes: cast.length, read: async (from, to) => cast.subarray(from, to) },
    start,
    headerBytes,
    terminal,
    seconds: undefined,
    loadFrame: () => Promise.reject(new Error('there are no keyframes')),
    onChange: () => undefined,
  });
  return { playback, screen: () => screenText(terminal.emulator) };
}

describe('the screen', () => {
  it.each([
    ['emoji-width', '🎉ax\n[✅]|ok'],
    ['esc-k-title', '$ echo hi\nhi'],
  ])('of %s is the same in player and transcript', async (name, expected) => {
    const cast = await readFile(pathOf(name));
    const { playback, screen } = await open(cast);
    await playback.seek(1e6);
    expect(screen()).toBe(expected);
    const { transcript } = await indexOf(await stored(cast));
    expect(
      transcript.rows
        .map(([, text]) => text)
        .slice(-2)
        .join('\n'),
    ).toBe(expected);
  });
});

describe('the duration', () => {
  it('is known if the last lines are blank', async () => {
    const { recording } = await stored(await readFile(pathOf('blank-last-lines')));
    expect(recording).toMatchObject({ state: 'completed', durationSeconds: 8.5 });
  });
});

describe('idle_time_limit', () => {
  const header = '{"version":2,"width":40,"height":4,"idle_time_limit":1}\n';
  const cast = Buffer.from(`${header}[1,"o","one "]\n[100,"o","two"]\n`);

  it('shortens pauses of the player, even if it does not skip idle time', async () => {
    const { playback, screen } = await open(cast);
    playback.skipsIdle = false;
    await playback.seek(0);
    playback.play();
    for (let count = 0; count < 30 && !playback.state.ended; count += 1) {
      playback.tick(0.2);
      while (playback.state.waiting) await new Promise((resolve) => setImmediate(resolve));
    }
    expect(screen()).toBe('one two');
  });
});

describe('a stored cast that was damaged', () => {
  it('has a notice for bytes that are not UTF-8', async () => {
    const text = '{"version":2,"width":40,"height":4,"timestamp":1}\n[1,"o","one"]\n[2,"o","two"]\n';
    const cast = Buffer.from(text);
    cast.fill(0xff, text.indexOf('one'), text.indexOf('one') + 2);
    const { index } = await indexOf(await stored(cast));
    expect(index).toMatchObject({ badLines: 1, isCut: false });
    expect(index.marks).toEqual([{ at: 1, kind: 'damage', text: 'a line is not UTF-8' }]);
    const replaced = Buffer.from(text.replace('one', 'o\ufffde'));
    expect((await indexOf(await stored(replaced))).index.badLines).toBe(0);
  });
});
