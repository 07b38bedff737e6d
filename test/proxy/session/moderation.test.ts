import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { Moderation } from '../../../src/proxy/session/moderation.ts';
import type { ModerationRule } from '../../../src/tailnet/access-rules.ts';
import type { SessionWatcher } from '../../../src/wire/recorder-api/session-order.ts';
import type { Identity } from '../../../src/tailnet/identity.ts';

const BOB: SessionWatcher = { nodeId: 'nBOB', user: 'bob@example.com' };
const PAGER: SessionWatcher = { nodeId: 'nPAGER', tags: ['tag:pager'] };
const LEASE_MS = 9000;
const NODE = { nodeName: 'node.tail1.ts.net', addresses: [], capabilities: new Map() };
const ALICE: Identity = {
  ...NODE,
  kind: 'user',
  nodeId: 'nALICE',
  userId: 1n,
  login: 'alice@example.com',
  displayName: 'Alice',
};

function rule(users: readonly string[], tags: readonly string[] = []): ModerationRule {
  return { moderate: ['exec'], moderators: { users, tags }, clusters: [], namespaces: [] };
}

function moderation(rules: readonly ModerationRule[], owner = ALICE) {
  const notes: string[] = [];
  const state = { starts: 0, end: undefined as string | undefined };
  let orders = 0;
  const moderated = new Moderation({
    rules,
    owner,
    session: { order: ({ action, by, reason }) => void notes.push([action, by, reason].join(' ').trim()) },
    start: () => void (state.starts += 1),
    end: (error) => void (state.end = error.detail),
  });
  return {
    notes,
    state,
    moderated,
    /**
     * Delivers the session order `watch`, with which a viewer starts to watch the session. A second call with the same
     * `id` repeats the session order.
     */
    watch(watcher: SessionWatcher, id = `order-${(orders += 1)}`): void {
      const order = { id, action: 'watch', by: watcher.user ?? watcher.nodeId, reason: '', watcher } as const;
      if (!moderated.repeat(order)) moderated.watch(order);
    },
  };
}

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

describe('a moderated session', () => {
  it('starts once, when a moderator watches, and ends when the last repetition is too old', () => {
    const { watch, state, notes } = moderation([rule(['bob@example.com'])]);
    expect(state.starts).toBe(0);
    watch(BOB, 'a');
    watch(BOB, 'a');
    vi.advanceTimersByTime(LEASE_MS - 1);
    watch(BOB, 'a');
    vi.advanceTimersByTime(LEASE_MS - 1);
    expect(state).toEqual({ starts: 1, end: undefined });
    vi.advanceTimersByTime(1);
    expect(state).toEqual({ starts: 1, end: 'no moderator watches it any more' });
    expect(notes).toEqual(['watch bob@example.com', 'leave bob@example.com']);
  });

  it('confirms the order of a viewer who returned to another recorder', () => {
    const { watch, state, notes } = moderation([rule(['bob@example.com'])]);
    watch(BOB, 'a');
    vi.advanceTimersByTime(LEASE_MS - 1);
    watch(BOB, 'b');
    vi.advanceTimersByTime(LEASE_MS - 1);
    expect(state).toEqual({ starts: 1, end: undefined });
    expect(notes).toEqual(['watch bob@example.com', 'watch bob@example.com']);
  });

  it('needs a moderator for each rule', () => {
    const { watch, state } = moderation([rule(['bob@example.com']), rule([], ['tag:pager'])]);
    watch(BOB);
    expect(state.starts).toBe(0);
    watch(PAGER);
    expect(state.starts).toBe(1);
  });

  it.each<[string, SessionWatcher]>([
    ['its user at another node', { nodeId: 'nOTHER', user: 'alice@example.com' }],
    ['its user in other letters', { nodeId: 'nOTHER', user: 'Alice@Example.com' }],
    ['the node of its user', { nodeId: 'nALICE', tags: ['tag:pager'] }],
    ['a viewer that no rule names', { nodeId: 'nEVE', user: 'eve@example.com' }],
    ['a user node that also sends tags', { nodeId: 'nEVE', user: 'eve@example.com', tags: ['tag:pager'] }],
    ['a node with another tag', { nodeId: 'nCI', tags: ['tag:ci'] }],
    ['a node without tags', { nodeId: 'nCI' }],
  ])('is not started by %s', (_, watcher) => {
    const rules = [rule(['bob@example.com', 'alice@example.com', 'Alice@Example.com'], ['tag:pager'])];
    const { watch, state, notes } = moderation(rules);
    watch(watcher);
    expect(state.starts).toBe(0);
    expect(notes).toEqual([expect.stringMatching(/^leave .* you are no moderator of this session$/)]);
  });

  it('is not started by its own tagged node', () => {
    const owner = { ...NODE, kind: 'tagged', nodeId: 'nCI', tags: ['tag:ci'] } as const;
    const { watch, state } = moderation([rule([], ['tag:ci'])], owner);
    watch({ nodeId: 'nCI', tags: ['tag:ci'] });
    expect(state.starts).toBe(0);
    watch({ nodeId: 'nCI2', tags: ['tag:ci'] });
    expect(state.starts).toBe(1);
  });

  it('waits for 15 minutes', () => {
    const { state } = moderation([rule(['bob@example.com'])]);
    vi.advanceTimersByTime(15 * 60_000 - 1);
    expect(state.end).toBeUndefined();
    vi.advanceTimersByTime(1);
    expect(state).toEqual({ starts: 0, end: 'no moderator watched it for 15 minutes' });
  });

  it('has at most 32 watchers', () => {
    const { watch, notes } = moderation([rule([], ['tag:pager'])]);
    for (let count = 1; count <= 33; count += 1) watch({ nodeId: `n${count}`, tags: ['tag:pager'] });
    expect(notes.filter((note) => note.startsWith('watch'))).toHaveLength(32);
    expect(notes.at(-1)).toBe('leave n33 32 viewers watch it already');
  });

  it('does nothing after its end', () => {
    const { watch, state, moderated, notes } = moderation([rule(['bob@example.com'])]);
    moderated.stop();
    watch(BOB);
    vi.advanceTimersByTime(20 * 60_000);
    expect({ ...state, notes }).toEqual({ starts: 0, end: undefined, notes: [] });
    expect(vi.getTimerCount()).toBe(0);
  });
});
