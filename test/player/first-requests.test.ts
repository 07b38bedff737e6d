import { expect, it } from 'vitest';
import { EMPTY_FILTER, listRecordings, readRecording } from '../../src/player/archive.ts';
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

function answer(path: string): Response {
  if (path.includes('/cast')) return new Response(CAST);
  return Response.json(path.includes('?limit') ? { recordings: [RECORDING] } : RECORDING);
}

it.each([
  '#/',
  '#/?sort=newest',
  '#/?sort=longest&user=bob',
  '#/r/n1_2026-01-02T03:04:05Z',
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
    } else if (route.view === 'list' && route.query === '') {
      const sort = route.sort === 'newest' ? undefined : route.sort;
      expect((await listRecordings(ask, route.filter, undefined, signal, sort)).recordings).toHaveLength(1);
    }
  };
  askFirst(route);
  const first = [...sent];
  expect(first).toHaveLength({ '#/?q=x': 0, '#/live': 0, '#/r/n1_2026-01-02T03:04:05Z': 2 }[hash] ?? 1);
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
  askFirst(parseRoute('#/'));
  const closed = new AbortController();
  void listRecordings(ask, EMPTY_FILTER, undefined, closed.signal);
  expect(signal?.aborted).toBe(false);
  closed.abort();
  expect(signal?.aborted).toBe(true);
});
