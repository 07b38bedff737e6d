/**
 * Requests that read and write reviews: the right `review`, cross-site requests, requests through gateways, and events.
 */
import { describe, expect, it } from 'vitest';
import { parseQuery, type Query, type Term } from '../../../src/search/query.ts';
import type { Reviews } from '../../../src/tsrecorder/evidence/reviews.ts';
import { visibleIds, withReviewedIds } from '../../../src/tsrecorder/serving/api-reviews.ts';
import type { Recording } from '../../../src/wire/recorder-api/recording.ts';
import type { Review } from '../../../src/wire/recorder-api/review.ts';
import { parseViewRule, scopeOf } from '../../../src/tsrecorder/serving/viewing.ts';
import { HEADER, uploadWhole } from '../recorder-rig.ts';
import { CAROL, openViewedRecorder } from '../viewed-recorder.ts';

const RULES = [
  'carol@example.com',
  'carol@example.com=review',
  'dave@example.com',
  'erin@example.com=review',
];

/** Opens a recorder with one recording. */
async function openRecorder() {
  const { rig, as, post } = await openViewedRecorder(RULES);
  await uploadWhole(rig.recorder, `${HEADER}[0.1,"o","hello"]\n`);
  const [recording] = await rig.list();
  const path = `/api/v1/recordings/${recording!.id}/review`;
  return {
    id: recording!.id,
    get: rig.get,
    list: rig.list,
    as,
    read: async (headers = {}) => JSON.parse((await rig.get(path, headers)).body) as object,
    post: (body: unknown, headers: Record<string, string> = {}) => post(path, body, headers),
  };
}

describe('a viewer with the right review', () => {
  it('writes comments and tags, which lists contain, and each is an event', async () => {
    const { id, post, read, list, get } = await openRecorder();
    expect(await read()).toEqual({ tags: [], comments: [], mayWrite: true });
    expect((await post({ kind: 'comment', text: ' look here ', seconds: 0.1 })).status).toBe(200);
    expect((await post({ kind: 'tag', text: 'incident' })).status).toBe(200);
    const answer = await post({ kind: 'reviewed' });
    expect(JSON.parse(answer.body)).toEqual(await read());
    expect(await read()).toMatchObject({
      tags: ['incident'],
      comments: [{ by: 'carol@example.com', text: 'look here', seconds: 0.1 }],
      reviewed: { by: 'carol@example.com' },
    });
    expect((await list())[0]).toMatchObject({
      id,
      review: { tags: ['incident'], comments: 1, reviewedBy: 'carol@example.com' },
    });
    const { events } = JSON.parse((await get('/api/v1/events?type=tailcast-recording-access')).body) as {
      events: { event: { action: string; recording?: string; source: { nodeUser?: string } } }[];
    };
    const changes = events.map(({ event }) => event).filter(({ action }) => action.startsWith('review-'));
    expect(changes.map(({ action }) => action)).toEqual(['review-reviewed', 'review-tag', 'review-comment']);
    for (const event of changes)
      expect(event).toMatchObject({
        recording: id,
        request: { method: 'POST' },
        source: { nodeUser: CAROL.user },
      });
  });

  it('gets an error for an invalid change, and nothing is stored', async () => {
    const { post, read } = await openRecorder();
    for (const change of [
      { kind: 'comment', text: '' },
      { kind: 'comment', text: 'x'.repeat(2001) },
      { kind: 'tag', text: 'tag:ci' },
      { kind: 'tag', text: '<b>' },
      { kind: 'reviewed', by: 'admin@example.com' },
      { kind: 'delete' },
      'x'.repeat(20_000),
    ]) {
      const { status } = await post(change);
      expect([change, status >= 400 && status < 500]).toEqual([change, true]);
    }
    expect(await read()).toEqual({ tags: [], comments: [], mayWrite: true });
  });

  it('cannot be used by another site', async () => {
    const { post, read } = await openRecorder();
    for (const headers of [
      { 'content-type': 'text/plain' },
      { 'sec-fetch-site': 'cross-site' },
      { origin: 'https://evil.example' },
    ])
      expect((await post({ kind: 'reviewed' }, headers)).status).toBeGreaterThanOrEqual(400);
    expect(await read()).not.toHaveProperty('reviewed');
    expect((await post({ kind: 'reviewed' }, { 'sec-fetch-site': 'same-origin' })).status).toBe(200);
  });
});

