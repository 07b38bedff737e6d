import fc from 'fast-check';
import { beforeAll, describe, expect, it } from 'vitest';
import { parseTable, routeOf } from '../../../src/ingress/routes.ts';
import { coversHost } from '../../../src/operator/gateway/hosts.ts';
import { planGateway, type AttachedParent, type GatewayPlan } from '../../../src/operator/gateway/plan.ts';
import type { Gateway, HttpRoute } from '../../../src/operator/gateway/resource.ts';
import type { TlsSecret } from '../../../src/operator/ingress/table.ts';
import { createTestAuthority } from '../../support/issued-certificates.ts';
import { gatewayWith, HTTP, HTTPS, routeWith, rule, servicesNamed } from './gateways.ts';

const NODE = { dnsName: 'edge.lab.ts.net', addresses: ['100.64.0.9'], hasCertificate: true };
const OWN = 'own.example.org';
const TLS = { ...HTTPS, hostname: OWN, tls: { certificateRefs: [{ name: 'own' }] } };
const SERVICES = servicesNamed('web', 'api', 'other');
const [WEB, API] = ['http://10.96.0.1:80', 'http://10.96.0.2:80'];

let secrets: ReadonlyMap<string, TlsSecret>;
beforeAll(async () => {
  const { certificatePem, keyPem } = await (await createTestAuthority()).issue([OWN]);
  const encoded = (text: string): string => Buffer.from(text).toString('base64');
  const data = { 'tls.crt': encoded(certificatePem), 'tls.key': encoded(keyPem) };
  const metadata = { name: 'own', namespace: 'prod' };
  secrets = new Map<string, TlsSecret>([
    ['own', { apiVersion: 'v1', kind: 'Secret', metadata, data }],
    ['secret', 'forbidden'],
  ]);
});

const plan = (gateway: Gateway, routes: readonly HttpRoute[], node: object = {}): GatewayPlan =>
  planGateway(gateway, routes, {
    hostname: 'edge',
    node: { ...NODE, ...node },
    secrets,
    servicesOf: () => SERVICES,
    nowMs: Date.now(),
  });
const parent = (gateway: Gateway, route: HttpRoute, node: object = {}): AttachedParent =>
  plan(gateway, [route], node).routes[0]!.parents[0]!;
/** Returns the handlers of tailscaled at a host and port. */
const handlers = ({ config }: GatewayPlan, at: string): unknown =>
  (config as { Web?: Record<string, { Handlers: object }> }).Web?.[at]?.Handlers;

describe('a Gateway whose certificate is the control server’s', () => {
  it('is served by tailscaled, HTTPS and HTTP each by itself', () => {
    const found = plan(gatewayWith(HTTP, HTTPS), [
      routeWith({ parentRefs: [{ name: 'edge', sectionName: 'https' }], rules: [rule('/')] }),
      routeWith({ parentRefs: [{ name: 'edge', sectionName: 'http' }], rules: [rule('/x', 'api', 'Exact')] }),
    ]);
    expect(found.table).toBeUndefined();
    expect(found.config.TCP).toEqual({ '443': { HTTPS: true }, '80': { HTTP: true } });
    expect(handlers(found, '${TS_CERT_DOMAIN}:443')).toEqual({ '/': { Proxy: `${WEB}/` } });
    expect(handlers(found, 'edge.lab.ts.net:80')).toEqual({
      '/x': { Proxy: `${API}/x` },
      '/x/': { Path: '/nonexistent' },
    });
  });

  it('leads HTTP to HTTPS where a route says so', () => {
    const redirect = { type: 'RequestRedirect', requestRedirect: { scheme: 'https', statusCode: 308 } };
    const found = plan(gatewayWith(HTTP, HTTPS), [
      routeWith({ rules: [{ filters: [redirect] }] }),
      routeWith({ parentRefs: [{ name: 'edge', sectionName: 'https' }], rules: [rule('/')] }, { name: 'z' }),
    ]);
    const to = { Redirect: '308:https://${HOST}${REQUEST_URI}' };
    expect(handlers(found, 'edge.lab.ts.net:80')).toEqual({ '/': to });
    expect(handlers(found, '${TS_CERT_DOMAIN}:443')).toEqual({ '/': { Proxy: `${WEB}/` } });
  });

  it('says of other names, and of a control server without certificates, that there is none', () => {
    const [listener] = plan(gatewayWith({ ...HTTPS, hostname: OWN }), []).listeners;
    expect(listener).toMatchObject({ accepted: { ready: false, reason: 'UnsupportedValue' } });
    expect(listener?.accepted.message).toContain('spec.listeners[0].hostname');
    const route = routeWith({ hostnames: [OWN], rules: [rule('/')] });
    expect(parent(gatewayWith(HTTPS), route).accepted.reason).toBe('NoMatchingListenerHostname');
    const none = plan(gatewayWith(HTTPS), [routeWith({ rules: [rule('/')] })], { hasCertificate: false });
    expect(none.listeners[0]?.unserved).toContain('issues no certificates');
    expect(none.config).toEqual({ TCP: {}, Web: {} });
    expect(none.routes[0]?.parents[0]?.accepted.ready).toBe(true);
  });

  it('knows the node under its name and under its whole name', () => {
    const route = routeWith({ hostnames: ['edge', 'edge.lab.ts.net'], rules: [rule('/')] });
    for (const dnsName of [NODE.dnsName, undefined])
      expect(parent(gatewayWith(HTTPS), route, { dnsName }).accepted.ready).toBe(true);
  });
});

