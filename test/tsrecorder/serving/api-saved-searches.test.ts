/**
 * Saved searches of a recorder: personal and shared searches, rights, cross-site requests, events, and forged
 * documents.
 */
import { describe, expect, it } from 'vitest';
import type { Viewer } from '../../../src/tsrecorder/serving/viewing.ts';
import type { SavedSearches } from '../../../src/wire/recorder-api/saved-search.ts';
import type { Answer } from '../recorder-rig.ts';
import { CAROL, openViewedRecorder } from '../viewed-recorder.ts';

const ERIN: Viewer = { ...CAROL, user: 'erin@example.com' };
const RULES = [
  'carol@example.com',
  'carol@example.com=review',
  'dave@example.com',
  'erin@example.com=namespace:shop',
  'erin@example.com=review',
];
const PATH = '/api/v1/searches';

async function openRecorder() {
  const { rig, as, post } = await openViewedRecorder(RULES);
  return {
    get: rig.get,
    as,
    read: async (headers = {}) => JSON.parse((await rig.get(PATH, headers)).body) as SavedSearches,
    post: (body: unknown, headers: Record<string, string> = {}) => post(PATH, body, headers),
  };
}

describe('saved searches', () => {
  it('are personal or shared, are replaced by name and removed, and each change is an event', async () => {
    const { post, read, as, get } = await openRecorder();
    const save = (name: string, query: string, isShared: boolean): Promise<Answer> =>
      post({ kind: 'save', name, query, isShared });
    expect((await save('mine', 'user:alice', false)).status).toBe(200);
    expect((await save('ours', 'cmd:rm', true)).status).toBe(200);
    const answer = await save('ours', 'cmd:"rm -rf"', true);
    const carols = {
      personal: [{ name: 'mine', query: 'user:alice' }],
      shared: [{ name: 'ours', query: 'cmd:"rm -rf"', by: 'carol@example.com' }],
      mayWrite: true,
      mayShare: true,
    };
    expect(JSON.parse(answer.body)).toEqual(carols);
    expect(await read()).toEqual(carols);
    as({ ...CAROL, user: 'dave@example.com' });
    expect(await read()).toEqual({ ...carols, personal: [], mayWrite: false, mayShare: false });
    expect((await save('ours', 'changed', true)).status).toBe(403);
    as(CAROL);
    await post({ kind: 'remove', name: 'ours', isShared: true });
    expect(await read()).toEqual({ ...carols, shared: [] });
    const { events } = JSON.parse((await get('/api/v1/events?type=tailcast-recording-access')).body) as {
      events: { event: { action: string; request: { method: string } } }[];
    };
    const changes = events.filter(({ event }) => event.action.startsWith('searches-'));
    expect(changes.map(({ event }) => event.action)).toEqual([
      'searches-remove',
      'searches-save',
      'searches-save',
      'searches-save',
    ]);
    expect(changes.every(({ event }) => event.request.method === 'POST')).toBe(true);
  });

  it('that are shared stay hidden from viewers who may not see everything', async () => {
    const { post, read, as } = await openRecorder();
    await post({ kind: 'save', name: 'ours', query: 'user:bob ns:secret', isShared: true });
    as(ERIN);
    expect(await read()).toEqual({ personal: [], shared: [], mayWrite: true, mayShare: false });
    expect((await post({ kind: 'save', name: 'x', query: 'y', isShared: true })).status).toBe(403);
    expect((await post({ kind: 'remove', name: 'ours', isShared: true })).status).toBe(403);
    expect((await post({ kind: 'save', name: 'x', query: 'y', isShared: false })).status).toBe(200);
    as(CAROL);
    expect(await read()).toMatchObject({ personal: [], shared: [{ name: 'ours' }] });
  });

  it('cannot be changed by an invalid request, another site or a gateway', async () => {
    const { post, read, as } = await openRecorder();
    const valid = { kind: 'save', name: 'a', query: 'b', isShared: false };
    for (const change of [
      { ...valid, name: ' ' },
      { ...valid, name: 'x'.repeat(61) },
      { ...valid, query: 'x'.repeat(600) },
      { ...valid, owner: 'dave@example.com' },
      { ...valid, kind: 'delete' },
      'x'.repeat(20_000),
    ]) {
      const { status } = await post(change);
      expect([change, status >= 400 && status < 500]).toEqual([change, true]);
    }
    for (const headers of [{ 'content-type': 'text/plain' }, { 'sec-fetch-site': 'cross-site' }])
      expect((await post(valid, headers)).status).toBeGreaterThanOrEqual(400);
    as({ node: 'k8s.tail1.ts.net', nodeId: 'nGATE1CNTRL', tags: ['tag:k8s-gateway'] });
    const named = {
      'tailscale-user-login': 'carol@example.com',
      'x-tailcast-viewer-node': 'desk.tail1.ts.net',
      'x-tailcast-viewer-node-id': 'nDESK',
      'x-tailcast-viewer-address': '100.64.0.4',
    };
    expect((await post(valid, named)).status).toBe(403);
    expect(await read(named)).toEqual({ personal: [], shared: [], mayWrite: false, mayShare: false });
  });

  it('have a limited number', async () => {
    const { post, read } = await openRecorder();
    const save = (name: string): Promise<Answer> => post({ kind: 'save', name, query: 'x', isShared: false });
    for (let count = 0; count < 50; count += 1) await save(`search ${count}`);
    expect((await save('one more')).status).toBe(400);
    expect((await save('search 7')).status).toBe(200);
    expect((await read()).personal).toHaveLength(50);
  });
});
