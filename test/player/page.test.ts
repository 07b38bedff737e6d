import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { EMPTY_FILTER, filterQuery } from '../../src/player/addresses.ts';
import { readPlayIndex, readTranscript } from '../../src/player/archive.ts';
import type { ListedRecording } from '../../src/wire/recorder-api/recording.ts';
import {
  durationText,
  indexTexts,
  viewRequestText,
  sizeText,
  tileTitles,
  whereText,
  whoText,
} from '../../src/player/format.ts';
import { stateText, statusNotices } from '../../src/wire/recorder-api/recording-status.ts';
import { formatRoute, parseRoute } from '../../src/player/route.ts';

const recording: ListedRecording = {
  id: 'n1_2026-01-02T03:04:05.000000000Z',
  key: 'n1/2026-01-02T03:04:05.000000000Z.cast',
  state: 'completed',
  startedAt: '2026-01-02T03:04:05Z',
  bytes: 10,
  width: 80,
  height: 24,
  kind: 'exec',
  source: { node: 'laptop.example.ts.net', nodeId: 'n1', user: 'alice@example.com' },
  destination: { node: 'cluster', nodeId: 'n2' },
  kubernetes: { namespace: 'web', pod: 'nginx', container: 'app' },
};

it.each([
  ['completed', undefined, 'completed'],
  ['interrupted', 'session interrupted: the gateway stopped', 'interrupted: the gateway stopped'],
  ['violated', 'session violated', 'violated'],
  ['interrupted', 'output is missing in 1 place', 'interrupted: output is missing in 1 place'],
] as const)('names the state %s with the problem %s once', (state, problem, text) => {
  expect(stateText({ state, problem })).toBe(text);
  if (problem !== undefined) expect(statusNotices({ state, problem })).toEqual([text]);
});

describe('titles of live screens', () => {
  it('differ by user, time or number where the target is the same', () => {
    const bob = { ...recording, source: { ...recording.source, user: 'bob@example.com' } };
    const later = { ...bob, startedAt: '2026-01-02T03:05:06Z' };
    const elsewhere = { ...recording, kubernetes: { ...recording.kubernetes!, pod: 'db-0' } };
    const target = 'web/nginx (app)';
    expect(tileTitles([recording, bob, elsewhere], 'utc')).toEqual([
      `${target} · alice@example.com`,
      `${target} · bob@example.com`,
      'web/db-0 (app)',
    ]);
    expect(tileTitles([bob, later], 'utc')).toEqual([
      expect.stringMatching(/ · .*03:04:05/),
      expect.stringMatching(/ · .*03:05:06/),
    ]);
    expect(tileTitles([bob, { ...bob }, later], 'utc')).toEqual([1, 2, 3].map((n) => `${target} · #${n}`));
  });
});

it.each([
  ['api/v1/recordings?limit=100', 'list of recordings'],
  ['api/v1/recordings/n1_2026%3A?view=1', 'recording n1_2026:'],
  ['-/recordings/api/v1/recordings/n1/evidence?view=1', 'evidence of recording n1'],
  ['api/v1/recordings/%zz', 'recording %zz'],
  ['api/v1/search?q=user%3Aalice+%3Cb%3E&limit=5', 'search for user:alice <b>'],
  ['api/v1/events', 'events'],
])('the request %s is described', (path, text) => {
  expect(viewRequestText(`http://recorder.example/${path}`)).toBe(text);
});

describe.each([
  ['the play index', readPlayIndex],
  ['the transcript', readTranscript],
])('%s', (_name, read) => {
  const { signal } = new AbortController();

  it.each([
    ['a full queue of builds', 503, '{"code":"RECORDER_BUSY","message":"x"}', { progress: 0 }],
    ['another reason of the recorder', 503, '{"code":"SEARCH_UNAVAILABLE","message":"x"}', undefined],
    ['a shutdown', 503, '{"message":"shutting down"}', undefined],
    ['a denial', 403, '{"code":"VIEW_DENIED","message":"x"}', undefined],
    ['a response of a proxy', 503, '<html>', undefined],
    ['progress', 202, '{"progress":0.5}', { progress: 0.5 }],
  ])('after %s is requested again only if it can come', async (_reason, status, body, expected) => {
    expect(await read(async () => new Response(body, { status }), 'n1', signal)).toEqual(expected);
  });
});

