import { readFileSync } from 'node:fs';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { parseAllDocuments } from 'yaml';
import { apiServerChecks } from '../../src/doctor/api-server-checks.ts';
import { once, runChecks, type CheckFinding } from '../../src/doctor/checks.ts';
import { createClusterView } from '../../src/doctor/operator/cluster-view.ts';
import { controlChecks } from '../../src/doctor/operator/control.ts';
import { leaderCheck } from '../../src/doctor/operator/leading.ts';
import { leftoverChecks } from '../../src/doctor/operator/leftovers.ts';
import { parentChecks } from '../../src/doctor/operator/parents.ts';
import { resourcesCheck } from '../../src/doctor/operator/resources.ts';
import { rightsCheck, rightsFor, type OperatorUses } from '../../src/doctor/operator/rights.ts';
import { KINDS } from '../../src/operator/kube-object.ts';
import { parentLabels } from '../../src/operator/workload/workload.ts';
import { MACHINE, OWN, createBench, type Bench } from '../operator/bench.ts';
import { startApiServerDouble, type Access, type ApiServerDouble } from '../support/api-server-double.ts';

const ALL: OperatorUses = {
  proxyGroups: true,
  services: true,
  ingresses: true,
  gateways: false,
  connectors: true,
  dnsConfigs: true,
  leaderElection: true,
};
const NAMESPACE = 'tailcast';
const NOW = Date.UTC(2026, 10, 23, 22);
const ago = (seconds: number): string => new Date(NOW - seconds * 1000).toISOString();
const LEASE = `/apis/coordination.k8s.io/v1/namespaces/${NAMESPACE}/leases/tailcast-operator`;
const KINDS_SERVED = [
  'recorders',
  'tailnets',
  'proxygroups',
  'proxygrouppolicies',
  'connectors',
  'proxyclasses',
  'dnsconfigs',
];

let bench: Bench;
let reviews: ApiServerDouble;

beforeEach(async () => {
  bench = await createBench();
  reviews = await startApiServerDouble();
  reviews.resources = KINDS_SERVED.flatMap((plural) => [plural, `${plural}/status`]);
  reviews.allowed = () => true;
  reviews.rules = [{ verbs: ['*'], apiGroups: ['*'], resources: ['*'] }];
  reviews.username = 'system:serviceaccount:tailcast:tailcast-operator';
  lease({});
});
afterEach(async () => {
  await Promise.all([bench.close(), reviews.close()]);
});

function lease(spec: object): void {
  bench.put(
    KINDS.lease,
    { name: 'tailcast-operator', namespace: NAMESPACE },
    {
      holderIdentity: 'operator-7d-x_a-b-c',
      leaseDurationSeconds: 15,
      renewTime: ago(3),
      acquireTime: ago(3600),
      leaseTransitions: 4,
      ...spec,
    },
  );
}

async function examine(
  uses: OperatorUses = ALL,
  more: { readonly defaultClass?: string } = {},
): Promise<Record<string, CheckFinding>> {
  const api = apiServerChecks({ open: () => Promise.resolve(reviews.apiServer), unixMs: Date.now });
  const { client } = bench.deps();
  const { control, signal } = bench;
  const namespace = NAMESPACE;
  const view = createClusterView({ client, namespace, uses, servesUnclassed: false });
  const nodes = once(() => control.allDevices());
  const unixMs = (): number => NOW;
  const findings = await runChecks(
    [
      ...api.checks,
      resourcesCheck(uses, api.client),
      rightsCheck({ uses, namespace, client: api.client }),
      ...controlChecks({ control, defaultTags: ['tag:k8s'], proxyGroups: uses.proxyGroups, nodes }),
      leaderCheck({ view, namespace, unixMs, lease: uses.leaderElection ? 'tailcast-operator' : undefined }),
      ...parentChecks({ view, namespace, defaultClass: more.defaultClass ?? '', unixMs }),
      ...leftoverChecks({ view, namespace, defaultTags: ['tag:k8s'], nodes }),
    ],
    signal,
  );
  return Object.fromEntries(findings.map((finding) => [finding.id, finding]));
}

