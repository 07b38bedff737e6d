/**
 * Objects with a pod template, which run commands without a session. For a caller with enforced recording, an event
 * with images, commands and arguments is stored before the request is forwarded. This must be true for every encoding
 * and every kind of request body. The event never contains the value of an environment variable.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ALICE, BOB, CAROL, ERIN, openArena, type Arena, type Outcome } from './arena.ts';
import { honest, send, WEBSOCKET, type Ask } from './transports.ts';
import { expectDenied, expectForwarded, MARK, observe, type Observed } from './verdict.ts';

const TRANSPORTS = ['h1 request', 'h1 chunked', 'h2 request'] as const;
type Transport = (typeof TRANSPORTS)[number];

let arena: Arena;
let lenient: Arena;
let closed: Arena;
beforeAll(async () => {
  [arena, lenient, closed] = await Promise.all([
    openArena(),
    openArena({}, 'workloads: {unreadable: event}'),
    openArena(
      {},
      'enforced: {workload: refuse, customResource: refuse, secretRead: refuse}\nothers: {workload: refuse}',
    ),
  ]);
});
afterAll(() => Promise.all([arena.close(), lenient.close(), closed.close()]));

interface Told {
  readonly request: { readonly body: string; readonly bodyUnread?: string };
}

/** Sends a request with a body, framed as the transport requires. */
function put(to: Arena, transport: Transport, ask: Ask & { readonly body: string }): Promise<Outcome> {
  const { body, fields = [] } = ask;
  const length = Buffer.byteLength(body, 'latin1');
  switch (transport) {
    case 'h2 request':
      return send(to, 'h2 request', ask);
    case 'h1 request':
      return send(to, 'h1 request', { ...ask, fields: [['Content-Length', String(length)], ...fields] });
    case 'h1 chunked':
      return send(to, 'h1 request', {
        ...ask,
        fields: [['Transfer-Encoding', 'chunked'], ...fields],
        body: `${length.toString(16)}\r\n${body}\r\n0\r\n\r\n`,
      });
  }
}

/** Sends one request. Returns its events and the request that the API server received. */
async function sendAsk(
  to: Arena,
  transport: Transport,
  ask: Ask & { readonly body: string },
): Promise<{ readonly observed: Observed; readonly events: readonly Told[]; readonly text: string }> {
  const before = to.recorder.events.length;
  const observed = await observe(to, () => put(to, transport, ask));
  const lines = to.recorder.events.slice(before);
  const events = lines.map((line) => JSON.parse(line) as Told);
  const bodies = events.map(({ request }) => Buffer.from(request.body, 'base64').toString());
  return { observed, events, text: [...lines, ...bodies].join('\n') };
}

const json = (value: unknown): string => JSON.stringify(value);
const CORE = '/api/v1/namespaces/n';
const APPS = '/apis/apps/v1/namespaces/n';
const BATCH = '/apis/batch/v1/namespaces/n';

const CONTAINER = {
  name: 'c',
  image: 'image-of-it',
  command: ['sh', '-c'],
  args: ['command-of-it'],
  env: [{ name: 'PASSWORD', value: MARK }],
};
const SPEC = { containers: [CONTAINER] };
const TEMPLATE = { spec: { template: { spec: SPEC } } };

