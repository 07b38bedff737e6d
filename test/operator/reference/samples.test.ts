import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { createConnectorReconciler } from '../../../src/operator/connector/reconcile.ts';
import { createDnsReconciler } from '../../../src/operator/dns/reconcile.ts';
import { createIngressReconciler } from '../../../src/operator/ingress/reconcile.ts';
import type { Reconciler } from '../../../src/operator/workload/reconciler.ts';
import { createProxyClassReconciler } from '../../../src/operator/proxy-class/reconcile.ts';
import { createServiceReconciler } from '../../../src/operator/service/reconcile.ts';
import type { StoredObject } from '../api-server-double.ts';
import { createBench, OWN, SETS, settle, TAILSCALE, type Bench } from '../bench.ts';
import { differences } from './differences.ts';
import {
  configSecret,
  headlessService,
  labelsOf,
  nameserver,
  statefulSet,
  type NodeConfig,
  type SingleProxy,
} from './goldens.ts';
import {
  ANNOTATED_SERVICE,
  APP_CONNECTOR,
  DNS_CONFIG,
  DNS_CONFIG_PODS,
  EGRESS_ADDRESS,
  EGRESS_NAME,
  EXIT_NODE,
  INGRESS,
  LOAD_BALANCER,
  PROXY_CLASS,
  SUBNET_ROUTER,
  type Manifest,
} from './samples.ts';

/** Fields in which tailcast's objects intentionally differ from the objects of the reference. */
const ON_PURPOSE = {
  // Each proxy has its own account, which can read only the proxy's Secret. The reference has one account for all.
  web: ['spec.template.spec.serviceAccountName'],
  // A proxy in kernel mode needs no certificate, so this variable is omitted.
  kernel: [
    'spec.template.spec.containers[tailscale].env[TS_DEBUG_ACME_FORCE_RENEWAL]',
    'spec.template.spec.serviceAccountName',
  ],
};
const CLUSTER_ADDRESS = '10.96.0.10';

let bench: Bench;
beforeEach(async () => {
  bench = await createBench();
});
afterEach(() => bench.close());

const pathOf = ({ kind, metadata: { name } }: Manifest): string => {
  const plural = kind === 'ProxyClass' || kind === 'Ingress' ? `${kind}es` : `${kind}s`;
  if (kind === 'Service') return `/api/v1/namespaces/default/services/${name}`;
  return kind === 'Ingress'
    ? `/apis/networking.k8s.io/v1/namespaces/default/ingresses/${name}`
    : `${TAILSCALE}/${plural.toLowerCase()}/${name}`;
};
/** Stores a manifest with the fields that the API server adds. */
function apply(manifest: Manifest): void {
  const { kind, metadata, spec } = manifest;
  const isCluster = kind !== 'Service' && kind !== 'Ingress';
  const outer = 'type' in spec && spec.type === 'ExternalName';
  bench.api.put(pathOf(manifest), {
    ...manifest,
    metadata: {
      ...metadata,
      ...(isCluster ? {} : { namespace: 'default' }),
      uid: 'parent-uid',
      generation: 1,
    },
    spec: { ...spec, ...(kind === 'Service' && !outer ? { clusterIP: CLUSTER_ADDRESS } : {}) },
  });
}
const said = (manifest: Manifest): object => bench.object(pathOf(manifest))!;

/** Finds the name of a proxy's objects by their labels, as the reference does. */
function nameFor(parent: Pick<SingleProxy, 'parent' | 'namespace' | 'type'>): string {
  const wanted = labelsOf(parent);
  const found = [...bench.api.objects.values()].filter(
    ({ kind, metadata }) => kind === 'StatefulSet' && differences(wanted, metadata.labels).length === 0,
  );
  expect(found).toHaveLength(1);
  const { name } = found[0]!.metadata;
  expect(name).toMatch(new RegExp(`^ts-${parent.parent}-.{1,48}$`));
  expect(name.length).toBeLessThanOrEqual(52);
  return name;
}
const decode = (text: string): unknown => JSON.parse(Buffer.from(text, 'base64').toString());

