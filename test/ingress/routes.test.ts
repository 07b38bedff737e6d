import { describe, expect, it } from 'vitest';
import { parseTable, routeOf, type IngressRoute } from '../../src/ingress/routes.ts';
import type { IngressTable } from '../../src/wire/ingress-table.ts';

const TABLE: IngressTable = {
  version: 1,
  certificates: [],
  secure: ['own.example.org', '*.wide.example.org'],
  redirect: false,
  hosts: [
    {
      name: 'own.example.org',
      prefixes: [
        ['/', 'http://root:80'],
        ['/api', 'http://api:80'],
        ['/api/v1', 'http://v1:80'],
      ],
      exact: [['/api/', 'http://exact:80']],
    },
    { name: '*.wide.example.org', prefixes: [['/a', 'http://wide:80']], exact: [] },
    { name: 'x.wide.example.org', prefixes: [['/', 'http://x:80']], exact: [] },
    { name: '', prefixes: [['/', 'http://any:80']], exact: [] },
  ],
};
const route = (authority: string, target: string, secure = true): IngressRoute =>
  routeOf(TABLE, { authority, target, secure });
const status = (...wish: Parameters<typeof route>): number | undefined => {
  const found = route(...wish);
  return found.kind === 'refused' ? found.status : undefined;
};

describe('the route of a request', () => {
  it.each([
    ['/', 'root'],
    ['/apis', 'root'],
    ['/api', 'api'],
    ['/api/', 'exact'],
    ['/api/x', 'api'],
    ['/api/v1?x=/..', 'v1'],
    ['/api/v1/..x', 'v1'],
  ])('of %s is that of the longest prefix in whole parts, or itself', (target, name) => {
    expect(route('OWN.example.org.:443', target)).toEqual({ kind: 'found', upstream: `http://${name}:80` });
  });

  it('is that of the most specific host', () => {
    expect(route('x.wide.example.org', '/a')).toMatchObject({ upstream: 'http://x:80' });
    expect(route('y.wide.example.org', '/a')).toMatchObject({ upstream: 'http://wide:80' });
    expect(status('y.wide.example.org', '/b')).toBe(404);
    expect(status('a.b.wide.example.org', '/a')).toBe(421);
    expect(status('wide.example.org', '/a')).toBe(421);
  });

  it.each(['/api/../x', '/api/%2e%2E/x', '/./x', '/x/..', 'x', '*', 'http://own.example.org/'])(
    'of %s is none',
    (target) => {
      expect(status('own.example.org', target)).toBe(400);
    },
  );

  it.each(['', 'own.example.org/x', 'user@own.example.org', 'a b'])('to the host %j is none', (authority) => {
    expect(status(authority, '/')).toBe(400);
  });

  it('by HTTP is none for hosts of HTTPS, nor for hosts that no rule names', () => {
    expect(status('own.example.org', '/', false)).toBe(404);
    expect(status('other.example.org', '/', false)).toBe(404);
  });
});

describe('a table', () => {
  it('is read as it was written', () => {
    expect(parseTable(JSON.stringify(TABLE))).toEqual(TABLE);
  });

  it('that is wrong is refused by its field, without its values', () => {
    const wrong = { ...TABLE, certificates: [{ hosts: [], certificatePem: 'x', keyPem: ['a key'] }] };
    expect(() => parseTable(JSON.stringify(wrong))).toThrow(/certificates\.0\.keyPem/);
    expect(() => parseTable(JSON.stringify(wrong))).not.toThrow(/a key/);
    const hosts = [{ name: '', prefixes: [['/', 'file:///etc/passwd']], exact: [] }];
    expect(() => parseTable(JSON.stringify({ ...TABLE, hosts }))).toThrow(/hosts\.0\.prefixes/);
  });
});
