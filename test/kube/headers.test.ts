import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  assertImpersonates,
  assertStripped,
  cleanResponseHeaders,
  checkHeaderName,
  checkHeaderValue,
  withoutBearerSubprotocol,
  withoutNamed,
  type HeaderFamily,
} from '../../src/kube/headers.ts';

const REFUSED = expect.objectContaining({ code: 'HEADER_REFUSED' });
const INTERNAL = expect.objectContaining({ code: 'INTERNAL' });

describe('header families', () => {
  it.each<[name: string, family: HeaderFamily]>([
    ['impersonate', 'impersonation'],
    ['impersonate-', 'impersonation'],
    ['impersonate-user', 'impersonation'],
    ['impersonate-usercontext', 'impersonation'],
    ['impersonate-extra-scopes%2fx', 'impersonation'],
    ['x-remote-user', 'identity'],
    ['x-remote-uid', 'identity'],
    ['x-remote-extra-foo%2fbar', 'identity'],
    ['tailscale-user-login', 'identity'],
    ['authorization', 'credential'],
    ['cookie', 'cookie'],
    ['x-forwarded-for', 'forwarded'],
    ['x-forwarded-client-cert', 'forwarded'],
    ['forwarded', 'forwarded'],
    ['x-real-ip', 'forwarded'],
    ['proxy-authorization', 'hopByHop'],
    ['proxy-connection', 'hopByHop'],
    ['connection', 'hopByHop'],
    ['keep-alive', 'hopByHop'],
    ['te', 'hopByHop'],
    ['trailer', 'hopByHop'],
    ['upgrade', 'hopByHop'],
    ['http2-settings', 'hopByHop'],
    ['content-length', 'framing'],
    ['transfer-encoding', 'framing'],
    ['sec-websocket-protocol', 'subprotocol'],
    ['audit-id', 'auditId'],
    ['host', 'host'],
    ['user-agent', 'ordinary'],
    ['accept', 'ordinary'],
    ['upgrade-insecure-requests', 'ordinary'],
    ['x-stream-protocol-version', 'ordinary'],
    ['kubectl-session', 'ordinary'],
    ['x_custom', 'ordinary'],
    ['x.trace', 'ordinary'],
  ])('%s is %s', (name, family) => {
    expect(checkHeaderName(name)).toBe(family);
  });

  it.each([
    'impersonate_user',
    'impersonate.user',
    'impersonate-user_',
    '_impersonate-user',
    'x_remote_user',
    'x.remote.user',
    'x_forwarded_for',
    'auth.orization',
    'authoriz_ation',
    'proxy_authorization',
    'transfer_encoding',
    'content_length',
    'tail_scale-user-login',
    'host_',
    'a b',
    'a:b',
    'ä',
    '',
  ])('B3 refuses %j', (name) => {
    expect(() => checkHeaderName(name)).toThrow(REFUSED);
  });

  it('refuses values that would not stay on their line', () => {
    for (const value of ['a\r\nb', 'a\nb', 'a\0b', 'a\x7f', '\u010a', '€']) {
      expect(() => checkHeaderValue(value, 'x')).toThrow(REFUSED);
    }
    for (const value of ['', 'a\tb', '\xe9', ' ']) expect(() => checkHeaderValue(value, 'x')).not.toThrow();
  });
});

describe('withoutNamed', () => {
  it('returns the very list when nothing is named', () => {
    const headers = ['A', '1'];
    expect(withoutNamed(headers, new Set(['b']))).toBe(headers);
    expect(withoutNamed(['A', '1', 'B', '2', 'a', '3'], new Set(['a']))).toEqual(['B', '2']);
  });
});

describe('withoutBearerSubprotocol', () => {
  const token = 'base64url.bearer.authorization.k8s.io.c2VjcmV0';
  it.each([
    ['v5.channel.k8s.io', 'v5.channel.k8s.io'],
    ['', ''],
    ['a,b ,  c', 'a,b ,  c'],
    [`${token}, v5.channel.k8s.io`, 'v5.channel.k8s.io'],
    [`v5.channel.k8s.io,${token}`, 'v5.channel.k8s.io'],
    [`  ${token}  ,v4.channel.k8s.io, v5.channel.k8s.io`, 'v4.channel.k8s.io, v5.channel.k8s.io'],
    [token, ''],
    [`${token}, ${token}`, ''],
    [`${token},`, ''],
    [token.toUpperCase(), ''],
    ['base64url.bearer.authorization.k8s.io', ''],
  ])('B7 %j becomes %j', (value, stripped) => {
    expect(withoutBearerSubprotocol(value)).toBe(stripped);
  });
});

