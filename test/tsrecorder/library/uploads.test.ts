/**
 * Compares pages of the list of sessions with a simple implementation, which sorts and joins all uploads. Names,
 * sessions and pages are random.
 */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  createPartFinder,
  sessionOf,
  storedCandidate,
  uploadsByMark,
  withoutCopies,
  type Candidate,
} from '../../../src/tsrecorder/library/sessions.ts';
import { Catalog } from '../../../src/tsrecorder/library/catalog.ts';
import {
  indexOfId,
  mergeUploads,
  newestStored,
  sessionsOf,
} from '../../../src/tsrecorder/library/uploads.ts';
import { newestFirst } from '../../../src/tsrecorder/library/scope.ts';
import type { DescribedPart } from '../../../src/tsrecorder/library/join-parts.ts';
import { sessionMark } from '../../../src/tsrecorder/library/session-part.ts';
import { formatTime, recordingId, recordingKey } from '../../../src/tsrecorder/store/key.ts';
import type { ReadableStore, StoredRecording } from '../../../src/tsrecorder/store/store.ts';
import type { Recording } from '../../../src/wire/recorder-api/recording.ts';
import { turnsDuring } from '../../support/loop-turns.ts';

const START = BigInt(Date.parse('2026-02-03T04:05:06Z')) * 1_000_000n;

/** Recordings whose times are written with and without trailing zeros. Several recordings have the same time. */
const recording = fc
  .record({
    nodeId: fc.constantFrom('nA', 'nB', 'n_A'),
    at: fc.nat(12),
    trimmed: fc.boolean(),
    session: fc.option(fc.constantFrom('x', 'y'), { nil: undefined }),
    hasSidecar: fc.boolean(),
  })
  .map(({ nodeId, at, trimmed, session, hasSidecar }): StoredRecording => {
    const full = formatTime(START + BigInt(at) * 100_000_000n);
    const time = trimmed ? full.replace(/\.?0*Z$/, 'Z') : full;
    const mark = session === undefined ? {} : { sessionMark: sessionMark(nodeId, session) };
    return { key: { nodeId, time }, hasSidecar, ...mark };
  });
const recordings = fc.uniqueArray(recording, { selector: ({ key }) => recordingId(key), maxLength: 40 });

/** Describes a recording as a part of the given session. */
const described = ({ key }: StoredRecording, session: string): DescribedPart => {
  const recording: Recording = {
    id: recordingId(key),
    key: recordingKey(key),
    state: 'interrupted',
    startedAt: key.time,
    bytes: 0,
    width: 0,
    height: 0,
    kind: 'exec',
    source: { node: '', nodeId: '' },
    destination: { node: '', nodeId: key.nodeId },
  };
  const cast = { end: () => 0, read: () => fromNothing(), live: undefined };
  return {
    entry: { recording, key, resizeOrder: 'columnsFirst', pieces: [], live: undefined, version: undefined },
    part: { session, number: 1, offset: 0, headerBytes: 0, headerEnd: 0 },
    files: { cast, notes: undefined },
    bodyEnd: 0,
    gapCount: 0,
  };
};
async function* fromNothing(): AsyncGenerator<Uint8Array> {
  // yields nothing, because all recordings of this test are empty
}

const candidateOf = (stored: StoredRecording): Candidate => {
  const sessions = ['x', 'y', recordingId(stored.key)];
  const session = sessions.find((name) => sessionMark(stored.key.nodeId, name) === stored.sessionMark);
  return storedCandidate(stored, async () =>
    session === undefined ? undefined : described(stored, session),
  );
};
const idsOf = (list: readonly Candidate[]): readonly string[] =>
  list.map(({ id, others }) => [id, ...others.map((other) => other.id)].join(' '));

