/**
 * Pages that come through the gateway (docs/adr/0011): a page below the gateway's hostname has no rights and stores
 * nothing in the browser. The real suite `browser-pages` tests the behaviour of Chromium.
 */
import { once } from 'node:events';
import { connect as connectHttp2, type IncomingHttpHeaders, type OutgoingHttpHeaders } from 'node:http2';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { ALICE, connectAs, GATEWAY_HOST, openArena, sendHttp1, type Arena } from './arena.ts';
import type { Field } from './raw-http2.ts';
import { honest, LIST, send, WEBSOCKET } from './transports.ts';
import { expectDenied, expectForwarded, observe } from './verdict.ts';

const CHROME: Field = ['User-Agent', 'Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 Chrome/150.0.0.0'];
const use = (mode: string, dest: string, site = 'none'): readonly Field[] => [
  CHROME,
  ['Sec-Fetch-Site', site],
  ['Sec-Fetch-Mode', mode],
  ['Sec-Fetch-Dest', dest],
];
const PROGRAMS = [
  '/api/v1/namespaces/n/services/web/proxy/x',
  '/api/v1/namespaces/n/pods/https:p:8443/proxy/',
  '/api/v1/nodes/w/proxy/metrics',
  '/apis/cluster.karmada.io/v1alpha1/clusters/c/proxy/',
  '/apis/x.example/v1/machines/m/screen/index.html',
];
/** Response headers with which a program may try to get more rights in a browser. */
const GREEDY = [
  'Set-Cookie: a=b; Path=/',
  'Set-Cookie2: a=b',
  'Location: /api/v1/namespaces/n/pods/victim/proxy/delete',
  'Refresh: 0; url=/api/v1/secrets',
  'Link: </api/v1/secrets>; rel=preload',
  'Clear-Site-Data: "*"',
  'Service-Worker-Allowed: /',
  'Strict-Transport-Security: max-age=31536000; includeSubDomains',
  'WWW-Authenticate: Basic realm="gateway"',
  'Content-Security-Policy: sandbox allow-scripts allow-same-origin',
  'Content-Security-Policy-Report-Only: default-src *',
  'Access-Control-Allow-Origin: null',
  'Access-Control-Allow-Credentials: true',
  'Cross-Origin-Opener-Policy: unsafe-none',
  'Cross-Origin-Resource-Policy: cross-origin',
  'Cache-Control: public, max-age=31536000, immutable',
  'Expires: Fri, 01 Jan 2100 00:00:00 GMT',
  'X-Frame-Options: ALLOWALL',
  'X-Content-Type-Options: sniff',
  'Report-To: {"group":"a"}',
  'Reporting-Endpoints: a="https://evil.example"',
  'NEL: {"report_to":"a"}',
  'Speculation-Rules: "/rules.json"',
  'Origin-Trial: abc',
  'Use-As-Dictionary: match="/*"',
  'Alt-Svc: h2="evil.example:443"',
  'Referrer-Policy: unsafe-url',
  'SourceMap: /api/v1/secrets',
  'Set-Login: logged-in',
  'X-Unheard-Of: 1',
];
const OURS: Readonly<Record<string, string>> = {
  'content-security-policy':
    "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; form-action 'none'; base-uri 'none'; " +
    "frame-ancestors 'none'",
  'x-content-type-options': 'nosniff',
  'x-frame-options': 'DENY',
  'cross-origin-opener-policy': 'same-origin',
  'cross-origin-resource-policy': 'same-origin',
  'referrer-policy': 'no-referrer',
  'cache-control': 'no-store',
};
const PAGE = '<script>fetch("/api/v1/secrets")</script>';

let arena: Arena;
let shown: Arena;
beforeAll(async () => {
  arena = await openArena();
  shown = await openArena({}, 'browsers:\n  programPages: sandbox\n');
});
afterAll(async () => {
  await arena.close();
  await shown.close();
});
afterEach(() => {
  for (const { apiServer } of [arena, shown]) apiServer.script = undefined;
});

function answerGreedily({ apiServer }: Arena, hints = ''): void {
  const head = ['HTTP/1.1 200 OK', 'Content-Type: text/html', `Content-Length: ${PAGE.length}`, ...GREEDY];
  apiServer.script = () => `${hints}${head.join('\r\n')}\r\n\r\n${PAGE}`;
}

interface Shown {
  readonly status: number;
  readonly fields: Readonly<Record<string, string | undefined>>;
  readonly hints: number;
  readonly body: string;
}

