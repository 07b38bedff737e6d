/** Programs that the rig builds with Go. Each peer has its own go.mod and go.sum, so that versions are independent. */
export interface Peer {
  /** Folder under `test/real/peers`. */
  readonly folder: string;
  /** Program name → Go package. */
  readonly programs: Readonly<Record<string, string>>;
  /** Name → folder of a module, in the version of the peer's go.mod. */
  readonly files?: Readonly<Record<string, { readonly module: string; readonly folder: string }>>;
  /** Program name → build tags, comma separated. */
  readonly tags?: Readonly<Record<string, string>>;
  /** Linker flags in addition to `-s -w`. */
  readonly linkerFlags?: readonly string[];
}

export type PeerName =
  | 'kubernetes-1.36'
  | 'kubelet-double'
  | 'kubernetes-1.34'
  | 'tailnet'
  | 'versitygw'
  | 'reference'
  | 'oracle'
  | 'clients'
  | 'helm'
  | 'containerboot'
  | 'kernel-tailscaled'
  | 'kube-proxy'
  | 'gateway-api'
  | 'k9s';

const TAILSCALE_VERSION = '1.102.5';

/**
 * The features that a tailscaled for tests leaves out. Made by the module's own `cmd/featuretags --min
 * --add=netstack,outboundproxy,serve,ipnbus,unixsocketidentity,cli,acme,health,cliconndiag,hujsonconf,debug,gro,
 * peerapiserver,peerapiclient,dns,usermetrics,clientmetrics`.
 */
const LEAN_TAILSCALED = [
  'ace advertiseexitnode advertiseroutes appconnectors aws bakedroots bird c2n cachenetmap captiveportal capture',
  'clientupdate cloud colorable completion completion_scripts conn25 dbus debugeventbus debugportmapper',
  'desktop_sessions doctor drive flashappliance identityfederation iptables kube linkspeed linuxdnsfight',
  'listenrawdisco logtail netlog networkmanager oauthkey osrouter portlist portmapper posture qrcodes relayserver',
  'remoteconfig resolved routecheck runtimemetrics sdnotify serviceclientprefs ssh synology syslog syspolicy systray',
  'taildrop tailnetlock tap tpm tundevstats useexitnode useproxy useroutes wakeonlan webbrowser webclient',
]
  .flatMap((line) => line.split(' '))
  .map((feature) => `ts_omit_${feature}`);

/** Features for nodes that route packets. */
const KERNEL_FEATURES = [
  'advertiseexitnode',
  'advertiseroutes',
  'appconnectors',
  'iptables',
  'kube',
  'osrouter',
  'useexitnode',
  'useroutes',
].map((feature) => `ts_omit_${feature}`);

