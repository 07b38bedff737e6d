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

describe('a route by HTTP that a table names for itself', () => {
  const table: IngressTable = {
    ...TABLE,
    secure: [...TABLE.secure, '**.deep.example.org'],
    hosts: [...TABLE.hosts, { name: '**.deep.example.org', prefixes: [['/', 'http://deep:80']], exact: [] }],
    plain: [
      { name: 'own.example.org', prefixes: [['/', 'redirect:308']], exact: [['/gone', 'refused']] },
      { name: '**.deep.example.org', prefixes: [['/', 'http://plain:80']], exact: [] },
      { name: '', prefixes: [['/a', 'http://any:81']], exact: [] },
    ],
  };
  const by = (authority: string, target: string, secure = false): IngressRoute =>
    routeOf(table, { authority, target, secure });

  it('is none of those by HTTPS, of hosts of HTTPS neither', () => {
    expect(by('x.deep.example.org', '/')).toMatchObject({ upstream: 'http://plain:80' });
    expect(by('x.deep.example.org', '/', true)).toMatchObject({ upstream: 'http://deep:80' });
    expect(by('other.example.org', '/a/b')).toMatchObject({ upstream: 'http://any:81' });
    expect(by('x.wide.example.org', '/a')).toMatchObject({ upstream: 'http://any:81' });
    expect(by('other.example.org', '/')).toMatchObject({ status: 404 });
  });

  it('leads to HTTPS with its status, and refuses what cannot be had', () => {
    const location = 'https://own.example.org/x?y';
    expect(by('own.example.org:80', '/x?y')).toEqual({ kind: 'redirect', status: 308, location });
    expect(by('own.example.org', '/gone')).toMatchObject({ kind: 'refused', status: 500 });
  });

  it('leads nowhere from HTTPS', () => {
    const looping = { ...table, hosts: table.plain ?? [], secure: [''] };
    const wish = { authority: 'own.example.org', target: '/', secure: true };
    expect(routeOf(looping, wish)).toMatchObject({ status: 404 });
  });

  it('is for names of any depth below two stars', () => {
    expect(by('a.b.deep.example.org', '/')).toMatchObject({ upstream: 'http://plain:80' });
    expect(by('deep.example.org', '/a')).toMatchObject({ upstream: 'http://any:81' });
    expect(by('notdeep.example.org', '/a')).toMatchObject({ upstream: 'http://any:81' });
  });

  it('is read as it was written, and nothing else is', () => {
    expect(parseTable(JSON.stringify(table))).toEqual(table);
    const plain = [{ name: '', prefixes: [['/', 'redirect:200']], exact: [] }];
    expect(() => parseTable(JSON.stringify({ ...TABLE, plain }))).toThrow(/plain\.0\.prefixes/);
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