describe('a Gateway with certificates of its own', () => {
  it('is served by a server of ours, HTTPS and HTTP each by itself', () => {
    const found = plan(gatewayWith(HTTP, TLS), [
      routeWith({ rules: [rule('/')] }),
      routeWith({ parentRefs: [{ name: 'edge', port: 80 }], rules: [rule('/only', 'api')] }, { name: 'z' }),
    ]);
    expect(found.server).toBe('own');
    const table = parseTable(JSON.stringify(found.table));
    expect(table).toMatchObject({ certificates: [{ hosts: [OWN] }], secure: [OWN] });
    const upstream = (authority: string, target: string, secure: boolean): unknown => {
      const answer = routeOf(table, { authority, target, secure });
      return answer.kind === 'found' ? answer.upstream : answer;
    };
    expect(upstream(OWN, '/only', true)).toBe(WEB);
    expect(upstream(OWN, '/only', false)).toBe(API);
    expect(upstream('any.example.org', '/only', false)).toBe(API);
    expect(upstream('any.example.org', '/', true)).toMatchObject({ status: 421 });
  });

  it.each<[string, object, object, string]>([
    ['a missing Secret', { name: 'none' }, { reason: 'InvalidCertificateRef' }, 'does not exist'],
    [
      'a Secret that may not be read',
      { name: 'secret' },
      { reason: 'InvalidCertificateRef' },
      'grant it get',
    ],
    [
      'a Secret of another namespace',
      { name: 'own', namespace: 'x' },
      { reason: 'RefNotPermitted' },
      'ReferenceGrants',
    ],
    ['something else', { name: 'own', kind: 'ConfigMap' }, { reason: 'InvalidCertificateRef' }, 'ConfigMap'],
  ])('serves nothing at a listener with %s', (_what, ref, verdict, text) => {
    const gateway = gatewayWith({ ...TLS, tls: { certificateRefs: [ref] } });
    const found = plan(gateway, [routeWith({ rules: [rule('/')] })]);
    expect(found.listeners[0]).toMatchObject({ refs: verdict, certificate: undefined });
    expect(found.listeners[0]?.unserved).toContain(text);
    expect(found.config).toEqual({ TCP: {} });
    expect(found.table).toMatchObject({ certificates: [], secure: [], hosts: [] });
  });

  it('says that a certificate is for another name, and serves it', () => {
    const [listener] = plan(gatewayWith({ ...TLS, hostname: 'else.example.org' }), []).listeners;
    expect(listener).toMatchObject({ refs: { ready: true }, unserved: undefined });
    expect(listener?.refs.message).toContain('is not for else.example.org');
  });
});

