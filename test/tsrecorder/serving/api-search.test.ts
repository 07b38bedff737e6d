/**
 * Queries that restricted viewers send to the index, and their response times. The catalogue check (`catalog.shown`)
 * allows almost everything in this test, because the index itself must not return hidden sessions.
 */
import { NO_REVIEW } from '../../../src/wire/recorder-api/review.ts';
import { mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import Fastify from 'fastify';
import { beforeAll, describe, expect, it } from 'vitest';
import { createTimeSteps } from '../../../src/async/time-steps.ts';
import type { CatalogEntry } from '../../../src/tsrecorder/library/catalog-entry.ts';
import { createIndexHandlers } from '../../../src/tsrecorder/search/index-operations.ts';
import type { RecorderSearch } from '../../../src/tsrecorder/search/recorder-search.ts';
import { IndexWriter } from '../../../src/tsrecorder/search/sqlite/writer.ts';
import { addSearchApi } from '../../../src/tsrecorder/serving/api-search.ts';
import { createViewerAccess } from '../../../src/tsrecorder/serving/viewer-access.ts';
import { parseViewRule, type Viewer } from '../../../src/tsrecorder/serving/viewing.ts';
import type { Recording } from '../../../src/wire/recorder-api/recording.ts';
import { doc, moment } from '../search/engine-suite.ts';

const HIDDEN = 40;
/** The only recording that the catalogue check of this test hides. */
const HIDDEN_ID = 'n_hidden';
const ALICE: Viewer = { node: 'desk', nodeId: 'nDESK', user: 'alice@example.com' };
const NOBODY: Viewer = { node: 'desk', nodeId: 'nDESK', user: 'nobody@example.com' };
const ROOT: Viewer = { node: 'desk', nodeId: 'nDESK', user: 'root@example.com' };

let directory = '';
beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), 'tailcast-asked-'));
  const writer = new IndexWriter(directory);
  for (let number = 1; number <= HIDDEN; number += 1)
    writer.put(
      doc(`n_${number}`, { user: 'bob@example.com', namespace: 'prod' }),
      [moment(1, 'common secretword')],
      false,
    );
  for (const number of [100, 101])
    writer.put(doc(`n_${number}`, { namespace: 'dev' }), [moment(1, 'common open')], false);
  writer.close();
});

interface Api extends AsyncDisposable {
  get(path: string): Promise<{ readonly status: number; readonly body: string; readonly tookMs: number }>;
}

/** Opens a real index in this process with a clock that the test controls. */
function openApi(
  viewer: Viewer,
  costMs: (query: string) => number = () => 1,
  stateOf: (asked: number) => string = () => 'ready',
  pending: readonly string[] = [],
): Api {
  const operations = createIndexHandlers();
  const opened = operations.open({ directory, mayWrite: false });
  let at = 0;
  let questions = 0;
  const node = { node: 'gateway', nodeId: 'n' };
  const entryOf = (id: string): CatalogEntry =>
    ({ recording: { id, state: 'completed', source: node, destination: node } as Recording }) as CatalogEntry;
  const search = {
    async ask(operation: 'find' | 'within' | 'facets', ask: never) {
      await opened;
      questions += 1;
      at += costMs(JSON.stringify(ask));
      return operations[operation](ask);
    },
    progress: async () => ({
      state: stateOf(questions),
      backlog: 3,
      lagSeconds: 0,
      sessions: 42,
      partial: 1,
      bytes: 1,
    }),
    pending: () => new Set(pending),
  } as unknown as RecorderSearch;
  const app = Fastify();
  addSearchApi(app, {
    index: search,
    isSearchable: true,
    reviews: {
      all: async () => new Map(),
      change: async () => NO_REVIEW,
      mark: async () => {},
      markSlow: async () => {},
    },
    catalog: {
      find: async (id) => entryOf(id),
      shown: async (ids) => ids.map((id) => (id === HIDDEN_ID ? undefined : entryOf(id).recording)),
    },
    access: createViewerAccess({
      identify: async () => viewer,
      rules: ['alice@example.com=namespace:dev', 'root@example.com'].map(parseViewRule),
      trustedGateways: [],
      record: async () => undefined,
      nowMs: () => 0,
      timeoutMs: 1000,
      recheckMs: 15_000,
    }),
    nowMs: () => 0,
    steps: createTimeSteps({
      stepMs: 100,
      now: () => at,
      wait: async (delayMs) => {
        at += delayMs;
      },
    }),
  });
  return {
    async get(path) {
      const began = at;
      const { statusCode, body } = await app.inject(path);
      return { status: statusCode, body, tookMs: at - began };
    },
    async [Symbol.asyncDispose]() {
      await app.close();
    },
  };
}

