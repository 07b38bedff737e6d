import { describe, expect, it } from 'vitest';
import { createViewerAccess, type AccessAction } from '../../../src/tsrecorder/serving/viewer-access.ts';
import { parseViewRule, type Viewer } from '../../../src/tsrecorder/serving/viewing.ts';
import type { CatalogEntry } from '../../../src/tsrecorder/library/catalog-entry.ts';

const ENTRY = { recording: { id: 'nX_2026-01-02T03:04:05.000000000Z' } } as CatalogEntry;
const LIST = '/api/v1/recordings';

/** Returns the number of access events for these requests of one viewer. */
async function recordedOf(
  action: AccessAction,
  paths: readonly string[],
  entry?: CatalogEntry,
): Promise<number> {
  let recorded = 0;
  const access = createViewerAccess({
    identify: async () => undefined,
    rules: [],
    trustedGateways: [],
    record: async () => void (recorded += 1),
    nowMs: () => 1_000_000,
    timeoutMs: 1_000,
    recheckMs: 15_000,
  });
  for (const path of paths) await access.saw({ node: 'n', nodeId: 'nX' }, action, { url: path }, entry);
  return recorded;
}

it.each<[AccessAction, readonly string[], CatalogEntry | undefined, number]>([
  // each request is a download
  ['download', ['/x', '/x'], ENTRY, 2],
  ['events', ['/api/v1/events', '/api/v1/events'], undefined, 2],
  // one viewing
  ['play', ['/a', '/b'], ENTRY, 1],
  ['show', ['/a', '/a'], ENTRY, 1],
  ['list', [LIST, LIST], undefined, 1],
  ['list', [`${LIST}?limit=5`, `${LIST}?cursor=abc&limit=5`, `${LIST}?limit=5`], undefined, 1],
  ['list', [LIST, `${LIST}?user=a`], undefined, 2],
  // each search creates an event, unless the page repeats the search for the same view
  ['search', ['/s?q=a', '/s?q=a'], undefined, 2],
  ['search', ['/s?q=a&view=1', '/s?q=a&view=1'], undefined, 1],
  ['search', ['/s?q=a&view=1', '/s?q=b&view=1'], ENTRY, 2],
  ['search', ['/s?q=a&view=10', '/s?q=a&view=10'], undefined, 2],
])('the number of access events for %s of %j is limited', async (action, paths, entry, times) => {
  expect(await recordedOf(action, paths, entry)).toBe(times);
});

it('a viewer has at most half of the requests that others leave free', () => {
  const access = createViewerAccess({
    identify: async () => undefined,
    rules: [],
    trustedGateways: [],
    record: async () => undefined,
    nowMs: () => 1_000_000,
    timeoutMs: 1_000,
    recheckMs: 15_000,
  });
  const greedy = { node: 'a', nodeId: 'nA', user: 'mallory@example.com' };
  const leave = Array.from({ length: 256 }, () => access.admit(greedy));
  expect(() => access.admit(greedy)).toThrow(expect.objectContaining({ code: 'RECORDER_BUSY' }));
  // the same user on another device
  expect(() => access.admit({ ...greedy, nodeId: 'nB' })).toThrow('you have too many requests');
  access.admit({ node: 'c', nodeId: 'nC', user: 'carol@example.com' })();
  leave[0]!();
  access.admit(greedy);
});

it('a viewer is identified again after some seconds, also on the same connection', async () => {
  let viewer: Viewer | undefined = { node: 'desk.tail1.ts.net', nodeId: 'nDESK', user: 'carol@example.com' };
  let nowMs = 0;
  let identified = 0;
  const access = createViewerAccess({
    async identify() {
      identified += 1;
      return viewer;
    },
    rules: [],
    trustedGateways: [],
    record: async () => undefined,
    nowMs: () => 1_000_000,
    monotonicMs: () => nowMs,
    timeoutMs: 1_000,
    recheckMs: 15_000,
  });
  const request = { socket: { remoteAddress: '100.64.0.9', remotePort: 1 }, rawHeaders: [] };
  expect((await access.viewer(request)).user).toBe('carol@example.com');
  nowMs = 9_999;
  expect((await access.viewer(request)).user).toBe('carol@example.com');
  expect(identified).toBe(1);
  // The device has been removed from the tailnet.
  viewer = undefined;
  nowMs = 10_000;
  await expect(access.viewer(request)).rejects.toThrow('the tailnet does not know who you are');
});

it.each(['group:sre', 'group:sre=namespace:shop', 'autogroup:member'])(
  'a rule for the group %s is refused, because recorders do not know groups',
  (rule) => {
    expect(() => parseViewRule(rule)).toThrow(/viewers: (auto)?group:\w+ is a group .* list its logins/);
  },
);

it('a rule may name a user of Headscale, whose login can lack an @', () => {
  expect(parseViewRule('carol').viewer).toBe('carol');
});

describe('access events of one viewer', () => {
  const mallory = { node: 'm', nodeId: 'nM', user: 'mallory@example.com' };

  function open() {
    let nowMs = 0;
    const events: string[] = [];
    const access = createViewerAccess({
      identify: async () => undefined,
      rules: [],
      trustedGateways: [],
      record: async (event) => void events.push(event),
      nowMs: () => 1_000_000,
      monotonicMs: () => nowMs,
      timeoutMs: 1_000,
      recheckMs: 15_000,
    });
    return { access, events, later: (ms: number) => void (nowMs += ms) };
  }

  it('have a bounded size', async () => {
    const { access, events } = open();
    const path = `/api/v1/search?q=${'x'.repeat(15_000)}`;
    await access.saw(mallory, 'search', { url: path });
    expect(JSON.parse(events[0]!)).toMatchObject({
      event: { request: { path: path.slice(0, 1024), pathTruncatedFrom: path.length } },
    });
    // requests for different long paths create separate events
    await access.saw(mallory, 'list', { url: `${path}1` });
    await access.saw(mallory, 'list', { url: `${path}2` });
    expect(events).toHaveLength(3);
  });

  it('are limited, and a view without an event is refused', async () => {
    const { access, events, later } = open();
    const view = (viewer: Viewer, id: number): Promise<void> =>
      access.saw(viewer, 'list', { url: `/x?user=${id}` });
    let count = 0;
    const flood = async (): Promise<unknown> => {
      for (;;) await view(mallory, (count += 1));
    };
    await expect(flood()).rejects.toMatchObject({ code: 'RECORDER_BUSY' });
    expect(events.join('').length).toBeLessThanOrEqual(2 * 1024 ** 2);
    // the same user on another device
    await expect(view({ ...mallory, nodeId: 'nN' }, 0)).rejects.toMatchObject({ code: 'RECORDER_BUSY' });
    // a view that already has an event is still permitted
    await view(mallory, 1);
    const refused = events.length;
    await view({ node: 'c', nodeId: 'nC', user: 'carol@example.com' }, 1);
    later(1_000);
    // the refused view created no event, so the repeated view creates one now
    await view(mallory, count);
    expect(events).toHaveLength(refused + 2);
  });
});