describe('assertions', () => {
  it.each([
    'Impersonate-User',
    'IMPERSONATE',
    'x-remote-anything',
    'X-Forwarded-For',
    'Forwarded',
    'X-Real-IP',
    'Tailscale-User-Login',
    'Authorization',
    'Proxy-Authorization',
    'Cookie',
    'Connection',
    'Keep-Alive',
    'TE',
    'Trailer',
    'Transfer-Encoding',
    'Content-Length',
    'Upgrade',
  ])('assertStripped fails on %s', (name) => {
    expect(() => assertStripped(['Accept', '*/*', name, 'x'])).toThrow(INTERNAL);
  });

  it('assertStripped passes what is ordinary or excepted', () => {
    expect(() =>
      assertStripped(['Accept', '*/*', 'Upgrade-Insecure-Requests', '1', 'Test', '1']),
    ).not.toThrow();
    expect(() => assertStripped(['Authorization', 'x'], ['authorization'])).not.toThrow();
    expect(() => assertStripped(['X-Remote-User', 'x'], ['authorization'])).toThrow(INTERNAL);
  });

  it.each<[name: string, headers: readonly string[], user: string]>([
    ['none', ['Accept', '*/*'], 'a'],
    ['another', ['Impersonate-User', 'b'], 'a'],
    ['two', ['Impersonate-User', 'a', 'impersonate-user', 'a'], 'a'],
    ['a second one in another case', ['Impersonate-User', 'a', 'IMPERSONATE-USER', 'b'], 'a'],
    ['an empty one', ['Impersonate-User', ''], ''],
  ])('assertImpersonates fails on %s', (_name, headers, user) => {
    expect(() => assertImpersonates(headers, user)).toThrow(INTERNAL);
  });

  it('assertImpersonates passes exactly one', () => {
    expect(() => assertImpersonates(['A', 'b', 'Impersonate-User', 'a'], 'a')).not.toThrow();
  });
});

describe('B13 response headers', () => {
  const drop = { keepCookies: false };

  it('returns the very list in the common case', () => {
    const headers = [
      'Content-Type',
      'application/json',
      'Content-Length',
      '12',
      'Audit-Id',
      'x',
      'Date',
      'now',
      'Warning',
      'w',
    ];
    expect(cleanResponseHeaders(headers, drop)).toBe(headers);
  });

  it('drops hop-by-hop fields, what Connection names, and cookies', () => {
    expect(
      cleanResponseHeaders(
        [
          'Date',
          'd',
          'CONNECTION',
          'close ,  X-Secret',
          'X-Secret',
          's',
          'connection',
          'x-other',
          'X-OTHER',
          'o',
          'Transfer-Encoding',
          'chunked',
          'Keep-Alive',
          't',
          'Set-Cookie',
          'c',
          'Upgrade',
          'h2c',
          'Alt-Svc',
          'h3',
          'Warning',
          'a',
          'Warning',
          'b',
          'Trailer',
          't',
        ],
        drop,
      ),
    ).toEqual(['Date', 'd', 'Warning', 'a', 'Warning', 'b', 'Trailer', 't']);
  });

  it('keeps cookies for a mode that passes them up', () => {
    expect(cleanResponseHeaders(['Set-Cookie', 'c', 'Alt-Svc', 'h3'], { keepCookies: true })).toEqual([
      'Set-Cookie',
      'c',
    ]);
  });

  it('keeps the length that the relay depends on', () => {
    expect(
      cleanResponseHeaders(['Connection', 'Content-Length, X', 'Content-Length', '5', 'X', 'y'], drop),
    ).toEqual(['Content-Length', '5']);
  });

  it('never lets a hop-by-hop or named field through', () => {
    const name = fc.oneof(
      fc.constantFrom('Connection', 'X-A', 'x-a', 'X-B', 'Keep-Alive', 'Upgrade', 'Set-Cookie', 'Date', 'TE'),
      fc.stringMatching(/^[A-Za-z-]{1,12}$/),
    );
    const value = fc.oneof(fc.constantFrom('x-a', ' X-B ,close', 'keep-alive', ''), fc.string());
    let touched = 0;
    fc.assert(
      fc.property(fc.array(fc.tuple(name, value)), (fields) => {
        const cleaned = cleanResponseHeaders(fields.flat(), drop);
        if (cleaned.length < fields.length * 2) touched++;
        const names = cleaned.filter((_, index) => index % 2 === 0).map((text) => text.toLowerCase());
        const named = fields
          .filter(([field]) => field.toLowerCase() === 'connection')
          .flatMap(([, tokens]) => tokens.split(',').map((token) => token.trim().toLowerCase()));
        return !['connection', 'keep-alive', 'upgrade', 'te', 'set-cookie', ...named].some(
          (forbidden) => forbidden !== 'content-length' && names.includes(forbidden),
        );
      }),
    );
    expect(touched).toBeGreaterThan(20);
  });
});
