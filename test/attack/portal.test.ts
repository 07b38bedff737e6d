/** Attacks on the portal: forged identities of viewers, requests for hidden routes, and requests by web pages. */
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { startRecorderSpy, type RecorderSpy } from '../support/recorder-spy.ts';
import { ALICE, GATEWAY_HOST, openArena, sendHttp1, sendHttp2, type Arena, type Outcome } from './arena.ts';
import type { Field } from './raw-http2.ts';
import { PLACEMENTS, send, WEBSOCKET } from './transports.ts';

const LIST = '/-/recordings/api/v1/recordings';
const ID = 'nGATE1CNTRL_2026-07-29T11:50:50.000000001Z';
const LIVE = `${LIST}/${ID.replaceAll(':', '%3A')}/live`;
const TRANSPORTS = ['h1 request', 'h1 upgrade', 'h2 request'] as const;
const LIVE_FIELDS: readonly Field[] = [
  ['Host', GATEWAY_HOST],
  ...WEBSOCKET.filter(([name]) => name !== 'Sec-WebSocket-Protocol'),
  ['Sec-WebSocket-Protocol', 'v2.asciicast'],
];

let arena: Arena;
let recorder: RecorderSpy;

beforeAll(async () => {
  recorder = await startRecorderSpy();
  arena = await openArena({
    portalRecorders: recorder.address,
    hostNames: GATEWAY_HOST,
    dashboardOrigins: 'https://dashboard.example',
  });
});
afterAll(async () => {
  await arena?.close();
  await recorder?.close();
});
beforeEach(() => {
  recorder.requests.length = 0;
  recorder.trusting = true;
  recorder.script = undefined;
  recorder.liveStatus = undefined;
});

type Ask = Parameters<typeof send>[2];

/** Sends a request to the portal over a transport. */
function ask(transport: (typeof TRANSPORTS)[number], more: Ask = {}): Promise<Outcome> {
  const upgrade = transport === 'h1 upgrade';
  return send(arena, transport, {
    target: upgrade ? LIVE : LIST,
    ...(upgrade ? { base: LIVE_FIELDS } : {}),
    ...more,
  });
}

async function expectNothing(attack: Promise<Outcome>, statuses: readonly number[]): Promise<void> {
  const before = arena.apiServer.receivedBytes;
  const outcome = await attack;
  if (outcome.kind === 'response') expect(statuses).toContain(outcome.status);
  expect(recorder.requests).toEqual([]);
  expect(arena.apiServer.receivedBytes).toBe(before);
}

const NAMED: readonly Field[] = [
  ['tailscale-user-login', ALICE.login],
  ['x-tailcast-viewer-node', 'alice.lab.ts.net'],
  ['x-tailcast-viewer-node-id', 'nAlice'],
  ['x-tailcast-viewer-address', ALICE.address],
];

const FORGED: readonly Field[] = [
  ['Tailscale-User-Login', 'root@example.com'],
  ['Tailscale-User-Name', 'root'],
  ['Tailscale-Anything', 'root'],
  ['X-Tailcast-Viewer-Node', 'root'],
  ['X-Tailcast-Viewer-Node-Id', 'nRoot'],
  ['X-Tailcast-Viewer-Address', '100.64.0.99'],
  ['X-Tailcast-Viewer-Tags', 'tag:audit'],
  ['X-Tailcast-Viewer-Accepted', 'nAlice'],
  ['X-Tailcast-Other', 'root'],
  ['X-Remote-User', 'root'],
  ['X-Forwarded-For', '100.64.0.99'],
  ['X-Forwarded-Host', 'evil.example'],
  ['Forwarded', 'for=100.64.0.99'],
  ['X-Real-Ip', '100.64.0.99'],
  ['Authorization', 'Bearer root'],
  ['Proxy-Authorization', 'Basic root'],
  ['Cookie', 'session=root'],
  ['X-Http-Method-Override', 'POST'],
  ['X-Original-Url', '/v2/record'],
  ['Referer', 'https://evil.example/'],
];

