import { describe, expect, it } from 'vitest';
import {
  canShare,
  DEFAULT_SHARED_LIMITS,
  SharedConnections,
} from '../../../src/proxy/upstream/shared-connections.ts';
import type { Exchange, ExchangeOwner, UpstreamRequest } from '../../../src/proxy/upstream/upstream.ts';

const REQUEST: UpstreamRequest = {
  method: 'GET',
  target: '/api/v1/pods?watch=true',
  headers: ['Host', 'kubernetes.test', 'Impersonate-User', 'alice', 'Impersonate-Group', 'a'],
  framing: { kind: 'none' },
};
const OWNER: ExchangeOwner = {
  wantsPayload: true,
  informational: () => expect.unreachable(),
  head: () => expect.unreachable(),
  body: () => expect.unreachable(),
  end: () => expect.unreachable(),
  flush: () => expect.unreachable(),
  writable: () => expect.unreachable(),
  failed: () => expect.unreachable(),
};
const withField = (name: string, value: string): UpstreamRequest => ({
  ...REQUEST,
  headers: [...REQUEST.headers, name, value],
});

describe('a request that is to share a connection', () => {
  const never = (): SharedConnections =>
    new SharedConnections(
      { connect: () => new Promise<never>(() => {}), credentials: {} },
      DEFAULT_SHARED_LIMITS,
      () => 0,
    );
  const start = (request: UpstreamRequest): Exchange =>
    never().start(request, OWNER, () => expect.unreachable());

  it.each([
    ['a NUL in a value', withField('X-A', 'b\0impersonate-user\0root')],
    ['a line end in a value', withField('X-A', 'b\r\nImpersonate-User: root')],
    ['a letter whose last byte is a line end', withField('X-A', 'b\u010aImpersonate-User: root')],
    ['a space in a name', withField('X A', 'b')],
    ['a pseudo field', withField(':path', '/')],
    ['a length', withField('Content-Length', '4')],
    ['a space in its target', { ...REQUEST, target: '/api v1' }],
    ['a target that is elsewhere', { ...REQUEST, target: 'http://a/' }],
    ['a method that is none', { ...REQUEST, method: 'GET /' }],
  ] as const)('is not sent with %s', (_what, request) => {
    expect(() => start(request)).toThrow(expect.objectContaining({ code: 'INTERNAL' }));
  });

  it('does not wait for a connection that is opened with credentials that have been replaced', () => {
    const connector = {
      credentials: {},
      opened: 0,
      connect() {
        this.opened += 1;
        return new Promise<never>(() => {});
      },
    };
    const shared = new SharedConnections(connector, DEFAULT_SHARED_LIMITS, () => 0);
    const another = (): Exchange => shared.start(REQUEST, OWNER, () => expect.unreachable());
    another();
    another();
    expect(connector.opened).toBe(1);
    connector.credentials = {};
    another();
    another();
    expect([connector.opened, shared.size.streams]).toEqual([2, 4]);
  });

  it('is not sent when the gateway ends', () => {
    const shared = never();
    shared.close();
    expect(() => shared.start(REQUEST, OWNER, () => expect.unreachable())).toThrow(
      expect.objectContaining({ code: 'SHUTTING_DOWN' }),
    );
  });
});

describe('a request can share', () => {
  const SIZE = REQUEST.target.length + REQUEST.headers.join('').length;

  it.each([
    ['as it is', REQUEST, true],
    ['with groups', withField('Impersonate-Group', 'b'), true],
    ['with a field twice', { ...REQUEST, headers: [...REQUEST.headers, 'X-A', 'b', 'x-a', 'b'] }, false],
    ['without Host', { ...REQUEST, headers: ['Accept', 'a'] }, false],
    ['with Expect', withField('expect', '100-continue'), false],
    ['with Connection', withField('Connection', 'close'), false],
    ['with TE', withField('TE', 'trailers'), false],
    ['that changes something', { ...REQUEST, method: 'POST' }, false],
    ['with a body', { ...REQUEST, framing: { kind: 'length', bytes: 1 } }, false],
    ['with a body of no length', { ...REQUEST, framing: { kind: 'chunked' } }, false],
    ['with 16 KB of fields', withField('X-A', 'b'.repeat(16 * 1024 - SIZE - 'X-A'.length)), true],
    ['with more', withField('X-A', 'b'.repeat(16 * 1024 - SIZE - 'X-A'.length + 1)), false],
  ] as const)('%s: %#', (_what, request, can) => {
    expect(canShare(request)).toBe(can);
  });
});
