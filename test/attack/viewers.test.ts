/**
 * A restricted viewer tries to learn about hidden recordings from filters, counts, cursors, ids, and differences
 * between responses.
 */
import { once } from 'node:events';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { WebSocket } from 'ws';
import { parseViewRule, type Viewer } from '../../src/tsrecorder/serving/viewing.ts';
import {
  createRig,
  HEADER,
  openUpload,
  uploadWhole,
  type Answer,
  type Rig,
} from '../tsrecorder/recorder-rig.ts';

const EVE: Viewer = { node: 'eve.tail1.ts.net', nodeId: 'nEVE', user: 'eve@example.com' };
const GATEWAY: Viewer = { node: 'k8s.tail1.ts.net', nodeId: 'nGATE1CNTRL', tags: ['tag:k8s-gateway'] };
const AUDITOR: Viewer = { node: 'audit.tail1.ts.net', nodeId: 'nAUDIT', tags: ['tag:audit'] };
const AS_EVE = {
  'tailscale-user-login': 'eve@example.com',
  'x-tailcast-viewer-node': 'eve.tail1.ts.net',
  'x-tailcast-viewer-node-id': 'nEVE',
  'x-tailcast-viewer-address': '100.64.0.9',
};
const SECRET = 'psql --password=hunter2';
const headerOf = (command: string, user: string, namespace: string): string =>
  HEADER.replace('"sh -i"', JSON.stringify(command))
    .replace('a@example.com', user)
    .replace('"Namespace":"prod"', `"Namespace":"${namespace}"`);
const HIDDEN = headerOf(SECRET, 'root@example.com', 'vault');
const MINE = headerOf('ls', 'eve@example.com', 'mine');

let rig: Rig;
let hiddenIds: readonly string[];
let myIds: readonly string[];
let caller: Viewer = EVE;
let open: ReturnType<typeof openUpload>;

beforeAll(async () => {
  rig = await createRig({
    identifyViewer: async () => caller,
    viewers: ['*=user:eve@example.com', 'tag:audit', 'eve@example.com=end'].map(parseViewRule),
    trustedGateways: ['tag:k8s-gateway'],
  });
  for (const body of [HIDDEN, HIDDEN, MINE, HIDDEN, HIDDEN, MINE, HIDDEN])
    await uploadWhole(rig.recorder, body);
  open = openUpload(rig.recorder, { 'tailcast-session': 'hidden', 'tailcast-orders': '1' });
  open.write(HIDDEN);
  await open.ack(({ ack }) => ack === HIDDEN.length);
  caller = AUDITOR;
  const all = await rig.list('?limit=500');
  hiddenIds = all.filter(({ kubernetes }) => kubernetes?.namespace === 'vault').map(({ id }) => id);
  myIds = all.filter(({ kubernetes }) => kubernetes?.namespace === 'mine').map(({ id }) => id);
});
afterAll(async () => {
  open.close();
  await rig[Symbol.asyncDispose]();
});

/** The two ways in which eve reaches the recorder: from her own node, and through the portal of a gateway. */
const ROADS: readonly (readonly [string, Viewer, Record<string, string>])[] = [
  ['at the recorder', EVE, {}],
  ['through the portal', GATEWAY, AS_EVE],
];