async function overHttp1(from: Arena, target: string, fields: readonly Field[]): Promise<Shown> {
  const lines = [['Host', GATEWAY_HOST], ...fields].map(([name, value]) => `${name}: ${value}\r\n`);
  const outcome = await sendHttp1(from, ALICE, `GET ${target} HTTP/1.1\r\n${lines.join('')}\r\n`);
  if (outcome.kind === 'closed') throw new Error('closed');
  const found: Record<string, string> = {};
  for (const line of outcome.head.split('\r\n').slice(1).filter(Boolean)) {
    const colon = line.indexOf(':');
    const name = line.slice(0, colon).toLowerCase();
    found[name] = name in found ? `${found[name]} AND ${line.slice(colon + 2)}` : line.slice(colon + 2);
  }
  return { status: outcome.status, fields: found, hints: 0, body: outcome.body };
}

async function overHttp2(from: Arena, target: string, fields: readonly Field[]): Promise<Shown> {
  const socket = await connectAs(from, ALICE, 'h2');
  const session = connectHttp2(`https://${GATEWAY_HOST}`, { createConnection: () => socket });
  try {
    const headers: OutgoingHttpHeaders = { ':path': target };
    for (const [name, value] of fields) {
      const key = name.toLowerCase();
      headers[key] = key in headers ? [String(headers[key]), value] : value;
    }
    const stream = session.request(headers);
    let hints = 0;
    let body = '';
    stream.on('headers', () => (hints += 1));
    stream.on('data', (chunk: Buffer) => (body += chunk.toString()));
    const ended = once(stream, 'end');
    const [answer] = (await once(stream, 'response')) as [IncomingHttpHeaders];
    await ended;
    const found: Record<string, string> = {};
    for (const [name, value] of Object.entries(answer)) {
      // `date` is excluded, because Node adds it
      if (!name.startsWith(':') && name !== 'date')
        found[name] = Array.isArray(value) ? value.join(' AND ') : String(value);
    }
    return { status: Number(answer[':status']), fields: found, hints, body };
  } finally {
    session.destroy();
  }
}

