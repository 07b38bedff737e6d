/** Searches while recordings grow and viewer rules change, and searches with queries of any length. */
import { mkdtemp, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { spooledFiles } from '../../../src/tsrecorder/library/cast-pieces.ts';
import type { CatalogEntry } from '../../../src/tsrecorder/library/catalog-entry.ts';
import type { LiveRecording } from '../../../src/tsrecorder/library/live-recording.ts';
import { castBytes as bytesOfCast, readCast } from '../../../src/tsrecorder/library/replay.ts';
import type { ReadableStore } from '../../../src/tsrecorder/store/store.ts';
import { parseViewRule, type Viewer } from '../../../src/tsrecorder/serving/viewing.ts';
import { createRig, HEADER, until, uploadWhole, type Rig } from '../recorder-rig.ts';

function cast(text: string, user = 'a@example.com', namespace = 'prod'): string {
  const header = HEADER.replace('a@example.com', user).replace(
    '"Namespace":"prod"',
    `"Namespace":"${namespace}"`,
  );
  return `${header}${JSON.stringify([1.5, 'o', `${text}\r\n`])}\n`;
}

interface Answered {
  readonly sessions: readonly {
    readonly recording: { readonly state: string; readonly kubernetes: { readonly namespace: string } };
  }[];
  readonly next?: string;
}

async function search(rig: Rig, query: string, more = ''): Promise<Answered | undefined> {
  const { status, body } = await rig.get(`/api/v1/search?q=${encodeURIComponent(query)}${more}`);
  return status === 200 ? (JSON.parse(body) as Answered) : undefined;
}

async function found(rig: Rig, query: string, count: number): Promise<Answered> {
  return until(async () => {
    const answer = await search(rig, query);
    return answer?.sessions.length === count ? answer : undefined;
  });
}

it('the index reads a growing cast up to the durable bytes, even if more was received', async () => {
  const directory = await mkdtemp(join(tmpdir(), 'tailcast-durable-'));
  const path = join(directory, 'spooled.cast');
  await writeFile(path, `${cast('durable')}${cast('latecanary')}`);
  let castBytes = 0;
  const live = {
    key: { nodeId: 'nA', time: '2026-01-02T00:00:00.000000000Z' },
    paths: { cast: path, notes: path },
    durable: () => ({ castBytes, notesBytes: 0, bodyBytes: 0 }),
  } as LiveRecording;
  const { cast: piece } = spooledFiles({} as ReadableStore, live);
  expect(piece.end()).toBe(0);
  castBytes = cast('durable').length;
  expect(piece.end()).toBe(castBytes);
  const entry = { pieces: [{ ...piece, start: 0 }], live } as unknown as CatalogEntry;
  expect(bytesOfCast(entry)).toBe(castBytes);
  const read = await Array.fromAsync(readCast(entry, { start: 0, end: bytesOfCast(entry) }));
  expect(Buffer.concat(read).toString()).toBe(cast('durable'));
});

it('a rule that is narrowed between two pages applies to the second page', async () => {
  let viewer: Viewer = { node: 'desk', nodeId: 'nDESK', user: 'alice@example.com' };
  const options = {
    searchText: 'all',
    identifyViewer: async (): Promise<Viewer> => viewer,
  } as const;
  const wide = [
    'alice@example.com=namespace:prod',
    'alice@example.com=namespace:dev',
    'tag:all',
    'tag:dev=namespace:dev',
  ];
  await using rig = await createRig({ ...options, viewers: wide.map(parseViewRule) });
  for (let number = 0; number < 8; number += 1)
    await uploadWhole(
      rig.recorder,
      cast(`needle word${number}`, 'a@example.com', number % 2 === 0 ? 'prod' : 'dev'),
    );
  await found(rig, 'needle', 8);
  const first = (await search(rig, 'needle', '&limit=3'))!;
  expect(first.sessions.map(({ recording }) => recording.kubernetes.namespace)).toEqual([
    'dev',
    'prod',
    'dev',
  ]);
  const cursor = `&limit=3&cursor=${encodeURIComponent(first.next!)}`;
  const namespaces = ({ sessions }: Answered): readonly string[] =>
    sessions.map(({ recording }) => recording.kubernetes.namespace);
  expect(namespaces((await search(rig, 'needle', cursor))!)).toEqual(['prod', 'dev', 'prod']);
  // requests the next page of the same query after the viewer's node has lost or got a tag, or has lost its user
  const asSeen = async (at: Rig, seen: Viewer): Promise<Answered> => {
    viewer = seen;
    return (await search(at, 'needle', cursor))!;
  };
  const node = { node: 'desk', nodeId: 'nDESK' };
  expect(namespaces(await asSeen(rig, { ...node, tags: ['tag:all'] }))).toEqual(['prod', 'dev', 'prod']);
  const narrowed = await asSeen(rig, { ...node, tags: ['tag:dev'] });
  expect(namespaces(narrowed)).toEqual(['dev', 'dev']);
  expect(narrowed.next).toBeUndefined();
  expect(await asSeen(rig, { ...node, tags: ['tag:none'] })).toMatchObject({ sessions: [] });
  // requests the next page after a change of the viewer rules
  viewer = { ...node, user: 'alice@example.com' };
  const current = await rig.restart({ viewers: ['alice@example.com=namespace:dev'].map(parseViewRule) });
  await found(current, 'needle', 4);
  const rest = await asSeen(current, viewer);
  expect(namespaces(rest)).toEqual(['dev', 'dev']);
  for (const hidden of [0, 2, 4, 6]) expect(JSON.stringify(rest)).not.toContain(`word${hidden}`);
  const none = await current.restart({ viewers: ['bob@example.com'].map(parseViewRule) });
  expect(await until(async () => search(none, 'needle', cursor))).toMatchObject({ sessions: [] });
  await none.recorder.close();
});

it('a query of any length gets results or an error, and the next query works', async () => {
  await using rig = await createRig({ searchText: 'all' });
  await uploadWhole(rig.recorder, cast('needle'));
  await found(rig, 'needle', 1);
  for (const [length, status] of [
    [512, 200],
    [513, 400],
    [1024, 400],
    [1025, 400],
    [12_000, 400],
    [100_000, 431],
  ] as const) {
    const { status: answered, body } = await rig.get(`/api/v1/search?q=${'x'.repeat(length)}`);
    expect([answered, body.length < 1000], `${length}`).toEqual([status, true]);
  }
  for (const bytes of ['%00', 'needle%00', '%ED%A0%BD', '%ff%fe', '%F0%9F%91', '%']) {
    const { status, body } = await rig.get(`/api/v1/search?q=${bytes}`);
    expect([200, 400], `${bytes} ${body}`).toContain(status);
  }
  expect((await search(rig, 'needle'))?.sessions).toHaveLength(1);
});
