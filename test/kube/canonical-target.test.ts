import { describe, expect, it } from 'vitest';
import { TailcastError } from '../../src/errors.ts';
import {
  MAX_PATH_LENGTH,
  MAX_QUERY_PARAMETERS,
  MAX_TARGET_LENGTH,
  firstQueryValue,
  parseTarget,
  queryFlag,
  queryValues,
} from '../../src/kube/canonical-target.ts';

const POD = '/api/v1/namespaces/n/pods/p';

function refusal(target: string): string | undefined {
  try {
    parseTarget(target);
    return undefined;
  } catch (error) {
    if (
      error instanceof TailcastError &&
      (error.code === 'REQUEST_NOT_CANONICAL' || error.code === 'TARGET_TOO_LONG')
    )
      return error.message;
    throw error;
  }
}

describe('parseTarget accepts what Kubernetes clients send', () => {
  it.each<[target: string, path: string, segments: readonly string[]]>([
    ['/', '/', []],
    ['/api', '/api', ['api']],
    ['/apis/', '/apis/', ['apis']],
    ['/healthz?verbose', '/healthz', ['healthz']],
    [
      '/.well-known/openid-configuration',
      '/.well-known/openid-configuration',
      ['.well-known', 'openid-configuration'],
    ],
    [`${POD}/exec/`, `${POD}/exec/`, ['api', 'v1', 'namespaces', 'n', 'pods', 'p', 'exec']],
    [
      '/api/v1/namespaces/n/pods/foo.bar',
      '/api/v1/namespaces/n/pods/foo.bar',
      ['api', 'v1', 'namespaces', 'n', 'pods', 'foo.bar'],
    ],
    [
      '/api/v1/namespaces/n/pods/..foo',
      '/api/v1/namespaces/n/pods/..foo',
      ['api', 'v1', 'namespaces', 'n', 'pods', '..foo'],
    ],
    [
      '/apis/rbac.authorization.k8s.io/v1/clusterroles/system:node',
      '/apis/rbac.authorization.k8s.io/v1/clusterroles/system:node',
      ['apis', 'rbac.authorization.k8s.io', 'v1', 'clusterroles', 'system:node'],
    ],
    [
      '/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Anode%20x',
      '/apis/rbac.authorization.k8s.io/v1/clusterroles/system:node x',
      ['apis', 'rbac.authorization.k8s.io', 'v1', 'clusterroles', 'system:node x'],
    ],
    [`${POD}/%65xec`, `${POD}/exec`, ['api', 'v1', 'namespaces', 'n', 'pods', 'p', 'exec']],
    [
      '/api/v1/namespaces/n/configmaps/%E2%82%AC',
      '/api/v1/namespaces/n/configmaps/€',
      ['api', 'v1', 'namespaces', 'n', 'configmaps', '€'],
    ],
  ])('%s', (target, path, segments) => {
    const parsed = parseTarget(target);
    expect(parsed.path).toBe(path);
    expect(parsed.segments).toEqual(segments);
    expect(parsed.raw).toBe(target);
  });

  it.each<[target: string, path: string]>([
    [`${POD}/proxy/a%2Fb`, `${POD}/proxy/a/b`],
    [`${POD}/proxy//double//slash`, `${POD}/proxy//double//slash`],
    [`${POD}/proxy/`, `${POD}/proxy/`],
    [`${POD}/proxy/a;v=1/b`, `${POD}/proxy/a;v=1/b`],
    [`${POD}/proxy/100%25`, `${POD}/proxy/100%`],
    [`${POD}/proxy/a%255Cb`, `${POD}/proxy/a%5Cb`],
    [
      '/api/v1/namespaces/n/services/https:foo:8080/proxy/a%20b',
      '/api/v1/namespaces/n/services/https:foo:8080/proxy/a b',
    ],
    [
      '/api/v1/namespaces/n/services/https%3Afoo%3A8080/proxy/x',
      '/api/v1/namespaces/n/services/https:foo:8080/proxy/x',
    ],
    ['/api/v1/nodes/node-1/proxy/logs/kube%2Fproxy.log', '/api/v1/nodes/node-1/proxy/logs/kube/proxy.log'],
  ])('app part: %s', (target, path) => {
    expect(parseTarget(target).path).toBe(path);
  });

  it('splits path and query at the first question mark and keeps both verbatim', () => {
    const target = parseTarget('/api/v1/pods?a=1?b=2');
    expect(target.rawPath).toBe('/api/v1/pods');
    expect(target.rawQuery).toBe('a=1?b=2');
    expect(target.query).toEqual([['a', '1?b=2']]);
  });

  it('takes limits exactly', () => {
    expect(refusal(`/${'a'.repeat(MAX_PATH_LENGTH - 1)}`)).toBeUndefined();
    expect(refusal(`/${'a'.repeat(MAX_PATH_LENGTH)}`)).toMatch(/path is over 16 KiB/);
    expect(refusal(`/?${'a'.repeat(MAX_TARGET_LENGTH - 2)}`)).toBeUndefined();
    expect(refusal(`/?${'a'.repeat(MAX_TARGET_LENGTH - 1)}`)).toMatch(/over 256 KiB/);
    expect(refusal(`/?${'a&'.repeat(MAX_QUERY_PARAMETERS - 1)}a`)).toBeUndefined();
    expect(refusal(`/?${'a&'.repeat(MAX_QUERY_PARAMETERS)}a`)).toMatch(/more than/);
  });
});

