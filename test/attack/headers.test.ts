/**
 * Attack corpus B: forbidden headers. Each test sends one forbidden header over every transport, in four ways: before
 * all other headers, after them, twice, and in mixed case.
 */
import { afterAll, beforeAll, describe, it } from 'vitest';
import { openArena, type Arena } from './arena.ts';
import type { Field } from './raw-http2.ts';
import { honest, PLACEMENTS, send, TRANSPORTS, type Placement, type Transport } from './transports.ts';
import { expectDenied, expectForwarded, expectStripped, MARK, observe } from './verdict.ts';

type Must = 'strip' | 'deny';

interface HeaderAttack {
  readonly id: string;
  readonly fields: readonly Field[];
  readonly must: Must;
  /** HTTP/2 forbids these headers (RFC 9113 section 8.2.2), so the gateway refuses the stream. */
  readonly connectionField?: true;
  /** Not a valid header name: nghttp2 drops the header, and Node's HTTP/1.1 parser rejects the message. */
  readonly droppedByHttp2?: true;
}

const strip = (id: string, ...fields: readonly Field[]): HeaderAttack => ({ id, fields, must: 'strip' });
const deny = (id: string, ...fields: readonly Field[]): HeaderAttack => ({ id, fields, must: 'deny' });
const hop = (id: string, ...fields: readonly Field[]): HeaderAttack => ({
  id,
  fields,
  must: 'strip',
  connectionField: true,
});
const noName = (id: string, ...fields: readonly Field[]): HeaderAttack => ({
  id,
  fields,
  must: 'deny',
  droppedByHttp2: true,
});

const ATTACKS: readonly HeaderAttack[] = [
  strip('A8', ['X-Forwarded-For', MARK]),
  strip('A8', ['X-Forwarded-Host', MARK], ['X-Forwarded-Proto', 'http']),
  strip('A8', ['Forwarded', `for=${MARK}`]),
  strip('A8', ['X-Real-IP', MARK]),
  strip('A8', ['Tailscale-User-Login', MARK]),
  strip('A8', ['Tailscale-User-Name', MARK], ['Tailscale-App-Capabilities', MARK]),
  strip('A15', ['Authorization', `Basic ${MARK}`]),
  strip('A15', ['Authorization', `Bearer ${MARK}`]),
  strip('A15', ['Authorization', '']),
  strip('A15', ['Authorization', 'Bearer ']),
  deny('B1', ['Impersonate-User', MARK]),
  deny('B1', ['Impersonate-User', 'system:admin'], ['Impersonate-Group', 'system:masters']),
  deny('B1', ['Impersonate-User', '']),
  deny('B1', ['Impersonate-Group', MARK]),
  deny('B1', ['Impersonate-Uid', MARK]),
  deny('B1', ['Impersonate-Extra-foo', MARK]),
  deny('B1', ['Impersonate-Extra-scopes%2fx', MARK]),
  deny('B1', ['Impersonate-Extra-%73copes', MARK]),
  deny('B1', ['Impersonate-Extra-', MARK]),
  deny('B1', ['Impersonate-User', 'alice@example.com'], ['Impersonate-User', MARK]),
  deny('B1', ['Impersonate-User', 'Alice@example.com']),
  deny('B1', ['Impersonate-User', 'alice@example.com'], ['Impersonate-Group', 'devs']),
  deny(
    'B1',
    ['Impersonate-User', 'alice@example.com'],
    ['Impersonate-Group', 'devs'],
    ['Impersonate-Group', 'ops'],
    ['Impersonate-Group', 'system:masters'],
  ),
  deny('B1', ['Impersonate-User', 'alice@example.com'], ['Impersonate-Group', 'devs,ops']),
  deny('B1', ['Impersonate-User', 'alice@example.com'], ['Impersonate-Uid', '1']),
  deny('B1', ['Impersonate-User', 'alice@example.com'], ['Impersonate-Extra-a', 'b']),
  deny('B1', ['Impersonate-Group', 'devs'], ['Impersonate-Group', 'ops']),
  // with this header, Kubernetes would run the request without the groups of alice
  deny('B1', ['Impersonate-User', 'alice@example.com']),
  strip(
    'B1',
    ['Impersonate-User', 'alice@example.com'],
    ['Impersonate-Group', 'ops'],
    ['Impersonate-Group', 'devs'],
  ),
  deny('B2', ['Impersonate', MARK]),
  deny('B2', ['Impersonate-', MARK]),
  deny('B2', ['Impersonate-Foo', MARK]),
  deny('B2', ['Impersonate-Usercontext', MARK]),
  deny('B2', ['Impersonate-User-Info', MARK]),
  deny('B2', ['ImpersonateUser', MARK]),
  deny('B3', ['Impersonate_User', MARK]),
  deny('B3', ['Impersonate-User_', MARK]),
  deny('B3', ['Impersonate.User', MARK]),
  deny('B3', ['Impersonate~Group', MARK]),
  deny('B3', ['X_Remote_User', MARK]),
  deny('B3', ['X.Remote.Group', MARK]),
  strip('B3', ['Tailscale_User_Login', MARK]),
  deny('B3', ['X_Forwarded_For', MARK]),
  noName('B3', ['Impersonate-User ', MARK]),
  noName('B3', ['Impersonate-User\t', MARK]),
  noName('B3', ['Impersonate User', MARK]),
  strip('B4', ['X-Remote-User', MARK]),
  strip('B4', ['X-Remote-Group', 'system:masters']),
  strip('B4', ['X-Remote-Uid', MARK]),
  strip('B4', ['X-Remote-Extra-Foo', MARK]),
  strip('B4', ['X-Remote-Extra-%66oo', MARK]),
  strip('B4', ['X-Remote-Extra-scopes%2Fx', MARK]),
  strip('B4', ['X-Remote', MARK]),
  hop('B5', ['Connection', 'Impersonate-User']),
  hop('B5', ['Connection', 'close, Impersonate-Group']),
  hop('B5', ['Connection', ' ,Impersonate-User ,\tImpersonate-Group, ']),
  hop('B5', ['Connection', 'Authorization']),
  hop('B5', ['Connection', 'Host, Audit-ID']),
  hop('B5', ['Connection', 'impersonate-user'], ['Connection', 'AUTHORIZATION']),
  hop('B5', ['Connection', 'X-Foo'], ['X-Foo', MARK]),
  hop('B5', ['X-Foo', MARK], ['Connection', 'keep-alive , x-FOO']),
  strip('B6', ['Authorization', `Bearer ${MARK}`], ['Authorization', `Bearer ${MARK}2`]),
  strip('B6', ['Proxy-Authorization', `Basic ${MARK}`]),
  strip('B6', ['Proxy-Authenticate', MARK]),
  strip('B6', ['Cookie', `session=${MARK}`]),
  strip('B6', ['Cookie', 'a=1'], ['Cookie', `b=${MARK}`]),
  hop('B8', ['TE', 'gzip']),
  strip('B8', ['TE', 'trailers']),
  strip('B8', ['Trailer', 'Impersonate-User']),
  hop('B8', ['Keep-Alive', `timeout=${MARK}`]),
  hop('B8', ['Proxy-Connection', 'keep-alive']),
  strip('B8', ['HTTP2-Settings', MARK]),
  deny('B12', ['Origin', 'https://evil.example']),
  deny('B12', ['Origin', 'null']),
  deny('B12', ['Origin', 'https://gateway.lab.ts.net.evil.example']),
  deny('B12', ['Sec-Fetch-Site', 'cross-site']),
  deny('B12', ['Sec-Fetch-Site', 'same-site']),
  strip('B14', ['Audit-ID', MARK]),
  strip('B14', ['X-Request-Id', MARK]),
  strip('B14', ['X-Correlation-Id', MARK]),
  strip('B14', ['traceparent', `00-${MARK}-00-01`], ['tracestate', MARK]),
  strip('B14', ['baggage', MARK]),
  strip('B14', ['B3', MARK], ['X-B3-TraceId', MARK]),
];

