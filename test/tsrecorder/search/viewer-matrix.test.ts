/**
 * All kinds of viewer rules and queries. A hidden session must not be found by any field, not be counted, and not
 * appear in snippets, on pages of another viewer's cursor, or in webhooks.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { AlertSettings } from '../../../src/tsrecorder/search/alerts/alerts.ts';
import { parseViewRule, type Viewer } from '../../../src/tsrecorder/serving/viewing.ts';
import { createRig, HEADER, until, uploadWhole, type Rig } from '../recorder-rig.ts';
import { alertsFor, openReceiver, type Receiver } from './alerts/webhook-receiver.ts';

interface Made {
  readonly who: string;
  readonly namespace: string;
  readonly cluster?: string;
}

/** Sessions by number, each with unique words on its screen and in its names. */
const MADE: readonly Made[] = [
  { who: 'alice@example.com', namespace: 'prod' },
  { who: 'alice@example.com', namespace: 'dev' },
  { who: 'bob@example.com', namespace: 'prod' },
  { who: 'bob@example.com', namespace: 'dev' },
  { who: 'tag:ci', namespace: 'prod' },
  { who: 'tag:ops', namespace: 'dev' },
  { who: 'dora@example.com', namespace: 'shop', cluster: 'east' },
  { who: 'dora@example.com', namespace: 'shop', cluster: 'west' },
  // names that imitate the namespace `shop` of the cluster `east`
  { who: 'eve@example.com', namespace: 'east/shop' },
  { who: 'eve@example.com', namespace: 'mail', cluster: 'east/shop' },
];
/** Viewers: their rules, and the sessions that they may see. */
const VIEWERS = [
  { user: 'user@example.com', rules: ['user:alice@example.com'], sees: [0, 1] },
  { user: 'space@example.com', rules: ['namespace:prod'], sees: [0, 2, 4] },
  { user: 'tag@example.com', rules: ['tag:ci'], sees: [4] },
  { user: 'more@example.com', rules: ['user:bob@example.com', 'tag:ops'], sees: [2, 3, 5] },
  { user: 'cluster@example.com', rules: ['cluster:east'], sees: [6] },
  { user: 'place@example.com', rules: ['namespace:west/shop', 'cluster:absent'], sees: [7] },
  { user: 'forged@example.com', rules: ['namespace:east/shop'], sees: [6] },
  { user: 'both@example.com', rules: ['namespace:shop'], sees: [6, 7] },
  { user: 'nobody@example.com', rules: [], sees: [] },
] as const;
const ROOT = 'root@example.com';
/** Maximum concurrent queries: two run and eight wait. */
const AT_A_TIME = 8;
const ALL = MADE.map((_, number) => number);

function cast(number: number): string {
  const { who, namespace, cluster } = MADE[number]!;
  const header = JSON.parse(HEADER) as Record<string, unknown>;
  const isTag = who.startsWith('tag:');
  return `${JSON.stringify({
    ...header,
    command: `run command${number}`,
    srcNode: `laptop${number}.tail1.ts.net`,
    srcNodeUser: isTag ? '' : who,
    srcNodeTags: isTag ? [who] : [],
    kubernetes: {
      PodName: `pod${number}-x`,
      Namespace: namespace,
      Container: `box${number}`,
      SessionType: 'exec',
    },
    ...(cluster === undefined ? {} : { tailcastCluster: cluster }),
  })}\n${JSON.stringify([1.5, 'o', `needle secret${number} around\r\n`])}\n`;
}

/** Matches the words in a response that belong only to this session. */
const ownWords = (number: number): RegExp => new RegExp(`(?:secret|command|laptop|pod|box)${number}\\b`);

interface Found {
  readonly sessions: readonly {
    readonly recording: { readonly id: string };
    readonly hits: readonly unknown[];
  }[];
  readonly next?: string;
}

let rig: Rig;
let receivers: readonly Receiver[] = [];
let viewer: Viewer = { node: 'desk', nodeId: 'nDESK', user: ROOT };
const numbers = new Map<string, number>();

async function get(user: string, path: string): Promise<{ readonly status: number; readonly body: string }> {
  viewer = { node: 'desk', nodeId: 'nDESK', user };
  return rig.get(`/api/v1/${path}`);
}

async function found(user: string, query: string, more = ''): Promise<Found & { readonly body: string }> {
  const { status, body } = await get(user, `search?q=${encodeURIComponent(query)}${more}`);
  expect(status, body).toBe(200);
  return { ...(JSON.parse(body) as Found), body };
}

const numbersOf = ({ sessions }: Found): readonly number[] =>
  sessions.map(({ recording }) => numbers.get(recording.id)!);

beforeAll(async () => {
  receivers = await Promise.all(VIEWERS.map(() => openReceiver()));
  const settings: readonly AlertSettings[] = VIEWERS.map(({ rules }, at) =>
    alertsFor(receivers[at]!.url, 'needle', { scope: rules, text: true }),
  );
  const alerts = {
    ...settings[0]!,
    rules: settings.flatMap(({ rules }, at) =>
      rules.map((rule) => ({ ...rule, name: `rule${at}`, webhook: `hook${at}` })),
    ),
    webhooks: new Map(
      settings.flatMap(({ webhooks }, at) => [...webhooks.values()].map((hook) => [`hook${at}`, hook])),
    ),
  };
  rig = await createRig({
    searchText: 'all',
    identifyViewer: async () => viewer,
    viewers: [ROOT, ...VIEWERS.flatMap(({ user, rules }) => rules.map((rule) => `${user}=${rule}`))].map(
      parseViewRule,
    ),
    alerts,
  });
  for (const number of ALL) {
    await uploadWhole(rig.recorder, cast(number));
    const { sessions } = await until(async () => {
      const answer = await found(ROOT, `secret${number}`);
      return answer.sessions.length === 1 ? answer : undefined;
    });
    numbers.set(sessions[0]!.recording.id, number);
  }
});
afterAll(async () => {
  await rig[Symbol.asyncDispose]();
  for (const receiver of receivers) await receiver[Symbol.asyncDispose]();
});