export const PEERS: Readonly<Record<PeerName, Peer>> = {
  'kubernetes-1.36': {
    folder: 'kubernetes-1.36',
    programs: {
      etcd: 'go.etcd.io/etcd/server/v3',
      'kube-apiserver': 'k8s.io/kubernetes/cmd/kube-apiserver',
      'kube-controller-manager': 'k8s.io/kubernetes/cmd/kube-controller-manager',
      kubectl: 'k8s.io/kubernetes/cmd/kubectl',
    },
    tags: {
      etcd: 'grpcnotrace',
      'kube-apiserver': 'grpcnotrace',
      'kube-controller-manager': 'grpcnotrace',
      kubectl: 'grpcnotrace',
    },
    linkerFlags: kubernetesVersion('1', '36', 'v1.36.3'),
  },
  'kubelet-double': {
    folder: 'kubernetes-1.36',
    programs: { 'kubelet-double': './kubelet-double' },
    tags: { 'kubelet-double': 'grpcnotrace' },
  },
  'kubernetes-1.34': {
    folder: 'kubernetes-1.34',
    programs: { 'kube-apiserver': 'k8s.io/kubernetes/cmd/kube-apiserver' },
    tags: { 'kube-apiserver': 'grpcnotrace' },
    linkerFlags: kubernetesVersion('1', '34', 'v1.34.4'),
  },
  tailnet: {
    folder: 'tailnet',
    programs: {
      tailscaled: 'tailscale.com/cmd/tailscaled',
      headscale: 'github.com/juanfont/headscale/cmd/headscale',
    },
    tags: { tailscaled: ['ts_include_cli', ...LEAN_TAILSCALED].join(',') },
    linkerFlags: [
      `-X tailscale.com/version.longStamp=${TAILSCALE_VERSION}-tailcast`,
      `-X tailscale.com/version.shortStamp=${TAILSCALE_VERSION}`,
    ],
  },
  versitygw: {
    folder: 'versitygw',
    programs: { versitygw: 'github.com/versity/versitygw/cmd/versitygw' },
  },
  reference: {
    folder: 'reference',
    programs: { 'recording-client': './recording-client', 'api-proxy': './api-proxy' },
    linkerFlags: [
      `-X tailscale.com/version.longStamp=${TAILSCALE_VERSION}-tailcast`,
      `-X tailscale.com/version.shortStamp=${TAILSCALE_VERSION}`,
    ],
  },
  oracle: { folder: 'oracle', programs: { oracle: '.' } },
  clients: { folder: 'clients', programs: { 'client-go': '.' } },
  containerboot: {
    folder: 'containerboot',
    programs: { containerboot: 'tailscale.com/cmd/containerboot' },
    linkerFlags: [
      `-X tailscale.com/version.longStamp=${TAILSCALE_VERSION}-tailcast`,
      `-X tailscale.com/version.shortStamp=${TAILSCALE_VERSION}`,
    ],
  },
  'kernel-tailscaled': {
    folder: 'tailnet',
    programs: { tailscaled: 'tailscale.com/cmd/tailscaled' },
    tags: { tailscaled: LEAN_TAILSCALED.filter((tag) => !KERNEL_FEATURES.includes(tag)).join(',') },
    linkerFlags: [
      `-X tailscale.com/version.longStamp=${TAILSCALE_VERSION}-tailcast`,
      `-X tailscale.com/version.shortStamp=${TAILSCALE_VERSION}`,
    ],
  },
  'kube-proxy': {
    folder: 'kube-proxy',
    programs: { 'kube-proxy': 'k8s.io/kubernetes/cmd/kube-proxy' },
    tags: { 'kube-proxy': 'grpcnotrace' },
    linkerFlags: kubernetesVersion('1', '36', 'v1.36.3'),
  },
  helm: {
    folder: 'helm',
    programs: { helm: 'helm.sh/helm/v3/cmd/helm' },
    // Version of the cluster for `helm template`.
    linkerFlags: ['Major=1', 'Minor=36'].map((part) => `-X helm.sh/helm/v3/pkg/chartutil.k8sVersion${part}`),
  },
  'gateway-api': {
    folder: 'gateway-api',
    programs: {},
    files: { crds: { module: 'sigs.k8s.io/gateway-api', folder: 'config/crd/standard' } },
  },
  k9s: {
    folder: 'k9s',
    programs: { k9s: 'github.com/derailed/k9s' },
    linkerFlags: ['-X github.com/derailed/k9s/cmd.version=v0.50.9'],
  },
};

/** `kubectl version` fails without these flags, because the linker sets the version. */
function kubernetesVersion(major: string, minor: string, version: string): string[] {
  const values = {
    gitVersion: version,
    gitMajor: major,
    gitMinor: minor,
    gitTreeState: 'clean',
    gitCommit: '0000000000000000000000000000000000000000',
    buildDate: '2026-01-01T00:00:00Z',
  };
  return ['k8s.io/component-base/version', 'k8s.io/client-go/pkg/version'].flatMap((path) =>
    Object.entries(values).map(([name, value]) => `-X ${path}.${name}=${value}`),
  );
}