/** Returns a Secret with its files parsed. */
function secret(name: string): object {
  const object = bench.object(`${OWN}/secrets/${name}`)!;
  const files = Object.entries(object['data'] as Record<string, string>).filter(
    ([key]) => key.endsWith('.hujson') || key === 'serve-config',
  );
  return { ...object, files: Object.fromEntries(files.map(([key, text]) => [key, decode(text)])) };
}

/** Compares all objects of one proxy with their golden files. */
function expectProxy(golden: Omit<SingleProxy, 'name'>, ...nodes: NodeConfig[]): SingleProxy {
  const proxy = { ...golden, name: nameFor(golden) };
  expect(differences(headlessService(proxy), bench.object(`${OWN}/services/${proxy.name}`))).toEqual([]);
  expect(differences(statefulSet(proxy), bench.object(`${SETS}/${proxy.name}`)).toSorted()).toEqual(
    ON_PURPOSE[golden.isKernel ? 'kernel' : 'web'],
  );
  for (const [ordinal, node] of nodes.entries()) {
    expect(differences(configSecret(proxy, ordinal, node), secret(`${proxy.name}-${ordinal}`))).toEqual([]);
  }
  return proxy;
}
function start({ name, replicas = 1 }: SingleProxy, fqdn?: string): void {
  for (let ordinal = 0; ordinal < replicas; ordinal += 1) {
    bench.startPod(`${name}-${ordinal}`);
    const addresses = [`100.64.0.${ordinal + 1}`, `fd7a:115c:a1e0::${ordinal + 1}`];
    bench.join(`${name}-${ordinal}`, { addresses, ...(fqdn === undefined ? {} : { fqdn }) });
  }
}

