import { beforeAll, describe, expect, it } from 'vitest';
import { parseIngress } from '../../../src/operator/ingress/resource.ts';
import { ingressRoutesOf } from '../../../src/operator/ingress/routes.ts';
import { planTable, type TablePlan, type TlsSecret } from '../../../src/operator/ingress/table.ts';
import { createTestAuthority, type TestAuthority } from '../../support/issued-certificates.ts';

const NOW = Date.now();
const HOST = 'shop.example.org';
const PORTS = [{ port: 80 }, { port: 81, name: 'rpc', appProtocol: 'kubernetes.io/h2c' }, { port: 443 }];
const SERVICES = new Map([
  [
    'web',
    {
      apiVersion: 'v1',
      kind: 'Service',
      metadata: { name: 'web', uid: 'web' },
      spec: { clusterIP: '10.96.0.1', ports: PORTS },
    },
  ],
]);
const to = (port: object): object => ({ service: { name: 'web', port } });
const path = (value: string, pathType: string, port: object = { number: 80 }): object => ({
  path: value,
  pathType,
  backend: to(port),
});

let authority: TestAuthority;
beforeAll(async () => {
  authority = await createTestAuthority(NOW);
});

function secretOf(crt: string, key: string): TlsSecret {
  const data = {
    'tls.crt': Buffer.from(crt).toString('base64'),
    'tls.key': Buffer.from(key).toString('base64'),
  };
  return { apiVersion: 'v1', kind: 'Secret', metadata: { name: 'own' }, data };
}
async function issued(names: readonly string[], nowMs = NOW): Promise<TlsSecret> {
  const { certificatePem, keyPem } = await authority.issue(names, { nowMs });
  return secretOf(certificatePem, keyPem);
}
function plan(
  spec: object,
  secrets: Readonly<Record<string, TlsSecret>>,
  annotations = {},
): TablePlan & { readonly said: string } {
  const whole = { tls: [{ hosts: [HOST], secretName: 'own' }], defaultBackend: to({ number: 80 }), ...spec };
  const ingress = parseIngress({
    metadata: { name: 'x', namespace: 'prod', uid: 'u', annotations },
    spec: whole,
  });
  const { hosts, problems } = ingressRoutesOf(ingress, SERVICES, 'own');
  const made = planTable(ingress, hosts, 'shop.lab.ts.net', new Map(Object.entries(secrets)), NOW);
  return {
    ...made,
    said: [...problems, ...made.problems].map(({ reason, message }) => `${reason}: ${message}`).join(),
  };
}

describe('the table of an Ingress', () => {
  it('has what tailscaled cannot tell apart: wildcards, exact paths with a slash, HTTP/2 behind', async () => {
    const paths = [
      path('/a/', 'Exact'),
      path('/rpc', 'Prefix', { name: 'rpc' }),
      path('/s', 'Prefix', { number: 443 }),
    ];
    const { table, said } = plan(
      {
        tls: [{ hosts: ['*.example.org'], secretName: 'own' }],
        rules: [{ host: '*.Example.org', http: { paths } }],
      },
      { own: await issued(['*.example.org']) },
    );
    expect(said).toBe('');
    expect(table.hosts).toContainEqual({
      name: '*.example.org',
      prefixes: [
        ['/rpc', 'h2c://10.96.0.1:81'],
        ['/s', 'https+insecure://10.96.0.1:443'],
        ['/', 'http://10.96.0.1:80'],
      ],
      exact: [['/a/', 'http://10.96.0.1:80']],
    });
  });

  it('knows the node by its first label and by its whole name', async () => {
    const { table } = plan(
      { tls: [{ hosts: ['shop'], secretName: 'own' }] },
      { own: await issued(['shop']) },
    );
    expect(table.secure).toEqual(['shop', 'shop.lab.ts.net']);
  });

  it('serves by HTTP what a rule names and no certificate is named for', async () => {
    const rules = [{ host: 'plain.example.org', http: { paths: [path('/', 'Prefix')] } }];
    const own = await issued([HOST]);
    expect(plan({ rules }, { own }).ports).toEqual([443, 80]);
    expect(plan({}, { own }).ports).toEqual([443]);
    const all = [{ hosts: [], secretName: 'own' }];
    expect(plan({ rules, tls: all }, { own }).ports).toEqual([443]);
  });

  it('leaves the others alone where one Secret cannot be used', async () => {
    const tls = [
      { hosts: ['bad.example.org'], secretName: 'bad' },
      { hosts: [HOST], secretName: 'own' },
    ];
    const { table, said } = plan({ tls }, { own: await issued([HOST]), bad: 'missing' });
    expect(said).toContain('spec.tls[0].secretName: Secret "bad" does not exist');
    expect(table.certificates.map(({ hosts }) => hosts)).toEqual([[HOST]]);
    expect(table.secure).toEqual(['bad.example.org', HOST]);
  });

  it.each([
    [
      'is not readable',
      () => Promise.resolve<TlsSecret>('forbidden'),
      /may not read Secret "own": grant it get/,
    ],
    ['is empty', () => Promise.resolve(secretOf('', '')), /no tls\.crt or no tls\.key/],
    ['is no PEM', () => Promise.resolve(secretOf('x', 'y')), /cannot be read as PEM/],
    [
      'is no pair',
      async () =>
        secretOf((await authority.issue([HOST])).certificatePem, (await authority.issue([HOST])).keyPem),
      /is not that of the first certificate/,
    ],
  ])('says with its field that a Secret %s, and serves nothing with it', async (_what, secret, said) => {
    const made = plan({}, { own: await secret() });
    expect(made.said).toMatch(said);
    expect(made.said).toMatch(/^InvalidTLSSecret: spec\.tls\[0\]\.secretName: /);
    expect(made.table.certificates).toEqual([]);
    expect(made.ports).toEqual([]);
  });

  it('says what clients will not like, and leaves it to them', async () => {
    const expired = plan({}, { own: await issued([HOST], NOW - 91 * 86_400_000) });
    expect(expired.said).toMatch(/has expired .*: renew it/);
    const foreign = plan({}, { own: await issued(['other.example.org']) });
    expect(foreign.said).toContain(`is not for ${HOST}`);
    for (const { table } of [expired, foreign]) expect(table.certificates).toHaveLength(1);
  });

  it('takes no Funnel', async () => {
    const { said } = plan({}, { own: await issued([HOST]) }, { 'tailscale.com/funnel': 'true' });
    expect(said).toContain('FunnelNotServed: tailscale.com/funnel');
  });
});
