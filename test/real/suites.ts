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

/** Pods with tailscaled in kernel mode, each in its own network namespace. */
export const KERNEL_PODS: Omit<Suite, 'file'> = {
  peers: ['kubernetes-1.36', 'kubelet-double', 'tailnet', 'kernel-tailscaled', 'containerboot', 'kube-proxy'],
  ownNetwork: true,
};

/** Chromium with several tailnet identities at once, for access requests and for live control. */
const PEOPLE_PAGES: Suite = {
  file: 'suites/people-pages.test.ts',
  peers: ['kubernetes-1.36', 'kubelet-double', 'tailnet', 'versitygw'],
};

/** All suites of `npm run test:real`, in this order. */
export const SUITES: Readonly<Record<string, Suite | readonly Suite[]>> = {
  rig: {
    file: 'rig.test.ts',
    peers: ['kubernetes-1.36', 'kubelet-double', 'kubernetes-1.34', 'tailnet', 'versitygw', 'reference'],
  },
  tailnet: { file: 'suites/tailnet.test.ts', peers: ['tailnet', 'reference'] },
  'tailnet-people': {
    file: 'suites/tailnet-people.test.ts',
    peers: ['kubernetes-1.36', 'kubelet-double', 'tailnet', 'versitygw'],
  },
  'tailnet-changes': {
    file: 'suites/tailnet-changes.test.ts',
    peers: ['kubernetes-1.36', 'kubelet-double', 'tailnet', 'versitygw'],
  },
  'reference-proxy': {
    file: 'suites/reference-proxy.test.ts',
    peers: ['kubernetes-1.36', 'kubelet-double', 'tailnet', 'versitygw', 'reference'],
  },
  'reference-grants': {
    file: 'suites/reference-grants.test.ts',
    peers: ['kubernetes-1.36', 'kubelet-double', 'tailnet', 'versitygw', 'reference'],
  },
  'reference-archive': { file: 'suites/reference-archive.test.ts', peers: ['versitygw'] },
  'reference-client': { file: 'suites/reference-client.test.ts', peers: ['reference'] },
  'reference-crd': { file: 'suites/reference-crd.test.ts', peers: ['reference'] },
  'differential-requests': { file: 'suites/differential-requests.test.ts', peers: ['oracle'] },
  'differential-spdy': { file: 'suites/differential-spdy.test.ts', peers: ['oracle'] },
  'differential-websocket': { file: 'suites/differential-websocket.test.ts', peers: ['oracle'] },
  'differential-tailnet': { file: 'suites/differential-tailnet.test.ts', peers: ['oracle'] },
  'differential-api-server': {
    file: 'suites/differential-api-server.test.ts',
    peers: ['kubernetes-1.36', 'kubelet-double', 'kubernetes-1.34'],
  },
  kubectl: {
    file: 'suites/kubectl.test.ts',
    peers: ['kubernetes-1.36', 'kubelet-double', 'kubernetes-1.34'],
  },
  clusters: {
    file: 'suites/clusters.test.ts',
    peers: ['kubernetes-1.36', 'kubelet-double', 'kubernetes-1.34'],
  },
  'live-control': [
    { file: 'suites/live-control.test.ts', peers: ['kubernetes-1.36', 'kubelet-double'] },
    { file: 'suites/live-control-moderated.test.ts', peers: ['kubernetes-1.36', 'kubelet-double'] },
    PEOPLE_PAGES,
  ],
  k3s: { file: 'suites/k3s.test.ts', peers: ['kubernetes-1.36', 'kubelet-double', 'tailnet'] },
  'request-headers': { file: 'suites/request-headers.test.ts', peers: ['kubernetes-1.36', 'kubelet-double'] },
  routers: [
    { file: 'suites/routers.test.ts', peers: [] },
    {
      file: 'suites/routers-clusters.test.ts',
      peers: ['kubernetes-1.36', 'kubelet-double', 'kubernetes-1.34', 'tailnet'],
    },
  ],
  'exec-upstream': {
    file: 'suites/exec-upstream.test.ts',
    peers: ['kubernetes-1.36', 'kubelet-double', 'kubernetes-1.34'],
  },
  migrate: {
    file: 'suites/migrate.test.ts',
    peers: ['kubernetes-1.36', 'kubelet-double', 'tailnet', 'versitygw', 'reference'],
  },
  load: { file: 'suites/load.test.ts', peers: ['kubernetes-1.36', 'kubelet-double'] },
  watches: { file: 'suites/watches.test.ts', peers: ['kubernetes-1.36'] },
  lock: {
    file: 'suites/lock.test.ts',
    peers: ['kubernetes-1.36', 'kubelet-double', 'kubernetes-1.34'],
  },
  access: [
    { file: 'suites/access-cluster.test.ts', peers: ['kubernetes-1.36', 'kubelet-double'] },
    {
      file: 'suites/access.test.ts',
      peers: ['kubernetes-1.36', 'kubelet-double', 'tailnet', 'versitygw'],
    },
    PEOPLE_PAGES,
  ],
  coverage: { file: 'suites/coverage.test.ts', peers: ['kubernetes-1.36', 'kubelet-double'] },
  operator: { file: 'suites/operator.test.ts', peers: ['kubernetes-1.36', 'kubelet-double', 'tailnet'] },
  'operator-workloads': {
    file: 'suites/operator-workloads.test.ts',
    ...KERNEL_PODS,
  },
  'operator-names': {
    file: 'suites/operator-names.test.ts',
    ...KERNEL_PODS,
  },
  'operator-ingress': {
    file: 'suites/operator-ingress.test.ts',
    ...KERNEL_PODS,
  },
  'operator-ingress-tls': {
    file: 'suites/operator-ingress-tls.test.ts',
    ...KERNEL_PODS,
  },
  'operator-ingress-groups': {
    file: 'suites/operator-ingress-groups.test.ts',
    ...KERNEL_PODS,
  },
  'operator-gateway': {
    file: 'suites/operator-gateway.test.ts',
    ...KERNEL_PODS,
    peers: [...KERNEL_PODS.peers, 'gateway-api'],
  },
  'operator-egress': {
    file: 'suites/operator-egress.test.ts',
    ...KERNEL_PODS,
  },
  'operator-unprivileged': {
    file: 'suites/operator-unprivileged.test.ts',
    ...KERNEL_PODS,
  },
  // This suite creates its own network namespace, so `ownNetwork` is not set.
  'operator-scale': { file: 'suites/operator-scale.test.ts', peers: ['kubernetes-1.36', 'tailnet'] },
  host: { file: 'suites/host.test.ts', peers: ['tailnet'] },
  'proxy-group': [
    { file: 'suites/proxy-group.test.ts', peers: ['kubernetes-1.36', 'kubelet-double', 'tailnet'] },
    {
      file: 'suites/proxy-group-clusters.test.ts',
      ...KERNEL_PODS,
      peers: [...KERNEL_PODS.peers, 'kubernetes-1.34'],
    },
  ],
  install: { file: 'suites/install.test.ts', peers: ['kubernetes-1.36', 'kubelet-double', 'helm'] },
  'install-chart': {
    file: 'suites/install-chart.test.ts',
    peers: [
      'kubernetes-1.36',
      'kubelet-double',
      'helm',
      'tailnet',
      'kernel-tailscaled',
      'containerboot',
      'kube-proxy',
    ],
    ownNetwork: true,
    fetched: { programs: ['runc', 'umoci'], release: true },
  },
  chart: { file: 'suites/chart.test.ts', peers: ['kubernetes-1.36', 'helm'] },
  'chart-tailnet': { file: 'suites/chart-tailnet.test.ts', peers: ['helm', 'tailnet', 'containerboot'] },
  player: [
    'player',
    'player-export',
    'player-jobs',
    'player-live',
    'player-preview',
    'player-search',
    'player-views',
    'player-words',
  ].map((name) => ({
    file: `suites/${name}.test.ts`,
    peers: [],
  })),
  browser: { file: 'suites/browser.test.ts', peers: ['versitygw'] },
  'browser-pages': { file: 'suites/browser-pages.test.ts', peers: ['kubernetes-1.36'] },
  s3: { file: 'suites/s3.test.ts', peers: ['versitygw'] },
  search: {
    file: 'suites/search.test.ts',
    peers: ['kubernetes-1.36', 'kubelet-double', 'versitygw'],
  },
  opensearch: [
    { file: 'suites/opensearch.test.ts', peers: [] },
    { file: 'suites/opensearch-faults.test.ts', peers: [] },
  ],
  failover: { file: 'suites/failover.test.ts', peers: ['kubernetes-1.36', 'versitygw'] },
  clients: {
    file: 'suites/clients.test.ts',
    peers: ['kubernetes-1.36', 'kubelet-double', 'kubernetes-1.34', 'clients'],
  },
  k9s: {
    file: 'suites/k9s.test.ts',
    peers: ['kubernetes-1.36', 'kubelet-double', 'kubernetes-1.34', 'k9s'],
  },
};

/** Groups the suites by process: all suites share one process, except those with their own network namespace. */
export function runsOf(suites: readonly Suite[]): readonly (readonly Suite[])[] {
  const shared = suites.filter(({ ownNetwork }) => ownNetwork !== true);
  const apart = suites.filter(({ ownNetwork }) => ownNetwork === true);
  return [...(shared.length > 0 ? [shared] : []), ...apart.map((suite) => [suite])];
}