describe('the page’s address', () => {
  it('brings a comparison and a filter of live sessions back', () => {
    for (const route of [
      { view: 'compare', ids: ['n_1', 'n&_2'] },
      { view: 'wall', text: 'a b&c' },
    ] as const)
      expect(parseRoute(formatRoute(route))).toEqual(route);
    expect(parseRoute('#/compare?id=n_1')).toEqual({ view: 'unknown', path: '/compare' });
  });

  it('brings any filter back', () => {
    const texts = fc.record({
      text: fc.string(),
      user: fc.string(),
      cluster: fc.string(),
      namespace: fc.string(),
      pod: fc.string(),
      state: fc.string(),
      from: fc.string(),
      to: fc.string(),
    });
    fc.assert(
      fc.property(texts, fc.string(), (filter, query) => {
        expect(parseRoute(formatRoute({ view: 'list', filter, query }))).toEqual({
          view: 'list',
          filter,
          query,
        });
      }),
    );
  });

  it('brings any id back', () => {
    fc.assert(
      fc.property(fc.string({ minLength: 1 }), (id) => {
        expect(parseRoute(formatRoute({ view: 'recording', id, at: undefined }))).toMatchObject({
          view: 'recording',
          id,
        });
      }),
    );
  });

  it('links to a moment', () => {
    expect(parseRoute('#/r/a%3Ab?t=12.5')).toEqual({ view: 'recording', id: 'a:b', at: 12.5 });
    expect(parseRoute('#/r/a?t=-1')).toMatchObject({ at: undefined });
    expect(parseRoute('#/r/%zz')).toMatchObject({ id: '%zz' });
  });
});

describe('the filter', () => {
  it('leaves out what is empty and covers both days whole', () => {
    expect(filterQuery(EMPTY_FILTER)).toEqual({});
    const query = filterQuery({
      ...EMPTY_FILTER,
      user: ' alice ',
      cluster: 'eu',
      from: '2026-03-01',
      to: '2026-03-01',
    });
    expect(query).toMatchObject({ user: 'alice', cluster: 'eu' });
    const hours = (Date.parse(query['to'] ?? '') - Date.parse(query['from'] ?? '')) / 3_600_000;
    expect(hours).toBeGreaterThanOrEqual(23);
    expect(hours).toBeLessThanOrEqual(25);
  });
});

describe('how far an index is', () => {
  const ready = { state: 'ready', backlog: 0, lagSeconds: 0.4 };
  it('is said when something may be missing, and not otherwise', () => {
    expect([undefined, ready, { ...ready, lagSeconds: 9 }].map(indexTexts)).toEqual([[], [], []]);
    expect(indexTexts({ ...ready, state: 'building', backlog: 1 })).toEqual([
      'The recorder builds the search index, newest recordings first. 1 recording is missing.',
    ]);
    expect(indexTexts({ ...ready, state: 'unavailable', problem: 'disk full', lagSeconds: 61 })).toEqual([
      'The search index is unavailable (disk full). Results may be incomplete.',
      'The search index is 61 seconds behind the running sessions.',
    ]);
  });
});

describe('texts', () => {
  it('say who, where and how it ended', () => {
    expect(whoText(recording)).toBe('alice@example.com');
    expect(whoText({ ...recording, source: { node: 'n', nodeId: 'n1', tags: ['tag:ci'] } })).toBe('tag:ci');
    expect(whoText({ ...recording, source: { node: 'n', nodeId: 'n1', tags: [] } })).toBe('n');
    expect(whereText(recording)).toBe('web/nginx (app)');
  });

  it('are short', () => {
    expect([0.5, 59, 61, 3700].map(durationText)).toEqual(['0.5 s', '59 s', '1 min 1 s', '1 h 1 min']);
    expect([5, 1536, 5 * 1024 ** 2].map(sizeText)).toEqual(['5 B', '1.5 KiB', '5.0 MiB']);
  });
});