describe('a Service of the reference’s documentation', () => {
  let reconciler: Reconciler;
  beforeEach(() => {
    reconciler = createServiceReconciler(bench.deps());
  });
  const run = (name: string): Promise<number | undefined> => reconciler.reconcile(`default/${name}`);
  const NGINX = {
    parent: 'nginx',
    namespace: 'default',
    type: 'svc',
    uid: 'parent-uid',
    isKernel: true,
    env: { TS_DEST_IP: CLUSTER_ADDRESS },
    lastSet: { 'cluster-ip': CLUSTER_ADDRESS },
  } as const;

  it('that is annotated gets the reference’s objects', async () => {
    apply(ANNOTATED_SERVICE);
    await run('nginx');
    const proxy = expectProxy(NGINX, { hostname: 'default-nginx' });
    start(proxy);
    await settle(() => run('nginx'));
    expectProxy(NGINX, { hostname: 'default-nginx', joined: true });
    const conditions = [{ type: 'TailscaleProxyReady', status: 'True', reason: 'ProxyCreated' }];
    const metadata = { finalizers: ['tailscale.com/finalizer'] };
    expect(differences({ metadata, status: { conditions } }, said(ANNOTATED_SERVICE))).toEqual([]);
  });

  it('that is a load balancer gets them, and says name and address', async () => {
    apply(LOAD_BALANCER);
    await run('nginx');
    const pending = { type: 'TailscaleProxyReady', reason: 'ProxyPending' };
    const message = /waiting for proxy pod to finish auth/;
    expect(differences({ status: { conditions: [{ ...pending, message }] } }, said(LOAD_BALANCER))).toEqual(
      [],
    );
    start(expectProxy(NGINX, { hostname: 'default-nginx' }), 'default-nginx.tailnet-1234.ts.net');
    await settle(() => run('nginx'));
    const ingress = [{ hostname: 'default-nginx.tailnet-1234.ts.net' }, { ip: '100.64.0.1' }];
    expect(differences({ status: { loadBalancer: { ingress } } }, said(LOAD_BALANCER))).toEqual([]);
  });

  it.each([
    [
      'tailscale.com/tailnet-fqdn',
      EGRESS_NAME,
      { TS_TAILNET_TARGET_FQDN: 'rds.tailnet-1234.ts.net.' },
      { 'ts-tailnet-target-fqdn': /^rds\.tailnet-1234\.ts\.net\.?$/ },
    ],
    [
      'tailscale.com/tailnet-ip',
      EGRESS_ADDRESS,
      { TS_TAILNET_TARGET_IP: '100.64.0.7' },
      { 'ts-tailnet-target-ip': '100.64.0.7' },
    ],
  ])('that leads out by %s gets them, and becomes their name', async (_what, manifest, env, lastSet) => {
    apply(manifest);
    await run('rds-staging');
    const { name } = expectProxy(
      { ...NGINX, parent: 'rds-staging', env, lastSet: lastSet as Record<string, string> },
      { hostname: 'default-rds-staging' },
    );
    const externalName = `${name}.tailcast.svc.cluster.local`;
    const metadata = { finalizers: ['tailscale.com/finalizer'] };
    expect(differences({ metadata, spec: { type: 'ExternalName', externalName } }, said(manifest))).toEqual(
      [],
    );
    expect((said(manifest) as { spec: object }).spec).not.toHaveProperty('selector');
  });

  it('follows the ProxyClass of the documentation', async () => {
    apply(PROXY_CLASS);
    await createProxyClassReconciler(bench.deps()).reconcile('prod');
    const conditions = [{ type: 'ProxyClassReady', status: 'True', reason: 'ProxyClassValid' }];
    expect(differences({ status: { conditions } }, said(PROXY_CLASS))).toEqual([]);
    const { metadata } = ANNOTATED_SERVICE;
    const annotations = { ...metadata.annotations, 'tailscale.com/proxy-class': 'prod' };
    apply({ ...ANNOTATED_SERVICE, metadata: { ...metadata, annotations } });
    await run('nginx');
    const { name } = expectProxy(NGINX, { hostname: 'default-nginx' });
    const image = 'ghcr.io/tailscale/tailscale:v1.64';
    const golden = {
      metadata: { annotations: { 'platform-component': 'infra' } },
      spec: {
        template: {
          metadata: { labels: { team: 'eng' } },
          spec: {
            nodeSelector: { 'kubernetes.io/os': 'linux' },
            imagePullSecrets: [{ name: 'foo' }],
            containers: [
              {
                name: 'tailscale',
                image,
                imagePullPolicy: 'IfNotPresent',
                ports: [{ name: 'metrics', containerPort: 9002 }],
              },
            ],
            initContainers: [{ name: 'sysctler', image, imagePullPolicy: 'IfNotPresent' }],
          },
        },
      },
    };
    expect(differences(golden, bench.object(`${SETS}/${name}`))).toEqual([]);
  });
});

describe('an Ingress of the reference’s documentation', () => {
  it('gets the reference’s objects and serve configuration, and says where it is', async () => {
    const reconciler = createIngressReconciler(bench.deps());
    const run = (): Promise<number | undefined> => reconciler.reconcile('default/nginx');
    const { metadata, ...service } = ANNOTATED_SERVICE;
    apply({ ...service, metadata: { name: metadata.name } });
    apply(INGRESS);
    await run();
    const host = '${TS_CERT_DOMAIN}';
    const serveConfig = {
      TCP: { '443': { HTTPS: true }, '80': { HTTP: true } },
      Web: {
        [`${host}:443`]: { Handlers: { '/': { Proxy: `http://${CLUSTER_ADDRESS}:80/` } } },
        [`${host}:80`]: { Handlers: { '/': { Redirect: '301:https://${HOST}${REQUEST_URI}' } } },
      },
    };
    const proxy = expectProxy(
      {
        parent: 'nginx',
        namespace: 'default',
        type: 'ingress',
        uid: 'parent-uid',
        isKernel: false,
        env: {},
      },
      { hostname: 'nginx', serveConfig },
    );
    const serve = {
      containers: [
        {
          name: 'tailscale',
          volumeMounts: [{ name: 'serve-config-0', mountPath: `/etc/tailscaled/${proxy.name}-0` }],
        },
      ],
      volumes: [
        {
          name: 'serve-config-0',
          secret: { secretName: `${proxy.name}-0`, items: [{ key: 'serve-config' }] },
        },
      ],
    };
    expect(
      differences({ spec: { template: { spec: serve } } }, bench.object(`${SETS}/${proxy.name}`)),
    ).toEqual([]);
    start(proxy, 'nginx.tailnet-1234.ts.net');
    await run();
    expect(differences({ status: { loadBalancer: { ingress: [{}] } } }, said(INGRESS))).toHaveLength(1);
    bench.say(`${proxy.name}-0`, { https_endpoint: 'nginx.tailnet-1234.ts.net' });
    await settle(run);
    const ports = [{ port: 443 }, { port: 80 }];
    const ingress = [{ hostname: 'nginx.tailnet-1234.ts.net', ports }];
    expect(differences({ status: { loadBalancer: { ingress } } }, said(INGRESS))).toEqual([]);
  });
});