const QUESTIONS = [
  'common',
  'secretword',
  '',
  '-open',
  'ns:prod',
  'common OR secretword',
  'secr*',
  'user:bob@example.com',
];

it('a response contains the state of the index at the time of the query, and nothing later', async () => {
  // the first request for the state returns `building`, and all later requests return `ready`
  const isAsked = (asked: number): string => (asked === 0 ? 'building' : 'ready');
  for (const path of ['search', 'search/facets', 'recordings/n_7/search']) {
    await using api = openApi(ROOT, () => 1, isAsked);
    const { body } = await api.get(`/api/v1/${path}?q=common`);
    expect(JSON.parse(body), path).toMatchObject({ index: { state: 'building' } });
  }
  await using api = openApi(
    ROOT,
    () => 1,
    (asked) => (asked === 0 ? 'ready' : 'unavailable'),
  );
  expect((await api.get('/api/v1/search?q=nothing')).status).not.toBe(200);
  expect((await api.get('/api/v1/search?q=common')).status).toBe(200);
});

describe('a search by a restricted viewer', () => {
  it.each([
    ['a recording of others', ALICE, [HIDDEN_ID], 'ready'],
    ['a recording of the viewer', ALICE, [HIDDEN_ID, 'n_100'], 'building'],
    [
      'many recordings',
      ALICE,
      Array.from({ length: 1001 }, () => HIDDEN_ID).map((id, n) => `${id}${n}`),
      'building',
    ],
    [
      'many recordings and the viewer has no rule',
      NOBODY,
      Array.from({ length: 1001 }, (_, n) => `n_${n}`),
      'ready',
    ],
    ['a recording of others and the viewer sees all', ROOT, [HIDDEN_ID], 'building'],
  ])(
    'returns the state of the index for this viewer while %s is not indexed',
    async (_, viewer, pending, state) => {
      await using api = openApi(
        viewer,
        () => 1,
        () => 'building',
        pending,
      );
      for (const path of ['search', 'search/facets', 'recordings/n_7/search']) {
        const { body } = await api.get(`/api/v1/${path}?q=common`);
        expect(JSON.parse(body), path).toMatchObject({ index: { state } });
      }
    },
  );

  it('finds, counts and shows nothing hidden, even without a later check', async () => {
    await using asAlice = openApi(ALICE);
    await using asRoot = openApi(ROOT);
    let hidden = 0;
    for (const query of QUESTIONS) {
      const q = encodeURIComponent(query);
      const ids = async (api: Api): Promise<readonly string[]> =>
        (
          JSON.parse((await api.get(`/api/v1/search?q=${q}&limit=100`)).body) as {
            sessions: { recording: { id: string } }[];
          }
        ).sessions.map(({ recording }) => recording.id);
      const counted = async (api: Api): Promise<number> =>
        (JSON.parse((await api.get(`/api/v1/search/facets?q=${q}`)).body) as { counted: number }).counted;
      const visible = (await ids(asRoot)).filter((id) => id === 'n_100' || id === 'n_101');
      hidden += (await ids(asRoot)).length - visible.length;
      expect(await ids(asAlice), query).toEqual(visible);
      expect(await counted(asAlice), query).toBe(visible.length);
      const within = await asAlice.get(`/api/v1/recordings/n_7/search?q=${q}`);
      expect(JSON.parse(within.body), query).toMatchObject({ hits: [], more: false });
    }
    // the queries do match hidden sessions, so the checks above are meaningful
    expect(hidden).toBeGreaterThan(4 * HIDDEN);
    const seen = await asRoot.get('/api/v1/recordings/n_7/search?q=secretword');
    expect((JSON.parse(seen.body) as { hits: unknown[] }).hits).toHaveLength(1);
  });

  it('gives the same bytes after the same time for a word in hidden sessions and for an absent word', async () => {
    // the index takes 60 times as long for the word that matches hidden sessions as for any other word
    await using asAlice = openApi(ALICE, (asked) => (asked.includes('secretword') ? 60 : 1));
    for (const path of ['search?q=', 'search/facets?q=', 'recordings/n_7/search?q=', 'search?limit=1&q=']) {
      const [forbidden, absent] = [
        await asAlice.get(`/api/v1/${path}secretword`),
        await asAlice.get(`/api/v1/${path}absentword`),
      ];
      expect(forbidden.status).toBe(200);
      expect(forbidden.body.replaceAll('secretword', 'absentword'), path).toBe(absent.body);
      expect([forbidden.tookMs, absent.tookMs], path).toEqual([100, 100]);
    }
  });

  it('is delayed, unlike a search by a viewer who may see everything', async () => {
    await using asRoot = openApi(ROOT, () => 7);
    expect((await asRoot.get('/api/v1/search?q=secretword')).tookMs).toBe(7);
  });
});
