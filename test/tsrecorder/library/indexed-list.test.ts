/** Compares the list from the index with the list from the names, for random archives, viewers, filters and pages. */
import { mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { TailcastError } from '../../../src/errors.ts';
import type { ListAsk } from '../../../src/search/search-index.ts';
import { Catalog } from '../../../src/tsrecorder/library/catalog.ts';
import type { CatalogQuery } from '../../../src/tsrecorder/library/catalog-query.ts';
import type { LiveRecording } from '../../../src/tsrecorder/library/live-recording.ts';
import type { Scope } from '../../../src/tsrecorder/library/scope.ts';
import type { SessionIndex } from '../../../src/tsrecorder/library/session-index.ts';
import { sessionMark } from '../../../src/tsrecorder/library/session-part.ts';
import { encodeSidecar } from '../../../src/tsrecorder/library/sidecar.ts';
import { sessionListing, sessionNames } from '../../../src/tsrecorder/search/session-names.ts';
import { IndexReader } from '../../../src/tsrecorder/search/sqlite/reader.ts';
import type { CompleteSession } from '../../../src/tsrecorder/search/engine.ts';
import { IndexWriter } from '../../../src/tsrecorder/search/sqlite/writer.ts';
import {
  fixedWidth,
  formatTime,
  recordingId,
  recordingKey,
  type RecordingKey,
} from '../../../src/tsrecorder/store/key.ts';
import type { ReadableStore, StoredRecording } from '../../../src/tsrecorder/store/store.ts';
import type { Recording } from '../../../src/wire/recorder-api/recording.ts';

interface Made {
  readonly nodeId: string;
  /** Nanoseconds since {@link START}. */
  readonly at: number;
  readonly trimmed: boolean;
  readonly user: string | undefined;
  readonly tags: readonly string[];
  readonly cluster: string | undefined;
  readonly namespace: string | undefined;
  readonly pod: string;
  readonly command: string | undefined;
  readonly kind: 'exec' | 'attach';
  readonly seconds: number | undefined;
  readonly state: 'completed' | 'interrupted' | 'damaged';
  /** Session of the upload. `none`: the upload names no session. */
  readonly session: 'none' | 'first' | 'second' | 'alone';
  /** State of the index entry: current, missing, outdated, or left over from a removed session. */
  readonly indexed: 'now' | 'not' | 'before' | 'gone';
  readonly where: 'store' | 'live';
}

const START = BigInt(Date.parse('2026-02-03T04:05:06Z')) * 1_000_000n;

const name = (...names: string[]): fc.Arbitrary<string> => fc.constantFrom(...names);
const made: fc.Arbitrary<Made> = fc.record({
  nodeId: name('nA', 'nB'),
  // several uploads start in one millisecond, sometimes more uploads than the index can number within a millisecond
  at: fc.oneof(
    fc.integer({ min: 0, max: 60 }).map((n) => n * 100_000),
    fc.integer({ min: 0, max: 99 }),
    fc.integer({ min: 0, max: 300_000 }),
  ),
  trimmed: fc.boolean(),
  user: fc.option(name('alice@example.com', 'bob@example.com', 'Ünal'), { nil: undefined }),
  tags: fc.subarray(['tag:ci', 'tag:ops', 'user:alice@example.com']),
  cluster: fc.option(name('east', 'west'), { nil: undefined }),
  namespace: fc.option(name('prod', 'dev', 'user', 'east/prod'), { nil: undefined }),
  pod: name('web-1', 'web-2', 'db'),
  command: fc.option(
    fc.oneof(name('bash', 'kubectl delete "pod"', 'SÜRÜM 日本語 x\0y', 'vim'), fc.string({ unit: 'binary' })),
    { nil: undefined },
  ),
  kind: name('exec', 'attach') as fc.Arbitrary<Made['kind']>,
  seconds: fc.option(fc.constantFrom(0, 0.5, 7, 7.25, 3600), { nil: undefined }),
  state: name('completed', 'completed', 'interrupted', 'damaged') as fc.Arbitrary<Made['state']>,
  session: name('none', 'none', 'none', 'first', 'second', 'alone') as fc.Arbitrary<Made['session']>,
  indexed: name('now', 'now', 'now', 'now', 'not', 'before', 'gone') as fc.Arbitrary<Made['indexed']>,
  where: name('store', 'store', 'store', 'store', 'live') as fc.Arbitrary<Made['where']>,
});
/**
 * Two uploads of one session, of which the first one is damaged and hidden from restricted viewers. The index must not
 * hide the second upload because the first one is hidden.
 */
const DAMAGED_FIRST: readonly Made[] = (['damaged', 'completed'] as const).map((state, at) => ({
  nodeId: 'nA',
  at: at * 100_000,
  trimmed: false,
  user: undefined,
  tags: [],
  cluster: undefined,
  namespace: 'prod',
  pod: 'web-1',
  command: undefined,
  kind: 'exec',
  seconds: 7,
  state,
  session: 'second',
  indexed: 'now',
  where: 'store',
}));
const filter = fc.record(
  {
    node: name('laptop', 'nLAPTOP', 'absent'),
    user: name('alice@example.com', 'bob@example.com', 'Ünal', ''),
    tag: name('tag:ci', 'tag:ops'),
    cluster: name('east', 'absent'),
    namespace: name('prod', 'dev', 'user'),
    pod: name('web-1', 'db'),
    kind: name('exec', 'attach') as fc.Arbitrary<'exec'>,
    state: name('running', 'completed', 'interrupted', 'damaged') as fc.Arbitrary<'completed'>,
    text: name(
      '',
      'a',
      'web',
      'EXAMPLE',
      'delete "',
      'ünal',
      '本',
      '日本語 X',
      'x\0y',
      'nA_2026',
      'absent',
      'tag:',
    ),
    from: fc.integer({ min: 0, max: 6_000_000 }).map((n) => START + BigInt(n)),
    to: fc.integer({ min: 0, max: 6_000_000 }).map((n) => START + BigInt(n)),
  },
  { requiredKeys: [] },
);
const scope: fc.Arbitrary<Scope> = fc.oneof(
  { weight: 2, arbitrary: fc.constant<Scope>('everything') },
  {
    weight: 3,
    arbitrary: fc.subarray([
      'namespace:prod',
      'namespace:user',
      'namespace:east/prod',
      'cluster:west',
      'user:alice@example.com',
      'user:Ünal',
      'tag:ci',
    ]),
  },
);

interface Upload {
  readonly key: RecordingKey;
  readonly made: Made;
  readonly recording: Recording;
  readonly mark: string | undefined;
  readonly sidecar: string;
}

const HEADER_BYTES = 10;
const BODY = 1000;

function uploadOf(one: Made, number: number): Upload {
  const full = formatTime(START + BigInt(one.at) * 10n);
  const time = one.trimmed ? full.replace(/\.?0*Z$/, 'Z') : full;
  const key = { nodeId: one.nodeId, time };
  const id = recordingId(key);
  const { user, tags, cluster, namespace, pod, command, kind } = one;
  const recording: Recording = {
    id,
    key: recordingKey(key),
    state: one.state === 'damaged' ? 'completed' : one.state,
    startedAt: time,
    bytes: BODY,
    width: 80,
    height: 24,
    kind,
    ...(command === undefined ? {} : { command }),
    ...(one.seconds === undefined ? {} : { durationSeconds: one.seconds }),
    source: { node: 'laptop', nodeId: 'nLAPTOP', ...(user === undefined ? { tags } : { user }) },
    destination: { node: 'gate', nodeId: one.nodeId },
    ...(cluster === undefined ? {} : { cluster }),
    ...(namespace === undefined ? {} : { kubernetes: { namespace, pod, container: 'app' } }),
  };
  const isLater = one.session === 'second';
  const part = {
    session: one.session === 'alone' ? id : 'one session',
    number: isLater ? 2 : 1,
    offset: isLater ? BODY : 0,
    headerBytes: HEADER_BYTES,
    headerEnd: isLater ? BODY : HEADER_BYTES,
  };
  const sidecar = encodeSidecar(
    {
      tailcast: 1,
      recording,
      cast: { bytes: BODY, resizeOrder: 'columnsFirst' },
      upload: {
        protocol: 'v2',
        address: '100.64.0.1',
        bodyBytes: BODY * (isLater ? 2 : 1),
        endedAt: time,
      },
      ...(one.session === 'none' ? {} : { part }),
      gaps: [],
      gapCount: 0,
      noteCount: 0,
    },
    undefined,
  );
  const mark = one.session === 'none' ? undefined : sessionMark(one.nodeId, part.session);
  return { key, made: { ...one, at: number }, recording, mark, sidecar };
}

/** Returns uploads with unique keys: at each node, all start times differ. */
function uploadsOf(all: readonly Made[]): readonly Upload[] {
  const seen = new Set<string>();
  return all.flatMap((one, number) => {
    const upload = uploadOf(one, number);
    const order = `${fixedWidth(upload.key.time)} ${upload.key.nodeId}`;
    if (seen.has(order)) return [];
    seen.add(order);
    return [upload];
  });
}

/** @param onRead called with each recording that is read */
function storeOf(uploads: readonly Upload[], onRead: (id: string) => void = () => undefined): ReadableStore {
  const byKey = new Map(uploads.map((upload) => [recordingId(upload.key), upload]));
  const stored = uploads.map(({ key, mark, made: { at } }): StoredRecording => ({
    key,
    hasSidecar: true,
    ...(at % 2 === 0 ? { stat: { bytes: BODY, modifiedAtMs: 1 } } : {}),
    ...(mark === undefined ? {} : { sessionMark: mark }),
  }));
  return {
    list: async () => stored,
    stat: async (key) => (byKey.has(recordingId(key)) ? { bytes: BODY, modifiedAtMs: 1 } : undefined),
    async *read(key, kind) {
      onRead(recordingId(key));
      const upload = byKey.get(recordingId(key));
      if (upload === undefined) throw new TailcastError('RECORDING_UNKNOWN');
      const isDamaged = upload.made.state === 'damaged';
      yield Buffer.from(kind === 'sidecar' && !isDamaged ? upload.sidecar : 'no header\n');
    },
  };
}

function liveOf({ key, recording }: Upload): LiveRecording {
  return {
    key,
    recording: { ...recording, state: 'running' },
    paths: { cast: '/nowhere', notes: '/nowhere' },
    resizeOrder: 'columnsFirst',
    part: {
      session: recordingId(key),
      number: 1,
      offset: 0,
      headerBytes: HEADER_BYTES,
      headerEnd: HEADER_BYTES,
    },
    durable: () => ({ castBytes: BODY, notesBytes: 0, bodyBytes: BODY }),
    isOpen: () => true,
    stored: Promise.resolve(key),
    watch: () => () => undefined,
  };
}

async function pages(
  catalog: Catalog,
  query: CatalogQuery,
  seenBy: Scope,
): Promise<readonly (readonly Recording[])[]> {
  const all: (readonly Recording[])[] = [];
  let cursor: string | undefined;
  do {
    const page = await catalog.list(cursor === undefined ? query : { ...query, cursor }, seenBy);
    all.push(page.recordings);
    cursor = page.next;
  } while (cursor !== undefined);
  return all;
}

/**
 * Creates two catalogues of one archive. One has an index without some entries, the other has no index. `read` counts
 * the reads, and `asked` the queries of the index.
 */
async function withBoth(
  all: readonly Made[],
  act: (
    names: Catalog,
    indexed: Catalog,
    ids: readonly string[],
    read: readonly string[],
    asked: readonly ListAsk[],
  ) => Promise<void>,
): Promise<void> {
  const uploads = uploadsOf(all);
  const there = uploads.filter(({ made: { where, indexed } }) => where === 'store' && indexed !== 'gone');
  const live = uploads.filter(({ made: { where } }) => where === 'live').map(liveOf);
  const read: string[] = [];
  const asked: ListAsk[] = [];
  const store = storeOf(there, (id) => read.push(id));
  const common = { store, live: () => live, refreshMs: 1e9, maxCached: 10_000, now: () => 0 };
  const names = new Catalog(common);
  const everything = new Catalog({ ...common, store: storeOf(uploads), live: () => [] });
  const directory = await mkdtemp(join(tmpdir(), 'tailcast-list-'));
  const writer = new IndexWriter(directory);
  const reader = new IndexReader(directory);
  try {
    const pending = new Set<string>();
    const rows: CompleteSession[] = [];
    for (const {
      key,
      made: { indexed, where },
    } of uploads) {
      const id = recordingId(key);
      if (where === 'live') {
        const growing = sessionNames({ ...liveOf(uploads.find((upload) => upload.key === key)!).recording });
        writer.append(growing, [], true, false);
        continue;
      }
      const entry = await (indexed === 'gone' ? everything : names).find(id);
      const listing = entry === undefined ? undefined : sessionListing(entry);
      // writes the entry and the pending ids that the indexer would have left
      if (indexed === 'not' || indexed === 'before' || listing === undefined) pending.add(id);
      if (entry === undefined || listing === undefined || indexed === 'not') continue;
      const former = { namespace: 'prod', pod: 'web-1', container: 'app' };
      const recording =
        indexed === 'before'
          ? { ...entry.recording, kubernetes: former, command: 'former' }
          : entry.recording;
      const described = sessionListing({ ...entry, recording })!;
      const doc = { names: sessionNames(recording), version: id, text: 'off', listing: described } as const;
      rows.push({ doc, moments: [], partial: false });
    }
    writer.putAll([...new Map(rows.map((row) => [row.doc.names.id, row])).values()]);
    const index: SessionIndex = {
      pending: () => pending,
      changed: () => undefined,
      async list(ask: ListAsk) {
        asked.push(ask);
        return reader.list(ask);
      },
    };
    const withIndex = new Catalog({ ...common, index: () => index });
    await act(
      names,
      withIndex,
      uploads.map(({ key }) => recordingId(key)),
      read,
      asked,
    );
  } finally {
    reader.close();
    writer.close();
  }
}

describe('a list from an index', () => {
  it('equals the list from the names, page by page', { timeout: 120_000 }, async () => {
    const questions = fc.array(fc.tuple(filter, scope, fc.integer({ min: 1, max: 7 })), {
      minLength: 6,
      maxLength: 12,
    });
    await fc.assert(
      fc.asyncProperty(fc.array(made, { maxLength: 45 }), questions, async (all, asks) => {
        await withBoth(all, async (names, indexed, ids) => {
          for (const [given, seenBy, limit] of asks) {
            const query = { ...given, limit } as CatalogQuery;
            const wanted = (await pages(names, query, seenBy)).flat();
            const got = await pages(indexed, query, seenBy);
            expect(got.flat()).toEqual(wanted);
            const isFromIndex = Object.values(given).every((value) => value !== '') || given.text === '';
            if (isFromIndex && given.user !== '')
              for (const page of got.slice(0, -1)) expect(page).toHaveLength(limit);
            for (const id of ids.slice(0, 10)) {
              const one = (await names.find(id, seenBy))?.recording;
              expect((await indexed.find(id, seenBy))?.recording, id).toEqual(one);
              const [shown] = await indexed.shown([id], seenBy);
              expect(shown, id).toEqual(one?.id === id ? one : undefined);
            }
          }
        });
      }),
      {
        numRuns: Number(process.env['FC_RUNS'] ?? 25),
        examples: [[[...DAMAGED_FIRST], [[{}, ['namespace:prod'], 1]]]],
      },
    );
  });

  it('equals that list in every order, page by page', { timeout: 120_000 }, async () => {
    const orders = fc.constantFrom('oldest' as const, 'longest' as const, 'largest' as const);
    const questions = fc.array(fc.tuple(filter, scope, fc.integer({ min: 1, max: 7 }), orders), {
      minLength: 6,
      maxLength: 12,
    });
    await fc.assert(
      fc.asyncProperty(fc.array(made, { maxLength: 45 }), questions, async (all, asks) => {
        await withBoth(all, async (names, indexed) => {
          for (const [given, seenBy, limit, sort] of asks) {
            const query = { ...given, limit } as CatalogQuery;
            if (query.user === '') {
              await expect(indexed.list({ ...query, sort }, seenBy)).rejects.toMatchObject({ code: 'USAGE' });
              continue;
            }
            await expect(names.list({ ...query, sort }, seenBy)).rejects.toMatchObject({ code: 'USAGE' });
            // the expected order is a stable sort of the list, which is newest first
            const newest = (await pages(names, query, seenBy)).flat();
            const value = ({ durationSeconds = -1, bytes }: Recording): number =>
              sort === 'longest' ? durationSeconds : bytes;
            const wanted =
              sort === 'oldest'
                ? newest.toReversed()
                : newest.toSorted((left, right) => value(right) - value(left));
            const got = await pages(indexed, { ...query, sort }, seenBy);
            expect(got.flat().map(({ id }) => id)).toEqual(wanted.map(({ id }) => id));
            expect(got.flat()).toEqual(wanted);
            for (const page of got.slice(0, -1)) expect(page).toHaveLength(limit);
          }
        });
      }),
      { numRuns: Number(process.env['FC_RUNS'] ?? 25) },
    );
  });

  it('queries the index once for a page', async () => {
    const all = Array.from({ length: 5 }, (_, at): Made => ({ ...DAMAGED_FIRST[1]!, at, session: 'none' }));
    await withBoth(all, async (_names, indexed, _ids, _read, asked) => {
      for (const sort of ['newest', 'longest'] as const) {
        const before = asked.length;
        expect((await indexed.list({ limit: 2, sort })).recordings).toHaveLength(2);
        expect(asked).toHaveLength(before + 1);
      }
    });
  });

  it('reads only recordings that the index lacks or has in another version', async () => {
    const [, one] = DAMAGED_FIRST;
    const all = (['none', 'alone', 'alone', 'none', 'alone'] as const).map((session, at): Made => {
      const indexed = at < 3 ? 'now' : 'not';
      return { ...one!, at: at * 100_000, session, indexed };
    });
    await withBoth(all, async (names, indexed, ids, read) => {
      const wanted = (await names.list({ limit: 9 })).recordings;
      expect(wanted.map(({ id }) => id).toReversed()).toEqual(ids);
      const before = read.length;
      expect((await indexed.list({ limit: 9 })).recordings).toEqual(wanted);
      expect(read.slice(before).toSorted()).toEqual(ids.slice(3));
    });
  });
});