describe.each(ROADS)('%s', (_road, viewer, fields) => {
  const ask = (path: string, headers: Record<string, string> = {}, method = 'GET'): Promise<Answer> => {
    caller = viewer;
    return rig.get(path, { ...fields, ...headers }, method);
  };

  /** Returns true if the response to a query differs from the response to `reference`, a query without a match. */
  async function differs(query: string, reference: string): Promise<boolean> {
    const [asked, nothing] = [
      await ask(`/api/v1/recordings?${query}`),
      await ask(`/api/v1/recordings?${reference}`),
    ];
    return asked.status !== nothing.status || asked.body !== nothing.body;
  }

  it('a session that the viewer may not see is not ended, and an order does not reveal it', async () => {
    const unknown = 'nX_2026-01-01T00:00:00.000000000Z';
    const end = (id: string): Promise<Answer> =>
      ask(`/api/v1/recordings/${encodeURIComponent(id)}/orders/end`, {}, 'POST');
    const { status, body } = await end(unknown);
    expect(status).toBe(404);
    for (const id of hiddenIds) expect(await end(id)).toMatchObject({ status, body });
    expect((await end(myIds[0] ?? '')).status).toBe(409);
    expect(open.acks.filter(({ order }) => order !== undefined)).toEqual([]);
  });

  it('no command is recovered letter by letter', async () => {
    const alphabet = 'abcdefghijklmnopqrstuvwxyz0123456789 -=';
    let known = 'psql';
    let questions = 0;
    for (let grown = true; grown;) {
      grown = false;
      for (const letter of alphabet) {
        questions += 1;
        const guess = encodeURIComponent(known + letter);
        if (!(await differs(`limit=1&text=${guess}`, 'limit=1&text=%00%00'))) continue;
        known += letter;
        grown = true;
        break;
      }
    }
    expect([known, questions]).toEqual(['psql', alphabet.length]);
  });

  it.each([
    'text=psql',
    'text=VAULT',
    'user=root@example.com',
    'namespace=vault',
    'state=running',
    'state=interrupted',
    'namespace=vault&kind=exec',
    'text=hunter2&pod=web-0',
    'user=root@example.com&node=laptop.tail1.ts.net',
  ])('a filter that only what is hidden matches finds nothing: %s', async (filter) => {
    for (const limit of [1, 2, 500]) {
      const { status, body } = await ask(`/api/v1/recordings?limit=${limit}&${filter}`);
      expect([limit, status, body]).toEqual([limit, 200, '{"recordings":[]}']);
    }
  });

  it('there is something to be found', () => {
    expect([hiddenIds.length, myIds.length]).toEqual([6, 2]);
  });

  it.each([1, 2, 3, 500])('pages of %i hold what may be seen, and end with it', async (limit) => {
    const seen: string[] = [];
    for (let cursor = '', pages = 0; ; pages += 1) {
      const page = JSON.parse((await ask(`/api/v1/recordings?limit=${limit}${cursor}`)).body);
      seen.push(...page.recordings.map(({ id }: { id: string }) => id));
      for (const id of hiddenIds) expect(JSON.stringify(page)).not.toContain(id);
      if (page.next === undefined) {
        expect(pages).toBe(Math.ceil(myIds.length / limit) - 1);
        break;
      }
      expect(page.recordings).toHaveLength(limit);
      // the cursor of the next page must not contain the value, in plain text or in base64
      for (const text of [page.next, Buffer.from(page.next, 'base64url').toString('latin1')])
        expect(text).not.toMatch(/nGATE1CNTRL|20\d\d-|[TZ:]\d\d:/);
      cursor = `&cursor=${encodeURIComponent(page.next)}`;
    }
    expect(seen).toEqual(myIds);
  });

  it('no cursor can be made up, changed, or used elsewhere', async () => {
    const { next } = JSON.parse((await ask('/api/v1/recordings?limit=1')).body) as { next: string };
    const bytes = Buffer.from(next, 'base64url');
    const flipped = [0, 12, bytes.length - 1].map((at) => {
      const copy = Buffer.from(bytes);
      copy[at]! ^= 1;
      return copy.toString('base64url');
    });
    for (const cursor of [hiddenIds[0]!, myIds[0]!, '', 'x', next.slice(0, -4), `${next}AAAA`, ...flipped]) {
      const answer = await ask(`/api/v1/recordings?cursor=${encodeURIComponent(cursor)}`);
      expect([cursor, answer.status]).toEqual([cursor, 400]);
      expect(answer.body).not.toContain('nGATE1CNTRL');
    }
    caller = AUDITOR;
    expect((await rig.get(`/api/v1/events?cursor=${encodeURIComponent(next)}`)).status).toBe(400);
  });

  it.each([
    '',
    '?view=1',
    '/cast',
    '/cast?normalise=1',
    '/cast?follow=1',
    '/cast?view=1',
    '/playback',
    '/playback?view=1',
    '/transcript',
    '/evidence',
    '/playback?frame=0',
    '/playback?frame=x',
    '/notes',
    '/sidecar',
  ])('what is hidden is as unknown as what there is not: <id>%s', async (path) => {
    for (const method of ['GET', 'HEAD']) {
      for (const headers of [{}, { range: 'bytes=0-0' }, { 'if-none-match': '*' }]) {
        const [absent, ...hidden] = await Promise.all(
          ['nGATE1CNTRL_2020-01-01T00:00:00Z', ...hiddenIds].map((id) =>
            ask(`/api/v1/recordings/${encodeURIComponent(id)}${path}`, headers, method),
          ),
        );
        expect(absent!.status).toBe(404);
        for (const { status, body, headers: fieldsOfAnswer } of hidden) {
          const { date: _1, ...given } = fieldsOfAnswer;
          const { date: _2, ...expected } = absent!.headers;
          expect({ status, body, given }).toEqual({ status: 404, body: absent!.body, given: expected });
        }
      }
    }
  });

  it('a live view of what is hidden is refused as one of what there is not', async () => {
    caller = viewer;
    const refusals = await Promise.all(
      ['nGATE1CNTRL_2020-01-01T00:00:00Z', ...hiddenIds].map(async (id) => {
        const address = `${rig.recorder.url.replace('http', 'ws')}/api/v1/recordings/${encodeURIComponent(id)}/live`;
        const [error] = await once(new WebSocket(address, ['v2.asciicast'], { headers: fields }), 'error');
        return String(error);
      }),
    );
    expect(new Set(refusals)).toEqual(new Set(['Error: Unexpected server response: 404']));
  });

  it.each(['', '?text=hunter2', '?type=tailcast-recording-access', '?limit=0', '?cursor=x', '?odd=1'])(
    'events are not for her, whatever she asks: %s',
    async (query) => {
      const { status, body } = await ask(`/api/v1/events${query}`);
      expect(status).toBe(403);
      expect(JSON.parse(body)).toMatchObject({ code: 'VIEW_REFUSED', viewer: EVE.user });
    },
  );
});