function verdict(attack: HeaderAttack, transport: Transport, placement: Placement): Must {
  if (transport === 'h2 connect') return 'deny';
  if (transport === 'h2 request') {
    if (placement === 'mixed case' || attack.connectionField === true) return 'deny';
    return attack.droppedByHttp2 === true ? 'strip' : attack.must;
  }
  return attack.must;
}

describe('headers of a client', () => {
  let arena: Arena;
  beforeAll(async () => {
    arena = await openArena();
  });
  afterAll(() => arena.close());

  for (const [index, attack] of ATTACKS.entries()) {
    const shown = attack.fields.map(([name, value]) => `${JSON.stringify(name)}: ${value}`).join(' + ');
    for (const transport of TRANSPORTS) {
      for (const placement of transport === 'h2 connect' ? (['last'] as const) : PLACEMENTS) {
        const must = verdict(attack, transport, placement);
        const effect = must === 'deny' ? 'is refused' : 'never arrives';
        it(`${attack.id}.${index} ${shown} ${effect} (${transport}, ${placement})`, async () => {
          const ask = { fields: attack.fields, placement };
          const observed = await observe(arena, () => send(arena, transport, ask));
          if (must === 'deny') expectDenied(observed);
          else expectStripped(observed, honest(transport, ask));
        });
      }
    }
  }

  describe.each(['h1 request', 'h1 upgrade', 'h2 request'] as const)(
    'that mean no harm (%s)',
    (transport) => {
      const harmless: readonly (readonly [string, Field])[] = [
        ['B11', ['Accept-Encoding', 'gzip']],
        ['B11', ['Accept', 'application/vnd.kubernetes.protobuf;stream=watch,application/json']],
        ['B11', ['Accept', 'application/cbor']],
        ['B12', ['Origin', 'https://gateway.lab.ts.net']],
        ['B12', ['Origin', 'http://GATEWAY.lab.ts.net']],
        ['B12', ['Sec-Fetch-Site', 'same-origin']],
        ['B12', ['Sec-Fetch-Site', 'none']],
        ['B3', ['X_Harmless', '1']],
        ['B3', ['X-Impersonate-User', 'is nobody']],
      ];
      it.each(harmless)('%s %s arrives as it was sent', async (_id, [name, value]) => {
        const field: Field = transport === 'h2 request' ? [name.toLowerCase(), value] : [name, value];
        const ask = { fields: [field] };
        const observed = await observe(arena, () => send(arena, transport, ask));
        const request = expectForwarded(observed, honest(transport, ask));
        if (!request.headers.some(([key, text]) => key === field[0] && text === value))
          throw new Error(`not in ${request.head}`);
      });
    },
  );
});