describe('a listener', () => {
  it.each<[string, object, string, string]>([
    ['another protocol', { protocol: 'TLS', port: 443 }, 'UnsupportedProtocol', 'protocol'],
    ['another port', { port: 8080 }, 'PortUnavailable', 'port'],
    ['passed-through TLS', { ...HTTPS, tls: { mode: 'Passthrough' } }, 'UnsupportedValue', 'tls.mode'],
    [
      'checked clients',
      { ...HTTPS, tls: { frontendValidation: {} } },
      'UnsupportedValue',
      'tls.frontendValidation',
    ],
    [
      'two certificates',
      { ...TLS, tls: { certificateRefs: [{ name: 'own' }, { name: 'b' }] } },
      'UnsupportedValue',
      'tls.certificateRefs',
    ],
    [
      'selected namespaces',
      { allowedRoutes: { namespaces: { from: 'Selector' } } },
      'UnsupportedValue',
      'allowedRoutes.namespaces.from',
    ],
  ])('with %s is not served, and says so', (_what, listener, reason, field) => {
    const { accepted } = plan(gatewayWith({ ...HTTP, ...listener }), []).listeners[0]!;
    expect(accepted).toMatchObject({ ready: false, reason });
    expect(accepted.message).toContain(`spec.listeners[0].${field}: `);
  });

  it('for other kinds of routes as well serves HTTPRoutes', () => {
    const kinds = [{ kind: 'GRPCRoute' }, { kind: 'HTTPRoute' }];
    const [listener] = plan(gatewayWith({ ...HTTP, allowedRoutes: { kinds } }), []).listeners;
    expect(listener).toMatchObject({
      refs: { ready: false, reason: 'InvalidRouteKinds' },
      allowsHttpRoutes: true,
      unserved: undefined,
    });
  });
});