describe('parseTarget refuses what could be read in two ways', () => {
  it.each([
    ['D1 double slash at the start', '//api/v1/pods'],
    ['D1 double slash inside', '/api//v1/pods'],
    ['D1 double slash at the end', `${POD}/exec//`],
    ['D1 two slashes alone', '//'],
    ['D1 dot segment', '/api/./v1/pods'],
    ['D1 dot-dot segment', '/api/v1/../v1/pods'],
    ['D1 dot segment at the end', `${POD}/exec/.`],
    ['D2 encoded dots', '/api/v1/%2e%2e/pods'],
    ['D2 encoded dot, upper case', '/api/v1/%2E/pods'],
    ['D2 half-encoded dots', '/api/v1/.%2e/pods'],
    ['D2 encoded slash', `${POD}%2Fexec`],
    ['D2 encoded slash, lower case', '/api/v1/namespaces/n%2fx/pods'],
    ['D2 encoded backslash', '/api/v1/namespaces/n/pods/p%5Cexec'],
    ['D2 NUL', `${POD}/exec%00`],
    ['D2 newline', `${POD}/exec%0a`],
    ['D2 delete character', '/api/v1/pods/%7f'],
    ['D2 last control character of ASCII', '/api/v1/pods/%1f'],
    ['D2 first control character of Latin 1', '/api/v1/pods/%C2%80'],
    ['D2 last control character of Latin 1', '/api/v1/pods/%C2%9F'],
    ['D2 C1 control', '/api/v1/pods/%C2%85'],
    ['D2 double encoding', '/api/v1/%252e%252e/pods'],
    ['D2 encoded percent', '/api/v1/pods/100%25'],
    ['D2 overlong UTF-8', '/api/v1/pods/%C0%AF'],
    ['D2 bad UTF-8', '/api/v1/pods/%FF'],
    ['D2 surrogate in UTF-8', '/api/v1/pods/%ED%A0%80'],
    ['D2 lone percent', '/api/v1/pods/%'],
    ['D2 bad escape', '/api/v1/pods/%zz'],
    ['D2 cut escape', '/api/v1/pods/%4'],
    ['D4 backslash', '/api/v1/namespaces/n/pods/p\\exec'],
    ['D4 tab', '/api/v1/po\tds'],
    ['D4 newline', '/api/v1/pods\n'],
    ['D4 space', '/api/v1/pods HTTP/1.1'],
    ['D4 path parameter', `${POD}/exec;a=b`],
    ['D4 encoded path parameter', `${POD}/exec%3Ba`],
    ['D4 fragment', `${POD}/exec#f`],
    ['D4 fragment in the query', '/api/v1/pods?a#b'],
    ['D4 byte outside ASCII', '/api/v1/pods/é'],
    ['D4 control in the query', '/api/v1/pods?a=\r\nHost: x'],
    ['D5 absolute form', 'http://kubernetes/api'],
    ['D5 absolute form, https', 'HTTPS://kubernetes/api'],
    ['D5 authority form', 'kubernetes:443'],
    ['D5 asterisk form', '*'],
    ['D5 empty', ''],
    ['D5 query only', '?x=y'],
    ['D12 cluster prefix with dots', '/clusters/a/../b/api'],
    ['D12 cluster prefix with an encoded slash', '/clusters/a%2fb'],
    ['app part that climbs', `${POD}/proxy/../exec`],
    ['app part that climbs, encoded', `${POD}/proxy/%2e%2e/exec`],
    ['app part that climbs behind an encoded slash', `${POD}/proxy/a%2F..%2Fb`],
    ['app part that climbs after a backslash', `${POD}/proxy/a%5C..%5Cb`],
    ['app part that climbs when decoded twice', `${POD}/proxy/%252e%252e/exec`],
    ['app part that climbs when decoded three times', `${POD}/proxy/%25252e%25252e/exec`],
    ['app part that climbs when path parameters are dropped', `${POD}/proxy/..;/..;/manager`],
    ['app part encoded without end', `${POD}/proxy/%${'25'.repeat(50)}41`],
    ['app part with a newline', `${POD}/proxy/a%0d%0ab`],
    ['app part with a bad escape', `${POD}/proxy/100%`],
    ['app rules before the word proxy', '/api/v1/namespaces/n/pods/p%2Fproxy/x'],
    ['app rules for another resource', '/api/v1/namespaces/n/secrets/s/proxy/a%2Fb'],
    ['app rules for another group', '/apis/x/v1/namespaces/n/pods/p/proxy/a%2Fb'],
    ['app rules under another prefix', '/logs/v1/namespaces/n/pods/p/proxy/a%2Fb'],
    ['app rules under another prefix, nodes', '/apis/v1/nodes/n/proxy/a%2Fb'],
    ['app rules for namespaced nodes', '/api/v1/namespaces/n/nodes/x/proxy/a%2Fb'],
    ['app rules in the old proxy form', '/api/v1/proxy/nodes/n/a%2Fb'],
  ])('%s', (_name, target) => {
    expect(refusal(target)).toMatch(/ambiguous/);
  });

  it('never repeats the target in its message', () => {
    expect(refusal('/api/v1/%zz/SECRET')).not.toContain('SECRET');
  });
});