describe('the sessions of a page', () => {
  it('equal those of the complete list, sorted and joined', async () => {
    const bound = fc.option(fc.nat(13), { nil: undefined });
    const orderAt = (at: number): string => formatTime(START + BigInt(at) * 100_000_000n);
    await fc.assert(
      fc.asyncProperty(
        recordings,
        recordings,
        bound,
        bound,
        fc.integer({ min: 1, max: 50 }),
        async (all, live, to, from, limit) => {
          const stored = all.toSorted(newestStored);
          const uploads = stored.map(candidateOf);
          // running sessions. If a session also has a stored upload, both have the same session mark, which connects
          // the parts of a session
          const beside = live.slice(0, 5).map((one) => {
            const id = recordingId(one.key);
            const there = all.find(({ key }) => recordingId(key) === id);
            const own = one.sessionMark ?? sessionMark(one.key.nodeId, id);
            return candidateOf({ ...one, sessionMark: there?.sessionMark ?? own });
          });
          const before = to === undefined ? undefined : orderAt(to);
          const range = { before, from: from === undefined ? '' : orderAt(from) };
          const byMark = await uploadsByMark(uploads);
          const merged = mergeUploads(beside, { all: stored, candidate: candidateOf, byMark });
          const found = (await Array.fromAsync(sessionsOf(merged, range))).slice(0, limit);
          const sorted = withoutCopies(beside, uploads).toSorted(newestFirst);
          const known = await uploadsByMark(sorted);
          const findParts = createPartFinder({ ofMark: (mark) => known.get(mark) ?? [] });
          const sessions = await Promise.all(sorted.map((upload) => sessionOf(upload, findParts)));
          const whole = sessions.filter((session) => session !== undefined);
          const within = whole.filter(
            ({ order }) => order >= range.from && (before === undefined || order < before),
          );
          const wanted = within.slice(0, limit);
          // skips cases that end a page between two recordings of one node with the same time: either may come first
          fc.pre(within[limit] === undefined || within[limit].order !== wanted.at(-1)?.order);
          expect(idsOf(found).toSorted()).toEqual(idsOf(wanted).toSorted());
          expect(found.map(({ order }) => order)).toEqual(wanted.map(({ order }) => order));
        },
      ),
    );
  });
});

describe('a sorted listing', () => {
  it('finds each recording by its id, and no other recording', () => {
    fc.assert(
      fc.property(recordings, recordings, (all, others) => {
        const newest = all.toSorted(newestStored);
        for (const { key } of [...all, ...others]) {
          const id = recordingId(key);
          const found = newest[indexOfId(newest, id)];
          expect(found).toBe(all.find((one) => recordingId(one.key) === id));
        }
        for (const id of ['', 'nA', 'nA_', '_2026', 'nA_no time', '/_x'])
          expect(indexOfId(newest, id)).toBe(-1);
      }),
    );
  });
});

describe('a catalogue of many recordings', () => {
  const many = Array.from({ length: 20_000 }, (_, at): StoredRecording => {
    const time = formatTime(START + BigInt(at) * 1_000_000_000n);
    return { key: { nodeId: `n${at % 3}`, time }, hasSidecar: true };
  });
  const open = (list: () => readonly StoredRecording[], index?: { changed(ids: readonly string[]): void }) =>
    new Catalog({
      store: {
        list: async () => list(),
        stat: async () => ({ bytes: 0, modifiedAtMs: 0 }),
        async *read() {
          // yields nothing, because all recordings of this test are empty
        },
      } satisfies ReadableStore,
      live: () => [],
      refreshMs: 0,
      maxCached: 100,
      now: () => 0,
      ...(index === undefined
        ? {}
        : { index: () => ({ pending: () => undefined, list: () => Promise.reject(new Error()), ...index }) }),
    });

  it('lets the event loop turn while it lists them, for the first time and after a new one', async () => {
    let listed: readonly StoredRecording[] = many;
    const catalog = open(() => listed);
    let page: unknown;
    const list = async (): Promise<void> => {
      page = (await catalog.list({ limit: 2 })).recordings.map(({ id }) => id);
    };
    expect(await turnsDuring(list)).toBeGreaterThanOrEqual(20);
    const newest = many
      .slice(-2)
      .toReversed()
      .map(({ key }) => recordingId(key));
    expect(page).toEqual(newest);
    const key = { nodeId: 'nNEW', time: formatTime(START + 90_000_000_000_000n) };
    listed = [...many, { key, hasSidecar: true }];
    expect(await turnsDuring(list)).toBeGreaterThanOrEqual(20);
    expect(page).toEqual([recordingId(key), newest[0]]);
  });

  it('reports new recordings to the index, while other callers may continue with the earlier list', async () => {
    let listed: readonly StoredRecording[] = many.slice(0, 10_000);
    const changed: string[] = [];
    const catalog = open(() => listed, { changed: (ids) => changed.push(...ids) });
    expect(await catalog.stored()).toHaveLength(10_000);
    expect(changed).toEqual([]);
    listed = [...many.slice(0, 5000), ...many.slice(10_000).toReversed()];
    expect(await turnsDuring(() => catalog.stored())).toBeGreaterThanOrEqual(20);
    expect(changed.toSorted()).toEqual(
      many
        .slice(10_000)
        .map(({ key }) => recordingId(key))
        .toSorted(),
    );
    const known = await catalog.find(recordingId(many[7000]?.key ?? { nodeId: '', time: '' }));
    expect(known?.recording.state).toBe('damaged');
    expect(await catalog.stored()).toHaveLength(15_000);
  });
});