const condition = (type: string, status: string, reason: string, message = reason, since = 3600): object => ({
  type,
  status,
  reason,
  message,
  lastTransitionTime: ago(since),
  observedGeneration: 1,
});

function service(name: string, conditions: readonly object[], metadata: object = {}): void {
  bench.put(
    KINDS.service,
    {
      name,
      namespace: 'prod',
      annotations: { 'tailscale.com/expose': 'true' },
      finalizers: ['tailscale.com/finalizer'],
      creationTimestamp: ago(7200),
      ...metadata,
    },
    { ports: [{ port: 80 }] },
    { conditions },
  );
}

function secret(name: string, parent: string, data: Readonly<Record<string, string>> = {}): void {
  const encoded = Object.entries(data).map(([key, value]) => [key, Buffer.from(value).toString('base64')]);
  bench.api.put(`${OWN}/secrets/${name}`, {
    apiVersion: 'v1',
    kind: 'Secret',
    metadata: {
      name,
      namespace: NAMESPACE,
      labels: parentLabels({ type: 'svc', namespace: 'prod', name: parent }),
    },
    data: Object.fromEntries(encoded) as object,
  });
}

describe('the doctor of an operator', () => {
  it('finds nothing to complain about where all is well', async () => {
    service('web', [condition('TailscaleProxyReady', 'True', 'ProxyCreated')]);
    secret('ts-web-0', 'web', { device_id: 'n1' });
    bench.control.devices.set('n1', { hostname: 'prod-web', addresses: [] });
    bench.control.tags.set('n1', ['tag:k8s']);
    const findings = await examine();
    expect(Object.values(findings).map(({ id, status }) => `${id} ${status}`)).toEqual([
      'api-server ok',
      'credential ok',
      'clock ok',
      'resources ok',
      'rights ok',
      'control ok',
      'auth-keys ok',
      'tailnet-services ok',
      'leader ok',
      'proxy-classes skipped',
      'recorders skipped',
      'tailnets skipped',
      'proxy-groups skipped',
      'connectors skipped',
      'dns-configs skipped',
      'services ok',
      'gateways skipped',
      'ingresses skipped',
      'left-objects ok',
      'left-nodes ok',
    ]);
  });

  describe('of the kinds of resources', () => {
    it('misses those that are switched on, and no others', async () => {
      reviews.resources = [
        'recorders',
        'recorders/status',
        'proxyclasses',
        'proxyclasses/status',
        'tailnets',
        'tailnets/status',
      ];
      expect((await examine())['resources']).toMatchObject({
        status: 'failed',
        summary: 'not served: proxygroups, proxygrouppolicies, connectors, dnsconfigs',
        remedy: expect.stringContaining('deploy/crds'),
      });
      const fewer = { ...ALL, proxyGroups: false, connectors: false, dnsConfigs: false };
      expect((await examine(fewer))['resources']?.status).toBe('ok');
    });

    it('sees that the group, or a status, is not served', async () => {
      reviews.resources = KINDS_SERVED.flatMap((plural) => [plural, `${plural}/status`]).slice(0, -1);
      expect((await examine())['resources']?.summary).toBe('served without status: dnsconfigs');
      reviews.resources = undefined;
      const findings = await examine();
      expect(findings['resources']?.summary).toBe('the API server does not serve tailscale.com');
      expect(findings['services']?.status).toBe('skipped');
    });
  });

  describe('of rights', () => {
    it('names the verbs that are missing, and where', async () => {
      reviews.rules = [];
      reviews.allowed = ({ verb, resource, subresource, namespace }: Access) =>
        !(resource === 'services' && subresource === 'status') &&
        !(resource === 'secrets' && verb === 'list' && namespace === NAMESPACE);
      expect((await examine())['rights']).toMatchObject({
        status: 'failed',
        summary: 'the account may not patch services/status in every namespace; list secrets in tailcast',
        remedy: expect.stringContaining('deploy/rbac/operator.yaml'),
      });
      const without = await examine({ ...ALL, services: false });
      expect(without['rights']?.summary).toBe('the account may not list secrets in tailcast');
    });

    it('asks once for a namespace where that is enough', async () => {
      await examine();
      const asked = reviews.requests.filter((request) => request.endsWith('selfsubjectaccessreviews'));
      const everywhere = rightsFor(ALL, NAMESPACE).filter(({ namespace }) => namespace === undefined);
      expect(asked).toHaveLength(everywhere.flatMap(({ verbs }) => verbs).length);
    });

    it('does not take the rights of a person for those of the operator', async () => {
      reviews.username = 'kubernetes-admin';
      expect((await examine())['rights']).toMatchObject({
        status: 'warning',
        remedy: expect.stringContaining('run doctor in its pod'),
      });
    });

    it('wants what deploy/rbac/operator.yaml gives, and nothing more', () => {
      const wanted = rightsFor(ALL, NAMESPACE).flatMap(({ namespace, group, resource, verbs }) =>
        verbs.map((verb) => `${verb} ${resource}.${group} in ${namespace ?? '*'}`),
      );
      const given = new Set(shippedRights());
      expect(wanted.filter((right) => !given.has(right))).toEqual([]);
      // The doctor does not check two rights. The operator does not use the right to impersonate, but grants it to
      // gateways. It needs the right to create tokens only for credentials with an audience.
      const other = /^impersonate |^create serviceaccounts\/token\. /;
      const more = [...given].filter((right) => !wanted.includes(right) && !other.test(right));
      expect(more).toEqual([]);
    });

    it('wants what deploy/rbac/operator-gateways.yaml gives besides for Gateways, and nothing more', () => {
      const uses = {
        ...ALL,
        services: false,
        ingresses: false,
        connectors: false,
        proxyGroups: false,
        dnsConfigs: false,
      };
      const everywhere = (one: OperatorUses): readonly string[] =>
        rightsFor(one, NAMESPACE)
          .filter(({ namespace, group }) => namespace === undefined && group !== 'tailscale.com')
          .flatMap(({ group, resource, verbs }) => verbs.map((verb) => `${verb} ${resource}.${group} in *`));
      expect(everywhere(uses)).toEqual([]);
      const wanted = new Set(everywhere({ ...uses, gateways: true }));
      expect(wanted).toEqual(new Set(shippedRights('operator-gateways')));
    });

    it.each([
      ['an operator of Ingresses alone', { services: false }, true],
      ['an operator of Services alone', { ingresses: false }, true],
      ['an operator of neither', { services: false, ingresses: false }, false],
      ['an operator without groups', { proxyGroups: false }, false],
    ])('wants what groups of nodes need: %s', (_, uses, isWanted) => {
      const named = rightsFor({ ...ALL, dnsConfigs: false, ...uses }, NAMESPACE).map(
        ({ resource }) => resource,
      );
      expect([named.includes('configmaps'), named.includes('pods/status')]).toEqual([true, isWanted]);
    });
  });

  describe('of Gateways', () => {
    const uses = { ...ALL, gateways: true };
    function gateway(
      name: string,
      conditions: readonly object[],
      spec: object = {},
      metadata: object = {},
    ): void {
      bench.put(
        KINDS.gateway,
        { name, namespace: 'prod', creationTimestamp: ago(7200), ...metadata },
        { gatewayClassName: 'tailscale', listeners: [], ...spec },
        { conditions },
      );
    }
    beforeEach(() => {
      reviews.gatewayResources = ['gatewayclasses', 'gateways', 'httproutes'];
      bench.put(KINDS.gatewayClass, { name: 'tailscale' }, { controllerName: 'tailcast.dev/gateway' });
    });

    it('says which of ours are not programmed, and why', async () => {
      gateway('good', [
        condition('Accepted', 'True', 'Accepted'),
        condition('Programmed', 'True', 'Programmed'),
      ]);
      gateway('foreign', [], { gatewayClassName: 'other' });
      expect((await examine(uses))['gateways']).toMatchObject({
        status: 'ok',
        summary: '1 ready',
      });
      gateway('bad', [
        condition('Accepted', 'True', 'Accepted'),
        condition('Programmed', 'False', 'AddressNotUsable'),
      ]);
      gateway('left', [], { gatewayClassName: 'other' }, { finalizers: ['tailscale.com/finalizer'] });
      const found = (await examine(uses))['gateways'];
      expect(found).toMatchObject({ status: 'failed' });
      expect(found?.summary).toContain('prod/bad: AddressNotUsable');
      expect(found?.summary).toContain('prod/left: not reconciled yet');
    });

    it('warns where their CRDs are missing, which stops nothing else', async () => {
      expect((await examine(uses))['resources']?.status).toBe('ok');
      reviews.gatewayResources = ['gateways'];
      expect((await examine(uses))['resources']).toMatchObject({
        status: 'warning',
        summary: 'gateway.networking.k8s.io/v1 is not served: gatewayclasses, httproutes',
      });
      reviews.gatewayResources = undefined;
      expect((await examine(uses))['resources']).toMatchObject({ status: 'warning' });
      expect((await examine())['resources']?.status).toBe('ok');
    });

    it('knows what was made for them', async () => {
      const labels = parentLabels({ type: 'gateway', namespace: 'prod', name: 'gone' });
      const metadata = { name: 'ts-gone-0', namespace: NAMESPACE, labels };
      bench.api.put(`${OWN}/secrets/ts-gone-0`, { apiVersion: 'v1', kind: 'Secret', metadata });
      expect((await examine(uses))['left-objects']?.summary).toContain('ts-gone-0');
    });
  });

  describe('of the control server', () => {
    it('makes a key with the tags that resources get, and takes it back', async () => {
      expect((await examine())['auth-keys']?.summary).toBe('a key with tag:k8s was created and removed');
      expect([...bench.control.keys.values()]).toMatchObject([{ tags: ['tag:k8s'], usable: false }]);
    });

    it('says what to do when it refuses', async () => {
      bench.control.broken = new Error('GET /node: 401 Unauthorized');
      const findings = await examine();
      expect(findings['control']).toMatchObject({
        status: 'failed',
        summary: 'GET /node: 401 Unauthorized',
        remedy: expect.stringContaining('--control-url'),
      });
      expect(findings['auth-keys']?.status).toBe('skipped');
      expect(findings['left-nodes']?.status).toBe('skipped');
    });

    it('does without Services where there are none', async () => {
      delete bench.control.services;
      expect((await examine())['tailnet-services']?.status).toBe('skipped');
    });
  });

  describe('of who leads', () => {
    it.each([
      ['has let go', { holderIdentity: '' }, 'no operator leads: the last one released the Lease'],
      ['has died', { renewTime: ago(120) }, 'has not renewed its Lease since'],
      ['never said when', { renewTime: '' }, 'has not renewed its Lease since'],
    ])('sees that the last one %s', async (_what, spec, summary) => {
      lease(spec);
      const { leader } = await examine();
      expect(leader).toMatchObject({ status: 'failed', summary: expect.stringContaining(summary) });
    });

    it('sees that there was never one, and asks for none where there is no election', async () => {
      bench.api.remove(LEASE);
      expect((await examine())['leader']?.summary).toContain('no operator has started yet');
      expect((await examine({ ...ALL, leaderElection: false }))['leader']?.status).toBe('skipped');
    });
  });

  describe('of what is not ready', () => {
    it('repeats what a Service says, and names what to do', async () => {
      service('web', [condition('TailscaleProxyReady', 'False', 'ProxyInvalid', 'hostname: not a label')]);
      expect((await examine())['services']).toMatchObject({
        status: 'failed',
        summary: 'prod/web: ProxyInvalid: hostname: not a label',
        remedy: 'kubectl -n prod describe service web shows the reason',
      });
    });

    it.each([
      [60, 'warning'],
      [600, 'failed'],
    ])('waits with what is under way: after %i s it is a %s', async (since, status) => {
      service('web', [condition('TailscaleProxyReady', 'False', 'ProxyPending', 'waiting: 0/1', since)]);
      expect((await examine())['services']).toMatchObject({
        status,
        summary: 'prod/web: ProxyPending: waiting: 0/1',
        remedy: expect.stringContaining('get pods -l tailscale.com/parent-resource=web'),
      });
    });

    it('sees what nobody has looked at, and what hangs in its deletion', async () => {
      service('new', []);
      service('old', [], { deletionTimestamp: ago(900) });
      const { services } = await examine();
      expect(services?.status).toBe('failed');
      expect(services?.summary).toBe(`prod/new: not reconciled yet; prod/old: in deletion since ${ago(900)}`);
    });

    it('sees a change that nobody has looked at', async () => {
      const conditions = [condition('ConnectorReady', 'True', 'ConnectorCreated')];
      bench.put(KINDS.connector, { name: 'lab' }, { exitNode: true }, { conditions });
      expect((await examine())['connectors']?.status).toBe('ok');
      bench.put(KINDS.connector, { name: 'lab' }, { exitNode: false });
      expect((await examine())['connectors']?.summary).toBe('lab: changed, and not reconciled since');
    });

    it('sees an Ingress that is shown nowhere', async () => {
      bench.put(KINDS.ingress, { name: 'shop', namespace: 'prod' }, { ingressClassName: 'tailscale' });
      expect((await examine())['ingresses']).toMatchObject({
        status: 'failed',
        remedy: 'kubectl -n prod describe ingress shop shows the reason',
      });
    });

    it('says what is wrong with a class, and that the default one is missing', async () => {
      bench.put(KINDS.proxyClass, { name: 'edge' }, { metrics: { serviceMonitor: { enable: true } } });
      expect((await examine())['proxy-classes']).toMatchObject({
        status: 'failed',
        summary: 'edge: spec.metrics.serviceMonitor.enable: needs spec.metrics.enable: true',
      });
      expect((await examine(ALL, { defaultClass: 'none' }))['proxy-classes']?.summary).toContain(
        'the default class none does not exist',
      );
    });

    it('leaves out what is switched off', async () => {
      service('web', []);
      expect((await examine({ ...ALL, services: false }))['services']?.summary).toBe('disabled');
    });
  });

  describe('of what is left', () => {
    it('names objects of a Service that is gone, or asks for nothing any more', async () => {
      service('plain', [], { finalizers: [], annotations: {} });
      secret('ts-gone-0', 'gone');
      secret('ts-plain-0', 'plain');
      const { 'left-objects': left } = await examine();
      expect(left).toMatchObject({
        status: 'warning',
        summary: '2: secret/ts-gone-0; secret/ts-plain-0',
        remedy: expect.stringContaining('kubectl -n tailcast delete secret/ts-gone-0 secret/ts-plain-0'),
      });
    });

    it('names nodes with our tags that no state knows', async () => {
      bench.control.devices.set('n9', { hostname: 'prod-ghost', addresses: [] });
      bench.control.tags.set('n9', ['tag:k8s']);
      bench.control.devices.set('n8', { hostname: 'laptop', addresses: [] });
      expect((await examine())['left-nodes']).toMatchObject({
        status: 'warning',
        summary: '1 with tag:k8s unknown in namespace tailcast: prod-ghost',
      });
    });

    it('knows a node by the key of its machine while its pod has not said who it is', async () => {
      service('web', []);
      secret('ts-web-0', 'web', { _machinekey: MACHINE.privateKey });
      bench.control.devices.set('n9', { hostname: 'prod-web', addresses: [] });
      bench.control.tags.set('n9', ['tag:k8s']);
      bench.control.machineKeys.set('n9', MACHINE.publicKey);
      expect((await examine())['left-nodes']?.status).toBe('ok');
    });
  });
});

interface Shipped {
  readonly kind: string;
  readonly metadata: { readonly name: string; readonly namespace?: string };
  readonly rules?: readonly {
    readonly apiGroups: readonly string[];
    readonly resources: readonly string[];
    readonly verbs: readonly string[];
  }[];
}

/** Rights of the operator's own account in the manifest. */
function shippedRights(file = 'operator'): readonly string[] {
  return parseAllDocuments(readFileSync(`deploy/rbac/${file}.yaml`, 'utf8'))
    .map((document) => document.toJS() as Shipped)
    .filter(({ kind }) => kind === 'Role' || kind === 'ClusterRole')
    .flatMap(({ metadata, rules = [] }) =>
      rules.flatMap(({ apiGroups, resources, verbs }) =>
        resources.flatMap((resource) =>
          verbs.map((verb) => `${verb} ${resource}.${apiGroups[0]} in ${metadata.namespace ?? '*'}`),
        ),
      ),
    );
}