describe('queries are read as Go reads them', () => {
  it.each<[query: string, pairs: readonly (readonly [string, string])[]]>([
    [
      'a=b&a=c',
      [
        ['a', 'b'],
        ['a', 'c'],
      ],
    ],
    ['a', [['a', '']]],
    ['a=', [['a', '']]],
    ['=b', [['', 'b']]],
    ['&&a=1&', [['a', '1']]],
    ['a=b+c%2Bd', [['a', 'b c+d']]],
    ['a+b=1', [['a b', '1']]],
    ['a=b=c', [['a', 'b=c']]],
    ['%74ty=1', [['tty', '1']]],
    ['a=1;b=2&c=3', [['c', '3']]],
    ['a=%zz&b=1', [['b', '1']]],
    ['%=1&b=1', [['b', '1']]],
    ['a=%4&b=1', [['b', '1']]],
    ['a=%E9', [['a', '\ufffd']]],
    ['a=%E2%82%AC', [['a', '€']]],
    ['command=a%0Ab', [['command', 'a\nb']]],
  ])('%s', (query, pairs) => {
    expect(parseTarget(`/?${query}`).query).toEqual(pairs);
  });

  it('gives the first value and all values', () => {
    const { query } = parseTarget('/?a=1&b=2&a=3');
    expect(firstQueryValue(query, 'a')).toBe('1');
    expect(firstQueryValue(query, 'c')).toBeUndefined();
    expect(queryValues(query, 'a')).toEqual(['1', '3']);
  });

  it.each<[query: string, flag: boolean]>([
    ['', false],
    ['x=0', false],
    ['x=false', false],
    ['x=FaLsE', false],
    ['x=fal%C5%BFe', false],
    ['x', true],
    ['x=', true],
    ['x=no', true],
    ['x=00', true],
    ['x=+false', true],
    ['X=true', false],
    ['x=false&x=true', false],
    ['x=true&x=false', true],
  ])('D9 flag %s is %s', (query, flag) => {
    expect(queryFlag(parseTarget(`/?${query}`).query, 'x')).toBe(flag);
  });
});