describe('a route', () => {
  it.each<[string, object, object, string]>([
    [
      'a listener that is not there',
      HTTP,
      { parentRefs: [{ name: 'edge', sectionName: 'x' }] },
      'NoMatchingParent',
    ],
    ['a port that nobody has', HTTP, { parentRefs: [{ name: 'edge', port: 81 }] }, 'NoMatchingParent'],
    [
      'another namespace',
      HTTP,
      { parentRefs: [{ name: 'edge', namespace: 'prod' }] },
      'NotAllowedByListeners',
    ],
    [
      'a listener for other kinds',
      { ...HTTP, allowedRoutes: { kinds: [{ kind: 'GRPCRoute' }] } },
      {},
      'NotAllowedByListeners',
    ],
    [
      'another host',
      { ...HTTP, hostname: '*.a.example' },
      { hostnames: ['a.example'] },
      'NoMatchingListenerHostname',
    ],
  ])('with %s is not attached', (what, listener, spec, reason) => {
    const metadata = what === 'another namespace' ? { namespace: 'dev' } : {};
    const found = parent(gatewayWith(listener), routeWith({ rules: [rule('/')], ...spec }, metadata));
    expect(found).toMatchObject({ accepted: { ready: false, reason }, at: [] });
  });

  it('of another namespace is attached where all are let in', () => {
    const gateway = gatewayWith({ ...HTTP, allowedRoutes: { namespaces: { from: 'All' } } });
    const parentRefs = [{ name: 'edge', namespace: 'prod' }];
    const route = routeWith({ parentRefs, rules: [rule('/')] }, { namespace: 'dev' });
    expect(parent(gateway, route).accepted.ready).toBe(true);
  });

  it.each<[string, object, string]>([
    ['a method', { matches: [{ method: 'GET' }] }, 'matches[0].method'],
    ['a header', { matches: [{ headers: [{ name: 'a', value: 'b' }] }] }, 'matches[0].headers'],
    ['a query', { matches: [{ queryParams: [{ name: 'a', value: 'b' }] }] }, 'matches[0].queryParams'],
    [
      'an expression',
      { matches: [{ path: { type: 'RegularExpression', value: '/.*' } }] },
      'matches[0].path.type',
    ],
    ['two slashes', { matches: [{ path: { type: 'PathPrefix', value: '//' } }] }, 'matches[0].path.value'],
    ['a timeout', { timeouts: { request: '1s' } }, 'timeouts'],
    ['another filter', { filters: [{ type: 'URLRewrite' }] }, 'filters[0].type'],
    [
      'another redirect',
      { backendRefs: [], filters: [{ type: 'RequestRedirect', requestRedirect: { hostname: 'x' } }] },
      'filters[0].requestRedirect.hostname',
    ],
    [
      'a redirect to HTTP',
      { backendRefs: [], filters: [{ type: 'RequestRedirect', requestRedirect: { scheme: 'http' } }] },
      'filters[0].requestRedirect.scheme',
    ],
    [
      'a filter of a backend',
      { backendRefs: [{ name: 'web', port: 80, filters: [] }] },
      'backendRefs[0].filters',
    ],
    [
      'two backends',
      {
        backendRefs: [
          { name: 'web', port: 80 },
          { name: 'api', port: 80 },
        ],
      },
      'backendRefs[1]',
    ],
    ['no weight', { backendRefs: [{ name: 'web', port: 80, weight: 0 }] }, 'backendRefs[0].weight'],
  ])('with %s in a rule says so, and goes without the rule', (_what, more, field) => {
    const bad = { backendRefs: [{ name: 'web', port: 80 }], ...more };
    const alone = parent(gatewayWith(HTTP), routeWith({ rules: [bad] }));
    expect(alone.accepted).toMatchObject({ ready: false, reason: 'UnsupportedValue' });
    expect(alone.accepted.message).toContain(`spec.rules[0].${field}: `);
    const beside = plan(gatewayWith(HTTP), [routeWith({ rules: [rule('/', 'api'), bad] })]);
    expect(beside.routes[0]?.parents[0]).toMatchObject({ accepted: { ready: true } });
    expect(beside.routes[0]?.parents[0]?.partial).toMatch(/^Dropped Rule\(s\): spec\.rules\[1\]\./);
    expect(handlers(beside, 'edge.lab.ts.net:80')).toEqual({ '/': { Proxy: `${API}/` } });
  });

  it.each<[string, object, string]>([
    ['is missing', { name: 'none', port: 80 }, 'BackendNotFound'],
    ['has no such port', { name: 'web', port: 81 }, 'BackendNotFound'],
    ['is in another namespace', { name: 'web', namespace: 'x', port: 80 }, 'RefNotPermitted'],
    ['is none', { group: 'x.example', kind: 'Bucket', name: 'web' }, 'InvalidKind'],
  ])('whose Service %s refuses its requests, and leads them nowhere else', (_what, backend, reason) => {
    const rules = [rule('/', 'api'), { matches: [{ path: { value: '/a' } }], backendRefs: [backend] }];
    const found = plan(gatewayWith(HTTP), [routeWith({ rules })]);
    expect(found.routes[0]?.parents[0]).toMatchObject({
      accepted: { ready: true },
      refs: { ready: false, reason },
    });
    expect(found.routes[0]?.parents[0]?.refs.message).toContain('spec.rules[1].backendRefs[0]');
    expect(handlers(found, 'edge.lab.ts.net:80')).toEqual({
      '/': { Proxy: `${API}/` },
      '/a': { Path: '/nonexistent' },
    });
    const own = plan(gatewayWith(TLS), [routeWith({ rules })]);
    const wish = { authority: OWN, target: '/a/b', secure: true };
    expect(routeOf(parseTable(JSON.stringify(own.table)), wish)).toMatchObject({ status: 500 });
  });

  it('with something that tailscaled cannot tell apart brings a server of ours', () => {
    const rules = [rule('/a/', 'web', 'Exact')];
    expect(plan(gatewayWith(HTTP), [routeWith({ rules })]).server).toBe('own');
    expect(
      plan(gatewayWith({ ...HTTP, hostname: '*.example.org' }), [routeWith({ rules: [rule('/')] })]).server,
    ).toBe('own');
    expect(plan(gatewayWith(HTTP), [routeWith({ rules: [rule('/a/')] })]).server).toBe('tailscaled');
    const beside = parent(gatewayWith(HTTP, HTTPS), routeWith({ rules }));
    expect(beside.accepted).toMatchObject({ ready: false, reason: 'UnsupportedValue' });
    const wild = parent(
      gatewayWith(HTTP, HTTPS),
      routeWith({ hostnames: ['*.example.org'], rules: [rule('/')] }),
    );
    expect(wild.accepted.reason).toBe('NoMatchingListenerHostname');
  });

  it('is left out when there are too many, the youngest first', () => {
    const routes = Array.from({ length: 400 }, (_, index) =>
      routeWith(
        { hostnames: [`h${index}.example.org`], rules: [rule(`/${'x'.repeat(1000)}`)] },
        { name: `r${index}`, creationTimestamp: new Date(Date.UTC(2026, 0, 1, 0, index)).toISOString() },
      ),
    );
    const found = plan(gatewayWith(HTTP), routes.toReversed());
    const reasons = found.routes.map(({ parents }) => parents[0]?.accepted.reason);
    const first = reasons.indexOf('TooManyRoutes');
    expect(first).toBeGreaterThan(100);
    expect(new Set(reasons.slice(first))).toEqual(new Set(['TooManyRoutes']));
    expect(JSON.stringify(found.config).length).toBeLessThan(400_000);
  });

  it('of others that are for all hosts counts once for each host', () => {
    const all = routeWith({ rules: [rule(`/${'x'.repeat(1000)}`)] });
    const hosts = Array.from({ length: 400 }, (_, index) =>
      routeWith({ hostnames: [`h${index}.example.org`], rules: [rule('/y')] }, { name: `r${index}` }),
    );
    for (const routes of [
      [all, ...hosts],
      [...hosts, all],
    ])
      expect(JSON.stringify(plan(gatewayWith(HTTP), routes).config).length).toBeLessThan(400_000);
  });
});