describe('whoever a client says it is', () => {
  for (const transport of TRANSPORTS) {
    for (const placement of PLACEMENTS) {
      // HTTP/2 does not allow upper case in header names
      if (transport === 'h2 request' && placement === 'mixed case') continue;
      it(`the recorder hears of it as the tailnet knows it (${transport}, ${placement})`, async () => {
        for (const field of FORGED) {
          recorder.requests.length = 0;
          const outcome = await ask(transport, { fields: [field], placement });
          expect(outcome).toMatchObject({ status: transport === 'h1 upgrade' ? 101 : 200 });
          expect(recorder.requests).toHaveLength(1);
          const { headers, method } = recorder.requests[0]!;
          expect(method).toBe('GET');
          const own = headers.filter(([name]) => !/^(connection|upgrade|sec-websocket-\w+)$/i.test(name));
          expect(own).toEqual([['Host', 'localhost'], ...NAMED]);
        }
      });
    }
  }

  it.each(['h1 request', 'h1 upgrade', 'h2 request'] as const)(
    'impersonation of somebody else is refused, and the recorder is not asked (%s)',
    async (transport) => {
      for (const field of [
        ['Impersonate-User', 'root'],
        ['Impersonate-Group', 'system:masters'],
      ] as const) {
        recorder.requests.length = 0;
        const name = transport === 'h2 request' ? field[0].toLowerCase() : field[0];
        expect(await ask(transport, { fields: [[name, field[1]]] })).toMatchObject({ status: 403 });
        expect(recorder.requests).toHaveLength(0);
      }
    },
  );

  it('the connection header cannot take our fields away', async () => {
    for (const [name] of NAMED) {
      await ask('h1 request', { fields: [['Connection', `close, ${name}`]] });
      expect(recorder.requests.at(-1)?.headers).toEqual(expect.arrayContaining([...NAMED]));
    }
  });

  it.each(['h1 request', 'h2 request'] as const)(
    'the recorder is asked for a part only by one word (%s)',
    async (transport) => {
      const part: readonly Field[] = [
        ['range', 'bytes=0-1'],
        ['if-range', '"a"'],
      ];
      await ask(transport, { fields: part });
      expect(recorder.requests.at(-1)?.headers).toEqual(expect.arrayContaining([...part]));
      await ask(transport, { fields: [...part, ...part] });
      expect(recorder.requests).toHaveLength(2);
      const names = recorder.requests.at(-1)?.headers.map(([name]) => name);
      expect(names).not.toContain('range');
      expect(names).not.toContain('if-range');
    },
  );

  it('somebody whom the tailnet does not know sees nothing, not even the page', async () => {
    const caller = { ...ALICE, address: '100.64.0.200' };
    for (const target of [LIST, '/-/recordings/', '/-/recordings', '/-/recordings/nothing']) {
      await expectNothing(ask('h1 request', { caller, target }), [401]);
      await expectNothing(ask('h2 request', { caller, target }), [401]);
    }
    await expectNothing(ask('h1 upgrade', { caller }), [401]);
  });
});

describe('a recorder that does not take the gateway’s word', () => {
  it.each(TRANSPORTS)('gives nothing away by %s', async (transport) => {
    recorder.trusting = false;
    recorder.script = (_request, response) => response.end('{"recordings":["secret"]}');
    const outcome = await ask(transport);
    expect(outcome).toMatchObject({ status: 502 });
    expect(outcome.kind === 'response' ? outcome.body : '').toContain(
      'does not trust this gateway to name viewers',
    );
    expect(JSON.stringify(outcome)).not.toContain('secret');
  });

  it('is not believed when it took somebody else for the viewer', async () => {
    recorder.script = (_request, response) => {
      response.setHeader('x-tailcast-viewer-accepted', 'nBob');
      response.end('{"recordings":["secret"]}');
    };
    expect(await ask('h1 request')).toMatchObject({ status: 502 });
  });
});

