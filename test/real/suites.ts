import type { DebianProgram } from './rig/debian.ts';
import type { PeerName } from './rig/peers.ts';

export interface Suite {
  /** Path of the test file, relative to this folder. */
  readonly file: string;
  /** Peers that must be built first. */
  readonly peers: readonly PeerName[];
  /** True if the suite runs in its own network namespace. A skipped suite prints the reason. */
  readonly ownNetwork?: boolean;
  /** Programs and releases that must be fetched before the suite enters its network namespace. */
  readonly fetched?: { readonly programs: readonly DebianProgram[]; readonly release: boolean };
}

const CLUSTER: readonly PeerName[] = ['kubernetes-1.36', 'kubelet-double'];
const TWO_VERSIONS: readonly PeerName[] = [...CLUSTER, 'kubernetes-1.34'];
const TAILNET_CLUSTER: readonly PeerName[] = [...CLUSTER, 'tailnet'];
const STORED_TAILNET: readonly PeerName[] = [...TAILNET_CLUSTER, 'versitygw'];
/** Peers of suites whose pods run tailscaled in kernel mode. */
const KERNEL_PODS: readonly PeerName[] = [
  ...TAILNET_CLUSTER,
  'kernel-tailscaled',
  'containerboot',
  'kube-proxy',
];

/** Returns the suite of a file in `suites`. */
function suite(name: string, peers: readonly PeerName[], more: Omit<Suite, 'file' | 'peers'> = {}): Suite {
  return { file: `suites/${name}.test.ts`, peers, ...more };
}

/** Returns a suite whose pods run in its own network namespace. */
function podSuite(name: string, more: readonly PeerName[] = []): Suite {
  return suite(name, [...KERNEL_PODS, ...more], { ownNetwork: true });
}

/** Chromium with several tailnet identities at once, for access requests and for live control. */
const PEOPLE_PAGES = suite('people-pages', STORED_TAILNET);

/** All suites of `npm run test:real`, in this order. */
export const SUITES: Readonly<Record<string, Suite | readonly Suite[]>> = {
  tailnet: suite('tailnet', ['tailnet']),
  'tailnet-people': suite('tailnet-people', STORED_TAILNET),
  'tailnet-changes': suite('tailnet-changes', STORED_TAILNET),
  'reference-proxy': suite('reference-proxy', [...STORED_TAILNET, 'reference']),
  'reference-grants': suite('reference-grants', [...STORED_TAILNET, 'reference']),
  'reference-archive': suite('reference-archive', ['versitygw']),
  'reference-client': suite('reference-client', ['reference']),
  'reference-crd': suite('reference-crd', ['reference']),
  'differential-requests': suite('differential-requests', ['oracle']),
  'differential-spdy': suite('differential-spdy', ['oracle']),
  'differential-websocket': suite('differential-websocket', ['oracle']),
  'differential-tailnet': suite('differential-tailnet', ['oracle']),
  'differential-api-server': suite('differential-api-server', TWO_VERSIONS),
  kubectl: suite('kubectl', TWO_VERSIONS),
  clusters: suite('clusters', TWO_VERSIONS),
  'live-control': [suite('live-control', CLUSTER), suite('live-control-moderated', CLUSTER), PEOPLE_PAGES],
  k3s: suite('k3s', TAILNET_CLUSTER),
  'request-headers': suite('request-headers', CLUSTER),
  routers: [suite('routers', []), suite('routers-clusters', [...TWO_VERSIONS, 'tailnet'])],
  'exec-upstream': suite('exec-upstream', TWO_VERSIONS),
  migrate: suite('migrate', [...STORED_TAILNET, 'reference']),
  load: suite('load', CLUSTER),
  watches: suite('watches', ['kubernetes-1.36']),
  lock: suite('lock', TWO_VERSIONS),
  access: [suite('access-cluster', CLUSTER), PEOPLE_PAGES],
  coverage: suite('coverage', CLUSTER),
  operator: suite('operator', TAILNET_CLUSTER),
  'operator-workloads': podSuite('operator-workloads'),
  'operator-names': podSuite('operator-names'),
  'operator-ingress': podSuite('operator-ingress'),
  'operator-ingress-tls': podSuite('operator-ingress-tls'),
  'operator-ingress-groups': podSuite('operator-ingress-groups'),
  'operator-gateway': podSuite('operator-gateway', ['gateway-api']),
  'operator-egress': podSuite('operator-egress'),
  'operator-unprivileged': podSuite('operator-unprivileged'),
  // This suite creates its network namespace itself, so the runner must not create one (`ownNetwork`).
  'operator-scale': suite('operator-scale', ['kubernetes-1.36', 'tailnet']),
  host: suite('host', ['tailnet']),
  'proxy-group': [
    suite('proxy-group', TAILNET_CLUSTER),
    podSuite('proxy-group-clusters', ['kubernetes-1.34']),
  ],
  install: suite('install', [...CLUSTER, 'helm']),
  'install-chart': suite('install-chart', [...KERNEL_PODS, 'helm'], {
    ownNetwork: true,
    fetched: { programs: ['runc', 'umoci'], release: true },
  }),
  chart: suite('chart', ['kubernetes-1.36', 'helm']),
  'chart-tailnet': suite('chart-tailnet', ['helm', 'tailnet', 'containerboot']),
  player: [
    'player',
    'player-export',
    'player-jobs',
    'player-live',
    'player-preview',
    'player-search',
    'player-views',
    'player-words',
  ].map((name) => suite(name, [])),
  browser: suite('browser', ['versitygw']),
  'browser-pages': suite('browser-pages', ['kubernetes-1.36']),
  s3: suite('s3', ['versitygw']),
  search: suite('search', [...CLUSTER, 'versitygw']),
  opensearch: [suite('opensearch', []), suite('opensearch-faults', [])],
  failover: suite('failover', ['kubernetes-1.36', 'versitygw']),
  clients: suite('clients', [...TWO_VERSIONS, 'clients']),
  k9s: suite('k9s', [...TWO_VERSIONS, 'k9s']),
};

/** Groups the suites by process: all suites share one process, except those with their own network namespace. */
export function runsOf(suites: readonly Suite[]): readonly (readonly Suite[])[] {
  const shared = suites.filter(({ ownNetwork }) => ownNetwork !== true);
  const apart = suites.filter(({ ownNetwork }) => ownNetwork === true);
  return [...(shared.length > 0 ? [shared] : []), ...apart.map((suite) => [suite])];
}
