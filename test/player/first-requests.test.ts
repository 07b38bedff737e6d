import { afterEach, expect, it, vi } from 'vitest';
import { EMPTY_FILTER } from '../../src/player/addresses.ts';
import { listRecordings, readPlayIndex, readRecording } from '../../src/player/archive.ts';
import { openCast } from '../../src/player/cast-source.ts';
import { createFirstRequests } from '../../src/player/first-requests.ts';
import type { Ask } from '../../src/player/recorder-context.ts';
import { parseRoute } from '../../src/player/route.ts';

const RECORDING = {
  id: 'n1_2026-01-02T03:04:05Z',
  key: 'n1/2026-01-02T03:04:05Z.cast',
  state: 'completed',
  startedAt: '2026-01-02T03:04:05Z',
  bytes: 10,
  width: 80,
  height: 24,
  kind: 'exec',
  source: { node: 'laptop', nodeId: 'n1' },
  destination: { node: 'cluster', nodeId: 'n2' },
};
const CAST = '{"version":2,"width":80,"height":24}\n';
/** Only the cast of a finished session has an ETag. */
const FINISHED = { headers: { etag: '"1"' } };

afterEach(() => vi.useRealTimers());

function answer(path: string): Response {
  if (path.includes('/cast')) return new Response(CAST, FINISHED);
  if (path.includes('/playback')) return Response.json({ progress: 0 });
  return Response.json(path.includes('?limit') ? { recordings: [RECORDING] } : RECORDING);
}

it.each([
  '#/',
  '#/?sort=newest',
  '#/?sort=longest&user=bob',
  '#/r/n1_2026-01-02T03:04:05Z',
  '#/r/n1_2026-01-02T03:04:05Z?t=5',
  '#/?q=x',
  '#/live',
])('the first requests of %s are sent at once, and the view uses each response once', async (hash) => {
  const sent: string[] = [];
  const { ask, askFirst } = createFirstRequests(async (path) => {
    sent.push(path);
    return answer(path);
  });
  const route = parseRoute(hash);
  const { signal } = new AbortController();
  const show = async (): Promise<void> => {
    if (route.view === 'recording') {
      await readRecording(ask, route.id, signal);
      await openCast(ask, route.id, signal);
      if (route.at !== undefined) await readPlayIndex(ask, route.id, signal);
    } else if (route.view === 'list' && route.query === '') {
      const sort = route.sort === 'newest' ? undefined : route.sort;
      expect((await listRecordings(ask, route.filter, undefined, signal, sort)).recordings).toHaveLength(1);
    }
  };
  askFirst(route, false);
  const count = {
    '#/?q=x': 0,
    '#/live': 0,
    '#/r/n1_2026-01-02T03:04:05Z': 2,
    '#/r/n1_2026-01-02T03:04:05Z?t=5': 3,
  }[hash];
  expect(sent).toHaveLength(count ?? 1);
  const first = [...sent];
  await show();
  expect(sent).toEqual(first);
  await show();
  expect(sent).toEqual([...first, ...first]);
});

it('a first request stops when its view is closed', async () => {
  let signal: AbortSignal | undefined;
  const send: Ask = (_path, options) => {
    signal = options.signal;
    return new Promise(() => undefined);
  };
  const { ask, askFirst } = createFirstRequests(send);
  askFirst(parseRoute('#/'), false);
  const closed = new AbortController();
  void listRecordings(ask, EMPTY_FILTER, undefined, closed.signal);
  expect(signal?.aborted).toBe(false);
  closed.abort();
  expect(signal?.aborted).toBe(true);
});

it.each(['running', 'completed'])(
  'the player reads the end of a session that was %s at first',
  async (state) => {
    const full = `${CAST}[1,"o","end"]\n`;
    let isOver = false;
    const { ask, askFirst } = createFirstRequests(async (path) => {
      if (path.includes('/cast'))
        return isOver ? new Response(full, FINISHED) : new Response(null, { status: 416 });
      // the session may stop between two requests that run at the same time
      await Promise.resolve();
      isOver ||= state === 'completed';
      return Response.json({ ...RECORDING, state });
    });
    const { signal } = new AbortController();
    askFirst(parseRoute('#/r/n1_2026-01-02T03:04:05Z'), false);
    expect(await readRecording(ask, RECORDING.id, signal)).toMatchObject({ state });
    isOver = true;
    expect((await openCast(ask, RECORDING.id, signal)).cast.bytes).toBe(full.length);
  },
);

it.each(['#/', '#/r/n1_2026-01-02T03:04:05Z'])('the page discards unused responses of %s', async (hash) => {
  vi.useFakeTimers();
  const sent: string[] = [];
  const { ask, askFirst } = createFirstRequests(async (path) => {
    sent.push(path);
    return answer(path);
  });
  askFirst(parseRoute(hash), false);
  await vi.advanceTimersByTimeAsync(10_000);
  const first = sent.length;
  const { signal } = new AbortController();
  if (hash === '#/') await listRecordings(ask, EMPTY_FILTER, undefined, signal);
  else await openCast(ask, RECORDING.id, signal);
  expect(sent).toHaveLength(first + 1);
});

it('a hidden list sends no first request', () => {
  const sent: string[] = [];
  const { askFirst } = createFirstRequests(async (path) => {
    sent.push(path);
    return answer(path);
  });
  askFirst(parseRoute('#/'), true);
  expect(sent).toEqual([]);
});