/** These paths are unavailable for all viewers. */
const ESCAPES = [
  '/-/recordings/v2/record',
  '/-/recordings/record',
  '/-/recordings/v2/event',
  '/-/recordings/metrics',
  '/-/recordings/healthz',
  '/-/recordings/readyz',
  '/-/recordings/api/v1',
  '/-/recordings/api/v1/',
  '/-/recordings/api/v1/recordings/',
  '/-/recordings/api/v2/recordings',
  '/-/recordings/API/v1/recordings',
  `${LIST}/${ID}/record`,
  `${LIST}/${ID}/cast/more`,
  `${LIST}/${ID}/live/`,
  `${LIST}/a`,
  `${LIST}/x_y`,
  `${LIST}/../../../v2/record`,
  `${LIST}/%2e%2e/record`,
  `${LIST}/..%2f..%2fv2%2frecord`,
  `${LIST}/%252e%252e/record`,
  `${LIST}/.`,
  `${LIST}//${ID}`,
  `${LIST}/${ID}%2f..%2frecord`,
  `${LIST}/${ID}%00`,
  `${LIST}/${ID}%0d%0aX:%20y`,
  `${LIST}/${ID};x`,
  `${LIST}/${ID}%3f`,
  `${LIST}/${ID}#x`,
  `${LIST}\\..\\v2\\record`,
  `${LIST}?${'a'.repeat(9000)}`,
  '/-/recordings//api/v1/recordings',
  '/-/recordings/./api/v1/recordings',
  '/-/recordings/../v2/record',
  '/-/recordings/assets/../../../package.json',
  '/-/recordings/assets/%2e%2e%2findex.html',
  '/-/recordings/assets/.env',
  '/-/recordings/assets/',
  '/-/recordings/index.html/x',
  '/-/recordingsx',
  '/-/recordingsx/api/v1/recordings',
  '/-/recordingsxapi/v1/recordings',
  '/-/Recordings/api/v1/recordings',
  '//-/recordings/api/v1/recordings',
  '/./-/recordings/api/v1/recordings',
  '/-',
  '/-/',
  '/-/record',
  '/-/api/v1/pods',
  '/%2d/recordings/api/v1/recordings',
  '/%2D/api/v1/pods',
  '/-%2frecordings',
  'http://gateway.lab.ts.net/-/recordings/api/v1/recordings',
  '-/recordings/api/v1/recordings',
];

describe('paths below /-/', () => {
  it.each(ESCAPES.map((target) => [target.slice(0, 100), target]))(
    'lead neither to the recorder’s other parts nor to the API server: %s',
    async (_shown, target) => {
      for (const transport of TRANSPORTS) await expectNothing(ask(transport, { target }), [400, 404]);
    },
  );

  it.each(['POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS', 'HEAD'])(
    'are read and nothing else: %s',
    async (method) => {
      for (const transport of ['h1 request', 'h2 request'] as const) {
        await expectNothing(ask(transport, { method }), [405]);
        await expectNothing(ask(transport, { method, target: '/-/recordings/v2/record' }), [404]);
      }
    },
  );

  it('take no body, and what follows one is no request', async () => {
    const head = `GET ${LIST} HTTP/1.1\r\nHost: ${GATEWAY_HOST}\r\n`;
    const smuggled = `GET /api/v1/secrets HTTP/1.1\r\nHost: ${GATEWAY_HOST}\r\n\r\n`;
    await expectNothing(
      sendHttp1(arena, ALICE, `${head}Content-Length: ${smuggled.length}\r\n\r\n${smuggled}`),
      [400],
    );
    const chunk = `${smuggled.length.toString(16)}\r\n${smuggled}\r\n0\r\n\r\n`;
    await expectNothing(sendHttp1(arena, ALICE, `${head}Transfer-Encoding: chunked\r\n\r\n${chunk}`), [400]);
  });

  it('want one Host, and one of ours', async () => {
    const twice = `GET ${LIST} HTTP/1.1\r\nHost: ${GATEWAY_HOST}\r\nHost: evil.example\r\n\r\n`;
    await expectNothing(sendHttp1(arena, ALICE, twice), [400]);
    const fields: readonly Field[] = [
      [':method', 'GET'],
      [':scheme', 'https'],
      [':path', LIST],
      [':authority', GATEWAY_HOST],
      ['host', 'evil.example'],
    ];
    await expectNothing(sendHttp2(arena, ALICE, fields), [400]);
    for (const base of [[['Host', 'evil.example']], [['Host', `${GATEWAY_HOST}.evil.example`]]] as const) {
      await expectNothing(ask('h1 request', { base }), [400]);
    }
  });

  it('do not make what is asked for a list of, or a WebSocket, something else', async () => {
    await expectNothing(ask('h1 request', { target: LIVE }), [400]);
    await expectNothing(ask('h1 upgrade', { target: LIST }), [404]);
    await expectNothing(ask('h1 upgrade', { target: '/-/recordings/' }), [404]);
    await expectNothing(ask('h1 upgrade', { target: `${LIVE}?x=1` }), [404]);
    for (const fields of [
      [['Sec-WebSocket-Key', 'short']],
      [['Sec-WebSocket-Key', 'AAAAAAAAAAAAAAAAAAAAAA==']],
      [['Upgrade', 'SPDY/3.1']],
    ] as const) {
      await expectNothing(ask('h1 upgrade', { fields }), [400]);
    }
    const spdy = LIVE_FIELDS.map(([name, value]): Field => [name, name === 'Upgrade' ? 'SPDY/3.1' : value]);
    await expectNothing(ask('h1 upgrade', { base: spdy }), [400]);
  });
});