describe('a Connector of the reference’s documentation', () => {
  it.each([
    {
      what: 'routes networks',
      manifest: SUBNET_ROUTER,
      hostnames: ['ts-prod-0', 'ts-prod-1'],
      config: { routes: ['10.40.0.0/14', '192.168.0.0/14'] },
      shown: { subnetRoutes: '10.40.0.0/14,192.168.0.0/14', isExitNode: false, isAppConnector: false },
    },
    {
      what: 'is an exit node',
      manifest: EXIT_NODE,
      hostnames: ['exit-node-0', 'exit-node-1'],
      config: { routes: ['0.0.0.0/0', '::/0'] },
      shown: { subnetRoutes: '', isExitNode: true, isAppConnector: false },
    },
    {
      what: 'connects applications',
      manifest: APP_CONNECTOR,
      hostnames: ['saas'],
      config: { appConnector: true },
      shown: { subnetRoutes: '', isExitNode: false, isAppConnector: true },
    },
  ])('that $what gets the reference’s objects and status', async ({ manifest, hostnames, config, shown }) => {
    const reconciler = createConnectorReconciler(bench.deps());
    const { name } = manifest.metadata;
    const run = (): Promise<number | undefined> => reconciler.reconcile(name);
    apply(manifest);
    await run();
    const golden = {
      parent: name,
      namespace: 'tailcast',
      type: 'connector',
      uid: 'parent-uid',
      replicas: hostnames.length,
      isKernel: true,
      env: {},
    } as const;
    const nodes = hostnames.map((hostname) => ({ ...config, hostname }));
    const proxy = expectProxy(golden, ...nodes);
    const keys = [...bench.control.keys.values()];
    const { tags } = manifest.spec as { tags?: string[] };
    expect(keys.map((key) => key.tags)).toEqual(hostnames.map(() => tags ?? ['tag:k8s']));
    start(proxy);
    await settle(run);
    expectProxy(golden, ...nodes.map((node) => ({ ...node, joined: true })));
    const tailnetIPs = ['100.64.0.1', 'fd7a:115c:a1e0::1'];
    const status = {
      conditions: [{ type: 'ConnectorReady', status: 'True', reason: 'ConnectorCreated' }],
      ...shown,
      tailnetIPs,
      devices: hostnames.map((_, ordinal) => ({
        tailnetIPs: [`100.64.0.${ordinal + 1}`, `fd7a:115c:a1e0::${ordinal + 1}`],
      })),
    };
    const metadata = { finalizers: ['tailscale.com/finalizer'] };
    expect(differences({ metadata, status }, said(manifest))).toEqual([]);
  });
});

