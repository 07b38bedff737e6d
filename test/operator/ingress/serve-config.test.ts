import { describe, expect, it } from 'vitest';
import type { KubeObject } from '../../../src/operator/kube-object.ts';
import { hostnameOf, parseIngress } from '../../../src/operator/ingress/resource.ts';
import { ingressRoutesOf } from '../../../src/operator/ingress/routes.ts';
import { planServe, type ServePlan, type ServingNode } from '../../../src/operator/ingress/serve-config.ts';

const service = (name: string, clusterIP: string, ports: object[] = [{ port: 80 }]): [string, KubeObject] => [
  name,
  { apiVersion: 'v1', kind: 'Service', metadata: { name, uid: name }, spec: { clusterIP, ports } },
];
const SERVICES = new Map([
  service('web', '10.96.0.1'),
  service('api', '10.96.0.2', [{ port: 8080, name: 'grpc' }, { port: 443 }]),
  service('six', 'fd96::1'),
  service('none', 'None'),
]);
const to = (name: string, port: object = { number: 80 }): object => ({ service: { name, port } });
const path = (value: string, pathType: string, backend: object): object => ({
  path: value,
  pathType,
  backend,
});
const rule = (...paths: object[]): object => ({ http: { paths } });
const WEB = to('web');
const API = to('api', { name: 'grpc' });
const CERTIFIED: ServingNode = {
  dnsName: 'shop.lab.ts.net',
  addresses: ['100.64.0.9', 'fd7a::9'],
  hasCertificate: true,
};
const PLAIN: ServingNode = { ...CERTIFIED, hasCertificate: false };
const KEY = '${TS_CERT_DOMAIN}:443';

function plan(spec: object, node = CERTIFIED, choices: object = {}) {
  const ingress = parseIngress({ metadata: { name: 'shop', namespace: 'prod', uid: 'u' }, spec });
  const { hosts, problems } = ingressRoutesOf(ingress, SERVICES);
  const made = planServe(hosts, node, { hostname: 'shop', redirect: false, funnel: false, ...choices });
  return {
    ...made,
    problems: [...problems, ...made.problems].map(({ reason, message }) => `${reason}: ${message}`),
  };
}
/**
 * Returns the response to a path, as `getServeHandler` and the HTTP proxy of tailscaled (ipn/ipnlocal/serve.go) would
 * create it.
 */
function answer({ config }: Pick<ServePlan, 'config'>, key: string, asked: string): string {
  const handlers = new Map(Object.entries(config.Web?.[key]?.Handlers ?? {}));
  const serve = (mount: string): string => {
    const { Proxy: target, Path: file } = handlers.get(mount)!;
    if (target === undefined) return String(file);
    const { origin, pathname } = new URL(target);
    const rest = asked === '/' ? '/' : asked.slice(mount.replace(/\/$/, '').length);
    return rest === ''
      ? `${origin}${pathname}`
      : `${origin}${pathname.replace(/\/$/, '')}/${rest.replace(/^\//, '')}`;
  };
  if (handlers.has(asked)) return serve(asked);
  for (let at = asked.replace(/\/$/, '') || '/'; ; at = at.slice(0, at.lastIndexOf('/')) || '/') {
    const slashed = at === '/' ? '//' : `${at}/`;
    if (handlers.has(slashed)) return serve(slashed);
    if (handlers.has(at)) return serve(at);
    if (at === '/') return 'none';
  }
}