describe.each([
  ['h1', overHttp1],
  ['h2', overHttp2],
] as const)('a browser (%s)', (protocol, ask) => {
  const transport = `${protocol} request` as const;
  const NAVIGATIONS: readonly (readonly [string, readonly Field[]])[] = [
    ['a page', use('navigate', 'document')],
    ['a page that its own site leads to', use('navigate', 'document', 'same-origin')],
    ['a frame', use('navigate', 'iframe', 'same-origin')],
    ['an embedded object', use('navigate', 'object', 'same-origin')],
    ['a script', use('no-cors', 'script', 'same-origin')],
    ['a worker', use('same-origin', 'worker', 'same-origin')],
    ['a shared worker', use('same-origin', 'sharedworker', 'same-origin')],
    ['a style sheet', use('no-cors', 'style', 'same-origin')],
    ['an image', use('no-cors', 'image', 'same-origin')],
    ['XSLT', use('same-origin', 'xslt', 'same-origin')],
    ['something new', use('navigate', 'unheard-of', 'same-origin')],
  ];
  it.each(PROGRAMS.flatMap((target) => NAVIGATIONS.map(([what, fields]) => [what, target, fields] as const)))(
    'G1 gets no %s of a program: %s',
    async (_what, target, fields) => {
      expectDenied(await observe(arena, () => send(arena, transport, { target, fields })), [403]);
    },
  );

  it.each([LIST, ...PROGRAMS])(
    'G2 is refused a service worker, also behind kubectl proxy: %s',
    async (target) => {
      const asked: readonly (readonly Field[])[] = [
        [...use('same-origin', 'serviceworker', 'same-origin'), ['Service-Worker', 'script']],
        [CHROME, ['Service-Worker', 'script']],
        [...use('same-origin', 'serviceworker', 'same-origin'), ['X-Forwarded-For', '127.0.0.1']],
      ];
      for (const fields of asked) {
        for (const from of [arena, shown])
          expectDenied(await observe(from, () => send(from, transport, { target, fields })), [403]);
      }
    },
  );

  const SHOWN: readonly (readonly [string, string, readonly Field[], () => Arena])[] = [
    ...PROGRAMS.map(
      (target) =>
        ['a program, where that is allowed', target, use('navigate', 'document'), () => shown] as const,
    ),
    ...PROGRAMS.map((target) => ['a program, to an old browser', target, [CHROME], () => arena] as const),
    ...PROGRAMS.map(
      (target) =>
        ['a program, to a script', target, use('cors', 'empty', 'same-origin'), () => arena] as const,
    ),
    ['a log', '/api/v1/namespaces/n/pods/p/log', use('navigate', 'document'), () => arena],
    ['another API', '/apis/x.example/v1/pages/p', use('navigate', 'document'), () => arena],
    ['no resource', '/swagger-ui/', use('navigate', 'document'), () => arena],
    [
      'through another proxy',
      LIST,
      [...use('navigate', 'document'), ['X-Forwarded-For', '100.64.0.9']],
      () => arena,
    ],
    [
      'through two proxies',
      LIST,
      [...use('navigate', 'document'), ['X-Forwarded-For', '127.0.0.1'], ['X-Forwarded-For', '127.0.0.1']],
      () => arena,
    ],
    [
      'through a list of them',
      LIST,
      [...use('navigate', 'document'), ['X-Forwarded-For', '127.0.0.1, 100.64.0.9']],
      () => arena,
    ],
    ['with one field only', LIST, [['Sec-Fetch-User', '?1']], () => arena],
  ];
  it.each(SHOWN)('G3 is shown %s that may do nothing: %s', async (_what, target, fields, from) => {
    answerGreedily(from());
    const answer = await ask(from(), target, fields);
    expect(answer).toMatchObject({ status: 200, body: PAGE });
    expect(answer.fields).toEqual({
      ...OURS,
      'content-type': 'text/html',
      'content-length': String(PAGE.length),
    });
  });

  it('G4 gets no early hints', async () => {
    answerGreedily(arena, 'HTTP/1.1 103 Early Hints\r\nLink: </x.js>; rel=preload\r\n\r\n');
    const answer = await ask(arena, LIST, use('navigate', 'document'));
    expect(answer).toMatchObject({ status: 200, hints: 0 });
  });

  it.each([
    ['kubectl', [['User-Agent', 'kubectl/v1.36.0']] as const],
    ['curl', [['User-Agent', 'curl/8.0']] as const],
    ['nobody', [] as const],
    [
      'a browser behind kubectl proxy',
      [...use('navigate', 'document'), ['X-Forwarded-For', '127.0.0.1'] as const],
    ],
    [
      'a browser behind kubectl proxy (IPv6)',
      [...use('navigate', 'document'), ['X-Forwarded-For', '::1'] as const],
    ],
  ])('G5 changes nothing for %s', async (_who, fields) => {
    for (const target of [LIST, ...PROGRAMS]) {
      answerGreedily(arena);
      const { status, body, fields: found } = await ask(arena, target, fields);
      expect({ status, body }).toEqual({ status: 200, body: PAGE });
      const names = GREEDY.map((line) => line.split(':', 1)[0]!.toLowerCase());
      const ends = new Set(['set-cookie', 'set-cookie2', 'alt-svc']);
      expect(Object.keys(found).toSorted()).toEqual(
        [...new Set(names.filter((name) => !ends.has(name))), 'content-length', 'content-type'].toSorted(),
      );
    }
  });
});

it('G6 a browser keeps nothing of a handshake', async () => {
  const target = '/api/v1/namespaces/n/services/web/proxy/ws';
  for (const status of ['101 Switching Protocols', '401 Unauthorized']) {
    arena.apiServer.script = () =>
      `HTTP/1.1 ${status}\r\nConnection: Upgrade\r\nUpgrade: ` +
      `websocket\r\n${GREEDY.slice(0, 9).join('\r\n')}\r\n${status.startsWith('101') ? '' : 'Content-Length: 0\r\n'}\r\n`;
    const fields: readonly Field[] = [
      ...use('websocket', 'websocket', 'same-origin'),
      ['Origin', `https://${GATEWAY_HOST}`],
    ];
    const lines = [['Host', GATEWAY_HOST], ...WEBSOCKET.slice(0, 4), ...fields].map(
      ([name, value]) => `${name}: ${value}\r\n`,
    );
    const outcome = await sendHttp1(arena, ALICE, `GET ${target} HTTP/1.1\r\n${lines.join('')}\r\n`);
    expect(outcome).toMatchObject({ kind: 'response', status: Number(status.slice(0, 3)) });
    const head = outcome.kind === 'response' ? outcome.head.toLowerCase() : '';
    for (const name of ['set-cookie', 'clear-site-data', 'strict-transport-security', 'www-authenticate'])
      expect(head).not.toContain(`\n${name}:`);
  }
});

it('G7 what is no page goes on as before', async () => {
  const ask = { fields: use('cors', 'empty', 'same-origin') };
  expectForwarded(await observe(arena, () => send(arena, 'h1 request', ask)), honest('h1 request', ask));
});