/** Returns queries for every field of every session. */
function questions(): readonly string[] {
  const ofAll = [
    '',
    'needle',
    'text:needle',
    'need*',
    '"needle secret1"',
    'NOT absent',
    'needle OR absent',
    'kind:exec',
  ];
  const ofTimes = [
    'state:completed',
    'after:2000-01-01',
    'before:2100-01-01',
    'duration:>0',
    'duration:<1h',
    'cmd:run',
  ];
  const ofEach = [...numbers].flatMap(([id, number]) => [
    `secret${number}`,
    `needle -secret${number}`,
    `cmd:command${number}`,
    `command${number}`,
    `laptop${number}`,
    `pod:pod${number}-x`,
    `pod:pod${number}-*`,
    `container:box${number}`,
    `node:laptop${number}.tail1.ts.net`,
    `id:${id}`,
    `needle pod:pod${number}-*`,
  ]);
  const names = MADE.flatMap(({ who, namespace, cluster = 'absent' }) => [
    who.startsWith('tag:') ? `tag:${who}` : `user:${who}`,
    who.startsWith('tag:') ? `tag:${who.slice(0, 5)}*` : `user:${who.slice(0, 3)}*`,
    `-ns:${namespace}`,
    `ns:${namespace}`,
    `cluster:${cluster}`,
    `-cluster:${cluster.slice(0, 2)}*`,
  ]);
  return [...new Set([...ofAll, ...ofTimes, ...ofEach, ...names])];
}

describe.each(VIEWERS)('a viewer with the rules $rules', ({ user, sees }) => {
  const hidden = ALL.filter((number) => !(sees as readonly number[]).includes(number));
  const expectNothingHidden = (body: string, asked: string): void => {
    // removes the query, which the response repeats
    const answered = body.replaceAll(/"query":"(?:[^"\\]|\\.)*"/g, '');
    for (const number of hidden) expect(answered, asked).not.toMatch(ownWords(number));
  };

  it('finds and counts by each field only their own sessions, and no text around a word of others', async () => {
    let withHidden = 0;
    const asked = questions();
    const all = new Map<string, readonly number[]>();
    for (const query of asked) all.set(query, numbersOf(await found(ROOT, query)));
    // sends several queries at a time, because each response is delayed until the next time step
    for (let start = 0; start < asked.length; start += AT_A_TIME)
      await Promise.all(
        asked.slice(start, start + AT_A_TIME).map(async (query) => {
          const answer = await found(user, query);
          const visible = all.get(query)!.filter((number) => !hidden.includes(number));
          withHidden += all.get(query)!.length - visible.length;
          expect(numbersOf(answer), query).toEqual(visible);
          expectNothingHidden(answer.body, query);
          const facets = await get(user, `search/facets?q=${encodeURIComponent(query)}`);
          expect((JSON.parse(facets.body) as { counted: number }).counted, query).toBe(visible.length);
          expectNothingHidden(facets.body, query);
        }),
      );
    expect(withHidden).toBeGreaterThan(0);
  }, 120_000);

  it('finds nothing in a hidden recording, and everything in others', async () => {
    for (const [id, number] of numbers) {
      const one = `recordings/${encodeURIComponent(id)}`;
      for (const path of [one, `${one}/cast`]) {
        expect((await get(user, path)).status, path).toBe(hidden.includes(number) ? 404 : 200);
      }
      const path = `${one}/search?q=needle`;
      const { status, body } = await get(user, path);
      expect(status, `${number}`).toBe(hidden.includes(number) ? 404 : 200);
      if (status === 200) expect((JSON.parse(body) as { hits: unknown[] }).hits).toHaveLength(1);
      expectNothingHidden(body, path);
    }
  });

  it('gets with the cursor of another viewer only their own sessions', async () => {
    let answered = 0;
    for (const other of [ROOT, ...VIEWERS.map((each) => each.user).filter((each) => each !== user)]) {
      const { next } = await found(other, 'needle', '&limit=1');
      if (next === undefined) continue;
      const { status, body } = await get(
        user,
        `search?q=needle&limit=100&cursor=${encodeURIComponent(next)}`,
      );
      expectNothingHidden(body, other);
      if (status !== 200) continue;
      answered += 1;
      const rest = numbersOf(JSON.parse(body) as Found);
      expect(
        rest.filter((number) => hidden.includes(number)),
        other,
      ).toEqual([]);
    }
    expect(answered).toBeGreaterThan(1);
  });

  it('gets, as a webhook, alerts only about sessions that they may see', async () => {
    const { received } = receivers[VIEWERS.findIndex((each) => each.user === user)]!;
    await until(async () => (received.length >= sees.length ? true : undefined));
    const sent = received.map(({ data }) => numbers.get(String(data.recording['id'])));
    expect(sent).toHaveLength(sees.length);
    expect(new Set(sent)).toEqual(new Set(sees));
    for (const { raw } of received) expectNothingHidden(raw, 'webhook');
  });
});