describe('other viewers', () => {
  it('read reviews without the right to write them', async () => {
    const { post, read, as } = await openRecorder();
    await post({ kind: 'tag', text: 'incident' });
    as({ ...CAROL, user: 'dave@example.com' });
    expect((await post({ kind: 'tag', text: 'mine' })).status).toBe(403);
    expect(await read()).toEqual({ tags: ['incident'], comments: [], mayWrite: false });
  });

  it('write no reviews of recordings that they may not see', async () => {
    const { post, as, read } = await openRecorder();
    as({ ...CAROL, user: 'erin@example.com' });
    expect((await post({ kind: 'tag', text: 'blind' })).status).toBe(404);
    as(CAROL);
    expect(await read()).toMatchObject({ tags: [] });
  });

  it('see no recordings if all rules are about reviews', () => {
    const rules = ['carol@example.com=review'].map(parseViewRule);
    expect(scopeOf(rules, { ...CAROL, user: 'dave@example.com' })).toEqual([]);
    expect(scopeOf(rules, CAROL)).toEqual([]);
    expect(scopeOf([], CAROL)).toBe('everything');
  });

  it('cannot be named by a gateway for a change', async () => {
    const { post, as, read } = await openRecorder();
    as({ node: 'k8s.tail1.ts.net', nodeId: 'nGATE1CNTRL', tags: ['tag:k8s-gateway'] });
    const named = {
      'tailscale-user-login': 'carol@example.com',
      'x-tailcast-viewer-node': 'desk.tail1.ts.net',
      'x-tailcast-viewer-node-id': 'nDESK',
      'x-tailcast-viewer-address': '100.64.0.4',
    };
    expect((await post({ kind: 'reviewed' }, named)).status).toBe(403);
    expect(await read(named)).toEqual({ tags: [], comments: [], mayWrite: false });
  });
});

describe('a query about reviews', () => {
  const REVIEW: Review = { tags: ['seen'], comments: [], reviewed: { by: 'carol@example.com', at: '' } };
  const all = new Map([
    ['r1', REVIEW],
    ['r2', { ...REVIEW, tags: ['seen', 'incident'] }],
    ['r3', { tags: ['incident'], comments: [] }],
  ]);
  const reviews: Reviews = {
    all: async () => all,
    change: async () => REVIEW,
    mark: async () => {},
    markSlow: async () => {},
  };

  /** Returns the recordings that a query finds. The word `cat` is on the screen of r1 and r4. */
  async function found(text: string): Promise<readonly string[]> {
    const { clauses } = await withReviewedIds(reviews, parseQuery(text, 0));
    const isTrue = (term: Term, id: string): boolean =>
      (term.field === 'id' ? term.value === id : ['r1', 'r4'].includes(id)) !== term.isNot;
    return ['r1', 'r2', 'r3', 'r4'].filter((id) =>
      clauses.every((clause) => clause.some((term) => isTrue(term, id))),
    );
  }

  it.each([
    ['reviewed:yes', 'r1 r2'],
    ['reviewed:no', 'r3 r4'],
    ['NOT reviewed:no', 'r1 r2'],
    ['cat OR reviewed:yes', 'r1 r2 r4'],
    ['reviewed:yes OR tag:incident', 'r1 r2 r3'],
    ['reviewed:no NOT tag:incident', 'r4'],
    ['tag:nothing', ''],
    ['NOT tag:nothing', 'r1 r2 r3 r4'],
    ['cat NOT tag:se*', 'r4'],
  ])('%s finds: %s', async (text, ids) => {
    expect((await found(text)).join(' ')).toBe(ids);
  });

  it('is refused for too many recordings only if the viewer may see them', async () => {
    const many = new Map(Array.from({ length: 3000 }, (_, at) => [`r${at}`, REVIEW] as const));
    const asked: Reviews = { ...reviews, all: async () => many };
    const ask = (visible: number): Promise<Query> => {
      const shown = async (ids: readonly string[]) =>
        ids.map((id) => (Number(id.slice(1)) < visible ? ({ id } as Recording) : undefined));
      return withReviewedIds(asked, parseQuery('reviewed:yes', 0), visibleIds({ shown }, ['namespace:a']));
    };
    expect((await ask(5)).clauses.flat().map((term) => term.value)).toEqual(['r0', 'r1', 'r2', 'r3', 'r4']);
    await expect(ask(1001)).rejects.toThrow('more than 1000');
    await expect(withReviewedIds(asked, parseQuery('reviewed:yes', 0))).rejects.toThrow('more than 1000');
  });

  it.each(['cat OR reviewed:no', 'cat OR NOT tag:incident', 'tag:se* OR duration:>5', 'tag:se* OR tag:in*'])(
    'is refused if OR would exclude recordings or join a prefix: %s',
    (text) => {
      expect(() => parseQuery(text, 0)).toThrow('OR joins words and complete names');
    },
  );
});