it('tags in a header do not pass for a user or a namespace', async () => {
  const forged = HEADER.replace('"srcNodeUser":"a@example.com"', '"srcNodeTags":["user:eve@example.com"]');
  await uploadWhole(rig.recorder, forged);
  caller = EVE;
  expect((await rig.list()).map(({ id }) => id)).toEqual(myIds);
});

it('the viewer without a rule gets the same response from an empty recorder, and it says so', async () => {
  await using full = await createRig({
    identifyViewer: async () => EVE,
    searchText: 'all',
    viewers: ['root@example.com', 'eve@example.com=review'].map(parseViewRule),
  });
  await using empty = await createRig({
    identifyViewer: async () => EVE,
    searchText: 'all',
    viewers: ['root@example.com'].map(parseViewRule),
  });
  for (const body of [HIDDEN, MINE]) await uploadWhole(full.recorder, body);
  for (const path of [
    'recordings',
    'recordings?text=psql&state=running',
    'recordings?user=eve@example.com',
  ]) {
    const { body } = await full.get(`/api/v1/${path}`);
    expect(JSON.parse(body)).toEqual({ recordings: [], noRuleFor: EVE.user, search: true });
    expect(body).toBe((await empty.get(`/api/v1/${path}`)).body);
  }
  const search = async ({ get }: Rig): Promise<string> => (await get('/api/v1/search?q=psql')).body;
  for (const one of [full, empty])
    await expect
      .poll(async () => JSON.parse(await search(one)).index, { timeout: 10_000 })
      .toEqual({ state: 'ready' });
  expect(JSON.parse(await search(full))).toMatchObject({ sessions: [], noRuleFor: EVE.user });
  expect(await search(full)).toBe(await search(empty));
});

it('running views end soon after the viewer has lost the right', { timeout: 40_000 }, async () => {
  let viewer: Viewer | undefined = EVE;
  await using own = await createRig({
    identifyViewer: async () => viewer,
    viewers: [`${EVE.user}=user:a@example.com`].map(parseViewRule),
    timing: { recheckMs: 50 },
  });
  const upload = openUpload(own.recorder);
  upload.write(HEADER);
  await upload.ack(({ ack }) => ack > 0);
  const [found] = await own.list();
  const path = `/api/v1/recordings/${encodeURIComponent(found!.id)}`;
  const live = new WebSocket(`${own.recorder.url.replace('http', 'ws')}${path}/live`, ['v2.asciicast']);
  await once(live, 'message');
  const followed = await fetch(`${own.recorder.url}${path}/cast?follow=1`);
  const reading = followed.text().catch(() => 'cut off');
  // the recorder remembers the identity of a connection for up to ten seconds
  viewer = undefined;
  await once(live, 'close');
  expect(await reading).toBe('cut off');
  expect((await fetch(`${own.recorder.url}${path}/cast`)).status).toBe(403);
  upload.end();
  await upload.over;
});