/** Method, target, body, content type. */
const ROWS: readonly (readonly [string, string, unknown, string?])[] = [
  ['POST', `${CORE}/pods`, { kind: 'Pod', spec: SPEC }],
  ['POST', `${CORE}/pods?dryRun=All`, { kind: 'Pod', spec: { initContainers: [CONTAINER] } }],
  ['PUT', `${CORE}/pods/p`, { kind: 'Pod', spec: SPEC }],
  ['POST', `${CORE}/podtemplates`, { template: { spec: SPEC } }],
  ['POST', `${CORE}/replicationcontrollers`, TEMPLATE],
  ['POST', `${APPS}/deployments`, TEMPLATE],
  ['PUT', `${APPS}/statefulsets/s`, TEMPLATE],
  ['POST', `${APPS}/daemonsets`, TEMPLATE],
  ['PUT', `${APPS}/replicasets/r`, TEMPLATE],
  ['POST', `${APPS}/controllerrevisions`, { data: TEMPLATE, revision: 1 }],
  ['POST', `${BATCH}/jobs`, TEMPLATE],
  ['POST', `${BATCH}/cronjobs`, { spec: { jobTemplate: TEMPLATE } }],
  ['POST', '/apis/extensions/v1beta1/namespaces/n/deployments', TEMPLATE],
  ['POST', `/clusters/root:a${APPS}/deployments`, TEMPLATE],
  ['POST', `/k8s/clusters/c-1${CORE}/pods`, { spec: SPEC }],
  ['POST', `/clusters/root:a${APPS}/deployments:0a1b2c`, TEMPLATE],
  // patches
  ['PATCH', `${APPS}/deployments/d`, TEMPLATE, 'application/merge-patch+json'],
  ['PATCH', `${APPS}/deployments/d`, TEMPLATE, 'application/strategic-merge-patch+json'],
  ['PATCH', `${APPS}/deployments/d?fieldManager=x&force=true`, TEMPLATE, 'application/apply-patch+yaml'],
  [
    'PATCH',
    `${APPS}/deployments/d`,
    [{ op: 'replace', path: '/spec/template/spec/containers/0', value: CONTAINER }],
    'application/json-patch+json',
  ],
  [
    'PATCH',
    `${BATCH}/cronjobs/c`,
    [{ op: 'add', path: '/spec/jobTemplate/spec/template/spec', value: SPEC }],
    'application/json-patch+json',
  ],
  ['PATCH', `${CORE}/pods/p`, { spec: SPEC }, 'application/merge-patch+json'],
  ['PATCH', `${CORE}/pods/p/ephemeralcontainers`, { spec: { ephemeralContainers: [CONTAINER] } }],
  // commands in fields other than `command`
  [
    'POST',
    `${CORE}/pods`,
    {
      spec: {
        containers: [
          {
            image: 'image-of-it',
            env: CONTAINER.env,
            lifecycle: { postStart: { exec: { command: ['command-of-it'] } } },
          },
        ],
      },
    },
  ],
  [
    'POST',
    `${CORE}/pods`,
    {
      spec: {
        containers: [
          {
            image: 'image-of-it',
            livenessProbe: {
              exec: { command: ['command-of-it'] },
              httpGet: { httpHeaders: [{ name: 'Authorization', value: MARK }] },
            },
          },
        ],
      },
    },
  ],
  // objects of other API groups
  ['POST', '/apis/argoproj.io/v1alpha1/namespaces/n/rollouts', { kind: 'Rollout', ...TEMPLATE }],
  [
    'POST',
    '/apis/argoproj.io/v1alpha1/namespaces/n/workflows',
    { spec: { templates: [{ name: 'a', container: CONTAINER, secret: MARK }], password: MARK } },
  ],
  [
    'PUT',
    '/apis/jobset.x-k8s.io/v1/namespaces/n/jobsets/j',
    { spec: { replicatedJobs: [{ template: TEMPLATE }] } },
  ],
  [
    'PATCH',
    '/apis/argoproj.io/v1alpha1/namespaces/n/rollouts/r',
    [{ op: 'add', path: '/spec/template/spec/containers/0', value: CONTAINER }],
    'application/json-patch+json',
  ],
];