describe('web pages', () => {
  const elsewhere = ['cross-site', 'same-site'];
  it.each(TRANSPORTS)('of other sites read nothing (%s)', async (transport) => {
    for (const fields of [
      [['Origin', 'https://evil.example']],
      [['Origin', 'null']],
      [['Origin', 'https://dashboard.example']],
      [['Origin', `https://${GATEWAY_HOST}.evil.example`]],
      ...elsewhere.map((site) => [['Sec-Fetch-Site', site]] as const),
      ...elsewhere.map(
        (site) =>
          [
            ['Sec-Fetch-Site', site],
            ['Sec-Fetch-Mode', 'navigate'],
            ['Sec-Fetch-Dest', 'document'],
          ] as const,
      ),
    ] as const) {
      await expectNothing(ask(transport, { fields }), [403]);
    }
  });

  it('may link to the page, and neither frame it nor post to it', async () => {
    const link: readonly Field[] = [
      ['Sec-Fetch-Site', 'cross-site'],
      ['Sec-Fetch-Mode', 'navigate'],
      ['Sec-Fetch-Dest', 'document'],
    ];
    const page = (fields: readonly Field[], method = 'GET'): Promise<Outcome> =>
      ask('h1 request', { target: '/-/recordings', fields, method });
    expect(await page(link)).toMatchObject({ status: 308 });
    expect(await page(link.with(2, ['Sec-Fetch-Dest', 'iframe']))).toMatchObject({ status: 403 });
    expect(await page(link.with(1, ['Sec-Fetch-Mode', 'no-cors']))).toMatchObject({ status: 403 });
    expect(await page([...link, ['Sec-Fetch-Dest', 'document']])).toMatchObject({ status: 403 });
    expect(await page([...link, ['Origin', 'https://evil.example']])).toMatchObject({ status: 403 });
    expect(await page(link, 'POST')).toMatchObject({ status: 403 });
    expect(await ask('h1 request', { target: '/-/recordings/assets/icon.svg', fields: link })).toMatchObject({
      status: 403,
    });
  });

  it('of our own work', async () => {
    const own: readonly Field[] = [
      ['Origin', `https://${GATEWAY_HOST}`],
      ['Sec-Fetch-Site', 'same-origin'],
    ];
    expect(await ask('h1 request', { fields: own })).toMatchObject({ status: 200 });
    expect(await ask('h2 request', { fields: own })).toMatchObject({ status: 200 });
    expect(await ask('h1 upgrade', { fields: own })).toMatchObject({ status: 101 });
  });

  it('get from a recorder no more than data', async () => {
    recorder.script = (_request, response) => {
      const body = '<script>alert(1)</script>';
      response.writeHead(200, {
        'content-type': 'text/html',
        'content-length': body.length,
        'set-cookie': 'a=b',
        'content-security-policy': 'default-src *',
        'access-control-allow-origin': '*',
        location: 'https://evil.example/',
        refresh: '0; url=https://evil.example/',
        etag: '"good"',
        'content-range': 'evil',
        'alt-svc': 'h3=":443"',
      });
      response.end(body);
    };
    const outcome = await ask('h1 request');
    const head = outcome.kind === 'response' ? outcome.head.toLowerCase() : '';
    expect(head).toContain('content-type: application/json');
    expect(head).toContain('x-content-type-options: nosniff');
    expect(head).toMatch(/content-security-policy: default-src 'none'.*sandbox\r\n/);
    expect(head).toContain('etag: "good"');
    expect(head).not.toMatch(
      /set-cookie|content-range|access-control|\nlocation|refresh|alt-svc|text\/html|default-src \*/,
    );
    const live = await ask('h1 upgrade');
    expect(live.kind === 'response' ? live.head : '').not.toMatch(/set-cookie|x-tailcast/i);
  });

  it('show a refusal as text, whatever is in it', async () => {
    const target = '/-/recordings/%3Cscript%3Ealert(1)%3C%2Fscript%3E';
    const html = await ask('h1 request', {
      target: target.replace('%2F', ''),
      fields: [['Accept', 'text/html']],
    });
    expect(html).toMatchObject({ status: 404, head: expect.stringContaining('text/html') as string });
    expect(html.kind === 'response' ? html.body : '').toContain('<p>the gateway has no such page</p>');
    const status = await ask('h1 request', { target: '/-/recordings/nothing' });
    expect(JSON.parse(status.kind === 'response' ? status.body : '')).toMatchObject({
      kind: 'Status',
      code: 404,
      message: 'the gateway has no such page',
    });
  });
});
