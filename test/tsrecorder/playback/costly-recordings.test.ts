/**
 * Recordings that cost too much to render. The recorder stops building their indexes and marks the indexes as
 * incomplete. The recorder continues to serve other recordings.
 */
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import type { PlayIndex } from '../../../src/screen/play-index.ts';
import type { TranscriptDocument } from '../../../src/search/transcript-document.ts';
import { buildPlayIndex } from '../../../src/bundle/build-index.ts';
import { COSTLY_PROGRAMS, costlyCast, withLargeScreen } from '../../support/costly-programs.ts';
import { createRig, HEADER, until, type Rig } from '../recorder-rig.ts';

const COSTLY = costlyCast(
  // this program is costly to render, although the emulator limits the parameters of control sequences
  COSTLY_PROGRAMS.find(([name]) => name === 'overwrites a long line')?.[1] ?? '',
  withLargeScreen(HEADER),
);

async function build(cast: string): Promise<{ index: PlayIndex; transcript: TranscriptDocument }> {
  async function* chunks(): AsyncGenerator<Uint8Array> {
    yield Buffer.from(cast);
  }
  return buildPlayIndex({
    chunks: chunks(),
    places: [],
    onFrame: async () => undefined,
    onProgress: () => undefined,
  });
}

describe('a play index', () => {
  it.each(COSTLY_PROGRAMS)('of a program that %s reports where it stops', async (_name, events) => {
    const { index, transcript } = await build(costlyCast(events.repeat(10)));
    expect(index.stoppedAt).toBeGreaterThanOrEqual(0);
    expect(index.stoppedAt).toBeLessThanOrEqual(index.seconds);
    expect(transcript.isPartial).toBe(true);
    expect(transcript.stoppedAt).toBeLessThanOrEqual(index.seconds);
    expect(transcript.rows.map(([, text]) => text)).toContain('the first line');
  });

  it('of a normal program does not stop', async () => {
    const events = Array.from({ length: 5000 }, (_, at) =>
      JSON.stringify([at, 'o', `\x1b[H\x1b[Jline ${at}\r\n`]),
    );
    const { index, transcript } = await build(`${HEADER}${events.join('\n')}\n`);
    expect(index).not.toHaveProperty('stoppedAt');
    expect(transcript).not.toHaveProperty('stoppedAt');
  });
});

/** Stores recordings of one node. @returns their ids */
async function put(rig: Rig, node: string, casts: readonly string[]): Promise<readonly string[]> {
  await mkdir(join(rig.directory, node), { recursive: true });
  return Promise.all(
    casts.map(async (cast, at) => {
      const time = `2026-01-02T03:04:05.${String(at).padStart(9, '0')}Z`;
      await writeFile(join(rig.directory, node, `${time}.cast`), cast);
      return `${node}_${time}`;
    }),
  );
}

const playback = (id: string): string => `/api/v1/recordings/${id}/playback?view=1`;

async function made(rig: Rig, id: string, refusals: number[] = []): Promise<PlayIndex> {
  return until(async () => {
    const { status, body } = await rig.get(playback(id));
    if (status !== 200 && status !== 202) refusals.push(status);
    return status === 200 ? (JSON.parse(body) as PlayIndex) : undefined;
  });
}

describe('a recorder', () => {
  it('serves the index of another user while a user has more costly recordings than it may queue', async () => {
    await using rig = await createRig();
    const costly = await put(
      rig,
      'nHOSTILE',
      Array.from({ length: 60 }, () => COSTLY),
    );
    const header = HEADER.replaceAll('a@example.com', 'b@example.com');
    const [innocent = ''] = await put(rig, 'nINNOCENT', [`${header}[1,"o","hello\\r\\n"]\n`]);
    const asked = await Promise.all(costly.map((id) => rig.get(playback(id))));
    // at least one request is refused, because the queue of this user is full
    expect(asked.map(({ status }) => status)).toContain(503);
    const refusals: number[] = [];
    const index = await made(rig, innocent, refusals);
    expect(refusals).toEqual([]);
    expect(index).not.toHaveProperty('stoppedAt');
    const first = await made(rig, costly[0] ?? '');
    expect(first.stoppedAt).toBeGreaterThanOrEqual(0);
    const { body } = await rig.get(`/api/v1/recordings/${costly[0]}/transcript?view=1`);
    expect(JSON.parse(body)).toMatchObject({ isPartial: true, stoppedAt: first.stoppedAt });
  });
});