describe.each(TRANSPORTS)('a request that carries commands (%s)', (transport) => {
  it.each(
    ROWS.map(([method, target, body, type], index) => [`E5.${index}`, method, target, body, type] as const),
  )(
    '%s leaves an event with the command before it is forwarded: %s %s',
    async (_id, method, target, value, type = 'application/json') => {
      const body = json(value);
      const ask: Ask & { readonly body: string } = { method, target, body, fields: [['Content-Type', type]] };
      const { observed, events, text } = await sendAsk(arena, transport, { ...ask, caller: BOB });
      const http = transport === 'h2 request' ? 'h2 request' : 'h1 request';
      const request = expectForwarded(observed, honest(http, { ...ask, caller: BOB }));
      expect(request.body).toContain(body);
      expect(events).toHaveLength(1);
      expect(text).toContain('image-of-it');
      expect(text).toContain('command-of-it');
      expect(text).not.toContain(MARK);
      expect(events[0]?.request.bodyUnread).toBeUndefined();
      const unheard = await sendAsk(arena, transport, { ...ask, caller: CAROL });
      expectDenied(unheard.observed, [403]);
      for (const caller of [ALICE, ERIN]) {
        const free = await sendAsk(arena, transport, { ...ask, caller });
        expectForwarded(free.observed, honest(http, { ...ask, caller }));
        expect(free.events).toEqual([]);
      }
    },
  );

  const DEPLOYMENT = json(TEMPLATE);
  const UNREADABLE: readonly (readonly [string, string, string])[] = [
    ['protobuf', 'application/vnd.kubernetes.protobuf', 'k8s\0\n\u0010\n\u0007apps/v1command-of-it'],
    [
      'YAML',
      'application/yaml',
      'spec:\n  template:\n    spec:\n      containers: [{command: [command-of-it]}]\n',
    ],
    [
      'YAML of a server-side apply',
      'application/apply-patch+yaml',
      'spec: {template: {spec: {containers: []}}}',
    ],
    ['CBOR', 'application/cbor', '\u00d9\u00d9\u00f7\u00a1dspec\u00a0'],
    ['JSON that ends too early', 'application/json', DEPLOYMENT.slice(0, -1)],
    ['JSON with more behind it', 'application/json', `${DEPLOYMENT}{}`],
    ['JSON in no Unicode', 'application/json', DEPLOYMENT.replace('"c"', '"\u00ff"')],
    // if a key is repeated, Go merges the objects, but JSON.parse keeps the last one
    ['a member that is repeated', 'application/json', `${DEPLOYMENT.slice(0, -1)},"spec":{"template":{}}}`],
    [
      'a member that is repeated by an escape',
      'application/json',
      `${DEPLOYMENT.slice(0, -1)},"sp\\u0065c":{}}`,
    ],
    // the patch does not contain the new value itself: the value is in the stored object, or in a part that events
    // redact
    [
      'a JSON patch that copies a command',
      'application/json-patch+json',
      '[{"op":"add","path":"/metadata/annotations/x","value":"command-of-it"},{"op":"copy","from":"/metadata/annotations/x","path":"/spec/containers/0/command/2"},{"op":"copy","from":"/metadata/annotations/x","path":"/spec/template/spec/containers/0/command/2"}]',
    ],
    [
      'a JSON patch that moves a command',
      'application/json-patch+json',
      '[{"op":"move","from":"/metadata/annotations/x","path":"/spec"}]',
    ],
    [
      'a member of an operation that is repeated',
      'application/json-patch+json',
      '[{"op":"add","path":"/a","path":"/spec","value":{}}]',
    ],
  ];
  it.each(UNREADABLE)('E5 is refused under enforcement if its body is %s', async (_name, type, body) => {
    for (const [method, target] of [
      ['POST', `${APPS}/deployments`],
      ['PATCH', `${CORE}/pods/p/ephemeralcontainers`],
    ] as const) {
      const ask = { method, target, body, fields: [['Content-Type', type]] as const, caller: BOB };
      const { observed, events } = await sendAsk(arena, transport, ask);
      expectDenied(observed, [403]);
      expect(events).toEqual([]);
      const http = transport === 'h2 request' ? 'h2 request' : 'h1 request';
      const lenientResult = await sendAsk(lenient, transport, ask);
      expectForwarded(lenientResult.observed, honest(http, ask));
      expect(lenientResult.events.map(({ request }) => request.body)).toEqual(['']);
      expect(lenientResult.events[0]?.request.bodyUnread).toMatch(/^(it is|a member is) /);
    }
  });

  it('E5 is refused where the policy says so, with a class that it can name', async () => {
    const rows = [
      ['POST', `${APPS}/deployments`],
      ['POST', '/apis/argoproj.io/v1/namespaces/n/workflows'],
    ] as const;
    for (const [method, target] of rows) {
      const ask = { method, target, body: DEPLOYMENT };
      expectDenied((await sendAsk(closed, transport, { ...ask, caller: BOB })).observed, [403]);
    }
    const free = { method: 'POST', target: `${APPS}/deployments`, body: DEPLOYMENT, caller: ALICE };
    expectDenied((await sendAsk(closed, transport, free)).observed, [403]);
  });
});

it('E5 is refused under enforcement if its body is longer than an event holds', async () => {
  const padded = json({ metadata: { annotations: { a: 'x'.repeat(256 * 1024) } }, ...TEMPLATE });
  const ask = { method: 'POST', target: `${APPS}/deployments`, body: padded, caller: BOB };
  for (const transport of ['h1 request', 'h1 chunked'] as const)
    expectDenied((await sendAsk(arena, transport, ask)).observed, [403]);
  const lenientResult = await sendAsk(lenient, 'h1 request', ask);
  expectForwarded(lenientResult.observed, honest('h1 request', ask));
  expect(lenientResult.events[0]?.request.bodyUnread).toContain('longer');
});

it('E5 is read up to the size of an event', async () => {
  const long = json({ metadata: { annotations: { a: 'x'.repeat(200 * 1024) } }, ...TEMPLATE });
  const ask = { method: 'POST', target: `${APPS}/deployments`, body: long, caller: BOB };
  const { observed, text } = await sendAsk(arena, 'h1 request', ask);
  expectForwarded(observed, honest('h1 request', ask));
  expect(text).toContain('command-of-it');
});

it('E12 leaves an event for a watch of Secrets over WebSocket, which is for reading only', async () => {
  const before = arena.recorder.events.length;
  const ask = { caller: BOB, target: '/api/v1/secrets?watch=true' };
  expectForwarded(await observe(arena, () => send(arena, 'h1 upgrade', ask)), honest('h1 upgrade', ask));
  expect(arena.recorder.events.length).toBe(before + 1);
  expectDenied(await observe(arena, () => send(arena, 'h1 upgrade', { ...ask, caller: CAROL })), [403]);
  expectDenied(await observe(closed, () => send(closed, 'h1 upgrade', ask)), [403]);
  const spdy = {
    ...ask,
    method: 'POST',
    base: [['Host', 'gateway.lab.ts.net'], ...WEBSOCKET.slice(0, 1), ['Upgrade', 'SPDY/3.1']] as const,
  };
  expectDenied(await observe(arena, () => send(arena, 'h1 upgrade', spdy)), [400, 403]);
});