describe('a DNSConfig of the reference’s documentation', () => {
  /** Returns an object of the nameserver with its file parsed. */
  function made(kind: string): StoredObject {
    const found = [...bench.api.objects.values()].filter(
      (object) => object.kind === kind && object.metadata.ownerReferences?.[0]?.name === 'ts-dns',
    );
    expect(found).toHaveLength(1);
    const data = Object.entries((found[0]!['data'] ?? {}) as Record<string, string>);
    return { ...found[0]!, files: Object.fromEntries(data.map(([key, text]) => [key, JSON.parse(text)])) };
  }
  function expectNameserver(records: object): void {
    for (const [kind, golden] of Object.entries(nameserver('ts-dns', records))) {
      expect(differences(golden, made(kind))).toEqual([]);
    }
  }

  it('gets the reference’s objects, status, and records of what leads out', async () => {
    const services = createServiceReconciler(bench.deps());
    const dns = createDnsReconciler(bench.deps());
    apply(EGRESS_NAME);
    await services.reconcile('default/rds-staging');
    const name = nameFor({ parent: 'rds-staging', namespace: 'default', type: 'svc' });
    bench.api.put(`/apis/discovery.k8s.io/v1/namespaces/tailcast/endpointslices/${name}-4`, {
      apiVersion: 'discovery.k8s.io/v1',
      kind: 'EndpointSlice',
      metadata: {
        name: `${name}-4`,
        namespace: 'tailcast',
        labels: {
          ...labelsOf({ parent: 'rds-staging', namespace: 'default', type: 'svc' }),
          'kubernetes.io/service-name': name,
        },
      },
      addressType: 'IPv4',
      endpoints: [
        { addresses: ['10.244.0.9'], conditions: { ready: true } },
        { addresses: ['10.244.0.10'], conditions: { ready: false } },
      ],
    });
    apply(DNS_CONFIG);
    await dns.reconcile('ts-dns');
    expectNameserver({ version: 'v1alpha1', ip4: { 'rds.tailnet-1234.ts.net': ['10.244.0.9'] } });
    const deployment = made('Deployment');
    const path = '/apis/apps/v1/namespaces/tailcast/deployments/nameserver';
    bench.api.put(path, { ...deployment, status: { observedGeneration: 1, readyReplicas: 1 } });
    await dns.reconcile('ts-dns');
    const { spec } = made('Service') as StoredObject & { spec: { clusterIP: string } };
    const conditions = [{ type: 'NameserverReady', status: 'True', reason: 'NameserverCreated' }];
    const status = { conditions, nameserver: { ip: spec.clusterIP } };
    expect(differences({ status }, said(DNS_CONFIG))).toEqual([]);
  });

  it('has what it says of pods and Service in them', async () => {
    apply(DNS_CONFIG_PODS);
    await createDnsReconciler(bench.deps()).reconcile('ts-dns');
    expectNameserver({ version: 'v1alpha1' });
    expect(differences({ spec: { clusterIP: '10.96.0.53' } }, made('Service'))).toEqual([]);
    const pod = {
      imagePullSecrets: [{ name: 'foo' }],
      nodeSelector: { 'kubernetes.io/os': 'linux' },
      tolerations: [{ key: 'dedicated', operator: 'Exists' }],
    };
    const golden = { spec: { replicas: 2, template: { spec: pod } } };
    expect(differences(golden, made('Deployment'))).toEqual([]);
  });
});

describe('the comparison of an object with its golden', () => {
  it.each([
    [{ a: 1 }, { a: 2 }, ['a']],
    [{ a: { b: 'x' } }, { a: {} }, ['a.b']],
    [{ a: [{ name: 'x', b: 1 }] }, { a: [{ name: 'y' }, { name: 'x', b: 2 }] }, ['a[x].b']],
    [{ a: [{ name: 'x', b: 1 }] }, { a: [] }, ['a[x]']],
    [{ a: [1, 2] }, { a: [1] }, ['a']],
    [{ a: [{ b: 1 }] }, { a: [{ b: 2 }] }, ['a[0].b']],
    [{ a: /^x/ }, { a: 'yx' }, ['a']],
    [{ a: 1 }, { a: 1, b: 2 }, []],
  ])('of %j with %j finds %j', (golden, actual, found) => {
    expect(differences(golden, actual)).toEqual(found);
  });
});
