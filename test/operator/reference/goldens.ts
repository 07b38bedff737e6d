/**
 * The objects that the reference creates for one proxy. These fields are unknown and omitted: update strategy and pod
 * management of the StatefulSet, probes, resources, container ports, order of variables, `readOnly` of mounts,
 * TS_INTERNAL_APP of single proxies, and ports of the headless Service.
 */
import { NOTHING } from './differences.ts';

export interface SingleProxy {
  /** Common name of the proxy's objects. */
  readonly name: string;
  readonly parent: string;
  readonly namespace: string;
  readonly type: 'svc' | 'ingress' | 'connector';
  readonly uid: string;
  readonly replicas?: number;
  readonly isKernel: boolean;
  /** Additional environment variables. */
  readonly env: Readonly<Record<string, string>>;
  /** Values of the proxy's annotations `tailscale.com/operator-last-set-…`, by the end of the annotation name. */
  readonly lastSet?: Readonly<Record<string, string>>;
}

type SingleProxyLabels = Pick<SingleProxy, 'parent' | 'namespace' | 'type'>;

export function labelsOf({ parent, namespace, type }: SingleProxyLabels): Readonly<Record<string, string>> {
  return {
    'tailscale.com/managed': 'true',
    'tailscale.com/parent-resource': parent,
    'tailscale.com/parent-resource-ns': namespace,
    'tailscale.com/parent-resource-type': type,
  };
}

function metadataOf(proxy: SingleProxy, name: string = proxy.name): object {
  return { name, namespace: 'tailcast', labels: labelsOf(proxy), ownerReferences: NOTHING };
}

export function headlessService(proxy: SingleProxy): object {
  return {
    apiVersion: 'v1',
    kind: 'Service',
    metadata: metadataOf(proxy),
    spec: { clusterIP: 'None', ipFamilyPolicy: 'PreferDualStack', selector: { app: proxy.uid } },
  };
}

const fieldOf = (name: string, fieldPath: string): object => ({
  name,
  valueFrom: { fieldRef: { fieldPath } },
});

export function statefulSet(proxy: SingleProxy): object {
  const { name, uid, isKernel, replicas = 1 } = proxy;
  const secrets = Array.from({ length: replicas }, (_, ordinal) => `${name}-${ordinal}`);
  const lastSet = Object.fromEntries(
    Object.entries(proxy.lastSet ?? {}).map(([key, value]) => [
      `tailscale.com/operator-last-set-${key}`,
      value,
    ]),
  );
  const env = {
    TS_USERSPACE: String(!isKernel),
    TS_KUBE_SECRET: '$(POD_NAME)',
    TS_EXPERIMENTAL_VERSIONED_CONFIG_DIR: '/etc/tsconfig/$(POD_NAME)',
    TS_EXPERIMENTAL_SERVICE_AUTO_ADVERTISEMENT: 'false',
    TS_DEBUG_ACME_FORCE_RENEWAL: 'true',
    ...proxy.env,
  };
  const sysctls = {
    name: 'sysctler',
    command: ['/bin/sh', '-c'],
    args: [/echo 1 > \/proc\/sys\/net\/ipv4\/ip_forward.*if .*\/proc\/sys\/net\/ipv6\/conf\/all\/forwarding/],
    securityContext: { privileged: true },
  };
  return {
    apiVersion: 'apps/v1',
    kind: 'StatefulSet',
    metadata: metadataOf(proxy),
    spec: {
      replicas,
      serviceName: name,
      selector: { matchLabels: { app: uid } },
      template: {
        metadata: { labels: { ...labelsOf(proxy), app: uid }, annotations: lastSet },
        spec: {
          serviceAccountName: 'proxies',
          initContainers: isKernel ? [sysctls] : NOTHING,
          containers: [
            {
              name: 'tailscale',
              securityContext: { privileged: isKernel ? true : NOTHING },
              env: [
                fieldOf('POD_IP', 'status.podIP'),
                fieldOf('POD_NAME', 'metadata.name'),
                fieldOf('POD_UID', 'metadata.uid'),
                ...Object.entries(env).map(([key, value]) => ({ name: key, value })),
              ],
              volumeMounts: secrets.map((secret, ordinal) => ({
                name: `tailscaledconfig-${ordinal}`,
                mountPath: `/etc/tsconfig/${secret}`,
              })),
            },
          ],
          volumes: secrets.map((secretName, ordinal) => ({
            name: `tailscaledconfig-${ordinal}`,
            secret: { secretName },
          })),
        },
      },
    },
  };
}

export interface NodeConfig {
  readonly hostname: string;
  readonly routes?: readonly string[];
  readonly appConnector?: boolean;
  /** True if the node has joined and its key is removed. */
  readonly joined?: boolean;
  readonly serveConfig?: object;
}

/** Returns the Secret of a replica with parsed files. */
export function configSecret(proxy: SingleProxy, ordinal: number, config: NodeConfig): object {
  const { routes = [], joined = false } = config;
  const both = {
    Version: 'alpha0',
    Locked: false,
    Hostname: config.hostname,
    ServerURL: /^https:/,
    AuthKey: joined ? NOTHING : /^tskey-/,
    acceptDNS: false,
    acceptRoutes: false,
    // The order of these items is unknown and has no meaning.
    AdvertiseRoutes: routes.length === 0 ? NOTHING : routes.toSorted(),
    AdvertiseServices: NOTHING,
    StaticEndpoints: NOTHING,
    NoStatefulFiltering: true,
  };
  return {
    metadata: metadataOf(proxy, `${proxy.name}-${ordinal}`),
    files: {
      'cap-95.hujson': { ...both, AppConnector: NOTHING },
      'cap-107.hujson': { ...both, AppConnector: { Advertise: config.appConnector ?? false } },
      ...(config.serveConfig === undefined ? {} : { 'serve-config': config.serveConfig }),
    },
  };
}

const ownedBy = (kind: string, name: string): readonly object[] => [
  { apiVersion: 'tailscale.com/v1alpha1', kind, name },
];

/**
 * Returns the objects of a DNSConfig by kind. The reference's labels, container and strategies are unknown and omitted.
 */
export function nameserver(owner: string, records: object): Readonly<Record<string, object>> {
  const metadata = {
    name: 'nameserver',
    namespace: 'tailcast',
    ownerReferences: ownedBy('DNSConfig', owner),
  };
  const port = (protocol: string): object => ({ port: 53, targetPort: 1053, protocol });
  return {
    ServiceAccount: { metadata },
    Deployment: {
      metadata,
      spec: { template: { spec: { serviceAccountName: 'nameserver' } } },
    },
    Service: { metadata, spec: { ports: [port('UDP'), port('TCP')] } },
    ConfigMap: { metadata: { ...metadata, name: 'dnsrecords' }, files: { 'records.json': records } },
  };
}