describe('what tailscaled is told', () => {
  const RULES = {
    defaultBackend: WEB,
    rules: [
      rule(
        path('/api/', 'Prefix', API),
        path('/api/v2', 'ImplementationSpecific', WEB),
        path('/api', 'Exact', to('six')),
        path('/login', 'Exact', API),
      ),
    ],
  };

  it.each([
    ['/', 'http://10.96.0.1:80/'],
    ['/page', 'http://10.96.0.1:80/page'],
    ['/api', 'http://[fd96::1]:80/api'],
    ['/api/', 'http://10.96.0.2:8080/api/'],
    ['/api/v1', 'http://10.96.0.2:8080/api/v1'],
    ['/api/v2', 'http://10.96.0.1:80/api/v2'],
    ['/api/v2/x', 'http://10.96.0.1:80/api/v2/x'],
    ['/apis', 'http://10.96.0.1:80/apis'],
    ['/login', 'http://10.96.0.2:8080/login'],
    ['/login/', 'http://10.96.0.1:80/login/'],
    ['/login/x', 'http://10.96.0.1:80/login/x'],
  ])('leads %s to %s', (asked, wanted) => {
    expect(answer(plan(RULES), KEY, asked)).toBe(new URL(wanted).href);
  });

  it('answers 404 below an exact path where nothing else leads', () => {
    const made = plan({ rules: [rule(path('/login', 'Exact', WEB))] });
    expect(['/login', '/login/x', '/'].map((asked) => answer(made, KEY, asked))).toEqual([
      'http://10.96.0.1/login',
      '/nonexistent',
      'none',
    ]);
  });

  it('is HTTPS where there is a certificate, and port 80 leads there on request', () => {
    expect(plan({ defaultBackend: WEB })).toEqual({
      config: {
        TCP: { '443': { HTTPS: true } },
        Web: { [KEY]: { Handlers: { '/': { Proxy: 'http://10.96.0.1:80/' } } } },
      },
      ports: [443],
      problems: [],
    });
    const { config, ports } = plan({ defaultBackend: WEB }, CERTIFIED, { redirect: true, funnel: true });
    expect(ports).toEqual([443, 80]);
    expect(config).toMatchObject({
      TCP: { '80': { HTTP: true } },
      Web: {
        '${TS_CERT_DOMAIN}:80': { Handlers: { '/': { Redirect: '301:https://${HOST}${REQUEST_URI}' } } },
      },
      AllowFunnel: { [KEY]: true },
    });
  });

  it('is HTTP where there is none, under every name by which it can be asked for', () => {
    const rules = [
      { host: 'Shop.lab.ts.net', ...rule(path('/a', 'Prefix', API)) },
      { host: 'own.example.org', ...rule(path('/b', 'Prefix', API)) },
      { host: 'other.lab.ts.net' },
    ];
    const { config, ports, problems } = plan({ defaultBackend: WEB, rules }, PLAIN);
    expect({ ports, problems }).toEqual({ ports: [80], problems: [] });
    expect(Object.keys(config.Web ?? {})).toEqual(
      ['shop', '100.64.0.9', 'own.example.org', 'other'].map((name) => `${name}.lab.ts.net:80`),
    );
    expect(answer({ config }, 'shop.lab.ts.net:80', '/a')).toBe('http://10.96.0.2:8080/a');
    expect(answer({ config }, 'own.example.org.lab.ts.net:80', '/a')).toBe('http://10.96.0.1/a');
    expect(answer({ config }, 'own.example.org.lab.ts.net:80', '/b')).toBe('http://10.96.0.2:8080/b');
  });

  it('is nothing before the node has a name, and when no backend is left', () => {
    expect(plan({ defaultBackend: WEB }, { ...PLAIN, dnsName: undefined })).toMatchObject({
      config: {},
      ports: [],
    });
    for (const node of [CERTIFIED, PLAIN])
      expect(plan({ defaultBackend: to('gone') }, node)).toMatchObject({ config: {}, ports: [] });
  });

  it('speaks HTTPS to a backend at port 443', () => {
    const { config } = plan({ defaultBackend: to('api', { number: 443 }) });
    expect(config.Web?.[KEY]?.Handlers['/']).toEqual({ Proxy: 'https+insecure://10.96.0.2:443/' });
  });
});

describe('what cannot be done', () => {
  it.each<[string, object, string]>([
    [
      'a Service that is missing',
      { defaultBackend: to('gone') },
      'InvalidIngressBackend: spec.defaultBackend: Service "gone" does not exist',
    ],
    [
      'a port that is missing',
      { defaultBackend: to('web', { name: 'grpc' }) },
      'Service "web" has no port grpc',
    ],
    ['a headless Service', { defaultBackend: to('none') }, 'Service "none" has no clusterIP'],
    ['another resource', { defaultBackend: { resource: { kind: 'Bucket', name: 'b' } } }, 'names no Service'],
    [
      'a path that is not said',
      { rules: [rule({ backend: WEB })] },
      'PathUndefined: spec.rules[0].http.paths[0].path',
    ],
    [
      'an exact path with a slash',
      { rules: [rule(path('/a/', 'Exact', WEB))] },
      'UnsupportedPath: spec.rules[0].http.paths[0].path: tailscaled cannot distinguish /a/',
    ],
    [
      'a wildcard',
      { rules: [{ host: '*.example.org', ...rule(path('/', 'Prefix', WEB)) }] },
      'UnsupportedHost: spec.rules[0].host',
    ],
    [
      'a host without a certificate',
      { rules: [{ host: 'own.example.org', ...rule(path('/', 'Prefix', WEB)) }] },
      'gives no certificate for own.example.org',
    ],
  ])('is said with its field: %s', (_what, spec, message) => {
    expect(plan(spec).problems.join('\n')).toContain(message);
  });
});

it('a node is called as HTTPS is asked for, or by where its Ingress is', () => {
  const of = (spec: object, name = 'shop'): string =>
    hostnameOf(parseIngress({ metadata: { name, namespace: 'prod', uid: 'u' }, spec }));
  expect(of({ tls: [{ hosts: ['Web.example.org'] }] })).toBe('web');
  expect(of({ tls: [{ hosts: ['*.example.org'] }] })).toBe('prod-shop-ingress');
  expect(of({})).toBe('prod-shop-ingress');
  expect(of({}, 'a'.repeat(63)).length).toBeLessThanOrEqual(63);
});