interface Claim {
  readonly host: string;
  readonly path: string;
  readonly isExact: boolean;
  readonly service: string;
}

/**
 * Returns the expected backend. The Gateway API defines this precedence: exact host, longest host, exact path, longest
 * prefix, oldest route.
 */
function expected(claims: readonly Claim[], host: string, path: string): string | undefined {
  const fits = claims.filter((claim) => {
    const below = claim.path === '/' || path === claim.path || path.startsWith(`${claim.path}/`);
    return coversHost(claim.host, host) && (claim.isExact ? claim.path === path : below);
  });
  const [first] = fits.toSorted(
    (a, b) =>
      Number(b.host === host) - Number(a.host === host) ||
      b.host.length - a.host.length ||
      Number(b.isExact) - Number(a.isExact) ||
      b.path.length - a.path.length ||
      claims.indexOf(a) - claims.indexOf(b),
  );
  return first?.service;
}

describe('requests', () => {
  const hosts = ['', '*.example.org', '*.b.example.org', 'a.example.org', 'a.b.example.org'];
  const paths = ['/', '/a', '/a/b', '/b', '/a/b/c'];
  const claim = fc.record({
    host: fc.constantFrom(...hosts),
    path: fc.constantFrom(...paths),
    isExact: fc.boolean(),
    service: fc.constantFrom('web', 'api', 'other'),
  });
  const names: Readonly<Record<string, string>> = { '1': 'web', '2': 'api', '3': 'other' };

  it('go where the Gateway API says, whatever hosts and paths there are', () => {
    fc.assert(
      fc.property(fc.array(claim, { minLength: 1, maxLength: 12 }), (claims) => {
        const routes = claims.map(({ host, path, isExact, service }, index) =>
          routeWith(
            {
              hostnames: host === '' ? [] : [host],
              rules: [rule(path, service, isExact ? 'Exact' : 'PathPrefix')],
            },
            { name: `r${String(index).padStart(2, '0')}` },
          ),
        );
        // A wildcard requires `tailcast ingress`.
        const wild = routeWith({ hostnames: ['*.none.example'], rules: [rule('/')] }, { name: 'z' });
        const table = parseTable(JSON.stringify(plan(gatewayWith(HTTP), [...routes, wild]).table));
        for (const authority of [
          'other.org',
          'a.example.org',
          'c.example.org',
          'a.b.example.org',
          'x.y.b.example.org',
        ]) {
          for (const target of [...paths, '/c', '/a/x', '/a/b/x']) {
            const found = routeOf(table, { authority, target, secure: false });
            const service =
              found.kind === 'found' ? names[/\.(\d):80$/.exec(found.upstream)?.[1] ?? ''] : undefined;
            expect([authority, target, service]).toEqual([
              authority,
              target,
              expected(claims, authority, target),
            ]);
          }
        }
      }),
    );
  });
});
