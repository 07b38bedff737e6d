import { API_SERVER_SETTINGS, logLevelSetting, opsListenSetting } from './role-settings.ts';
import { readableFiles } from './setting-paths.ts';
import { setting, type ParseValue, type SettingCheck, type SettingValues } from './settings.ts';
import {
  bareFlag,
  flag,
  listSetting,
  oneOf,
  optionalName,
  text,
  textList,
  textSetting,
  webAddress,
} from './values.ts';

/** Parses a list of tags. `tag:web` applies to all namespaces, and `prod=tag:db` to the namespace `prod`. */
const allowedTags: ParseValue<readonly { readonly namespace: string | undefined; readonly tag: string }[]> = (
  raw,
) =>
  textList(raw).map((item) => {
    const match = /^(?:([a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?)=)?(tag:[a-zA-Z][a-zA-Z0-9-]*)$/.exec(item);
    if (match?.[2] === undefined)
      throw new Error(`tag:<name> or <namespace>=tag:<name> is expected, not ${JSON.stringify(item)}`);
    return { namespace: match[1], tag: match[2] };
  });

const CONTROLLERS = [
  'proxy-groups',
  'services',
  'ingresses',
  'gateways',
  'connectors',
  'dns-configs',
] as const;
type Controller = (typeof CONTROLLERS)[number];

const controllerList: ParseValue<readonly Controller[]> = (raw) => textList(raw).map(oneOf(...CONTROLLERS));

/** Settings of `tailcast operator`. */
export const OPERATOR_SETTINGS = {
  namespace: textSetting('namespace for all created objects; default: the operator’s own', '<name>'),
  ...API_SERVER_SETTINGS,
  control: setting(
    'control server whose API creates auth keys and removes nodes',
    oneOf('tailscale', 'headscale'),
    'tailscale',
  ),
  controlUrl: setting('URL of the control server’s API; default: Tailscale’s', webAddress, undefined),
  loginServer: setting(
    'control server of the nodes; default: Tailscale’s, or controlUrl with headscale',
    webAddress,
    undefined,
  ),
  credentials: textSetting(
    'directory with client_id and client_secret (tailscale) or api_key (headscale); default: /oauth or /headscale',
    '<directory>',
  ),
  defaultTags: setting('tags for resources that name no tags', textList, ['tag:k8s'], '<tags>'),
  allowedTags: setting(
    'additional tags that Services, Ingresses and Gateways may name: tag (in all namespaces) or namespace=tag',
    allowedTags,
    [],
    '<tags>',
  ),
  recorderUploaders: listSetting(
    'tags or stable node IDs that may upload to recorders; default: all nodes that reach a recorder',
    '<tags>',
  ),
  recorderImage: textSetting(
    'image of recorders, gateways, forwarders and nameservers; default: this version of tailcast',
    '<image>',
  ),
  tailscaleImage: setting(
    'image of the tailscale container in each pod',
    text,
    'tailscale/tailscale:v1.102.5@sha256:c507f3a2a6ab1cabd8d809b98edeb41edbd5c3fb6ad9632ffd098b4c7d0b4065',
    '<image>',
  ),
  tailnetDomain: textSetting(
    'MagicDNS domain, used for host names of players and by the nameserver',
    '<domain>',
  ),
  lease: setting('Lease that only one operator holds; off: no election', optionalName, 'tailcast-operator'),
  controllers: setting(
    'resource kinds to serve in addition to Recorders; each needs its CRD and RBAC rights; for the Gateway API, ' +
      'add `gateways`',
    controllerList,
    ['proxy-groups', 'services', 'ingresses', 'connectors', 'dns-configs'],
    '<names>',
  ),
  defaultLoadBalancer: setting(
    'also expose Services of type LoadBalancer that set no loadBalancerClass',
    flag,
    false,
  ),
  defaultProxyClass: textSetting(
    'ProxyClass of Services, Ingresses and ProxyGroups that name none; default: none',
    '<name>',
  ),
  clusterDomain: setting('DNS domain of the cluster', text, 'cluster.local', '<domain>'),
  ingressAddresses: listSetting(
    'networks from which ingress ProxyGroups get addresses under headscale; at most one per IP family',
    '<networks>',
  ),
  cleanup: setting(
    'remove all nodes and created objects, then exit; custom resources stay but lose their finalizers',
    bareFlag,
    false,
  ),
  dryRun: setting('print all objects as YAML, change nothing, then exit', bareFlag, false),
  opsListen: opsListenSetting(9004),
  logLevel: logLevelSetting('info'),
};

/** Checks of the operator's settings: the kubeconfig must be readable, and required settings must be set. */
export const OPERATOR_CHECKS: readonly SettingCheck<typeof OPERATOR_SETTINGS>[] = [
  ...readableFiles('kubeconfig'),
  {
    settings: ['kubeconfig'],
    check({ kubeconfig }, environment) {
      const { KUBERNETES_SERVICE_HOST, KUBECONFIG } = Object.fromEntries(environment);
      if (kubeconfig === undefined && KUBERNETES_SERVICE_HOST === undefined && (KUBECONFIG ?? '') === '')
        throw new Error('kubeconfig: outside a cluster, name one (--kubeconfig)');
    },
  },
  {
    settings: ['control', 'controlUrl'],
    check({ control, controlUrl }) {
      if (control === 'headscale' && controlUrl === undefined)
        throw new Error('control=headscale needs controlUrl: name where headscale is (--control-url)');
    },
  },
];

/** Returns the kinds of resources that an operator reconciles in addition to Recorders. */
export function reconciledBy({ controllers }: Pick<OperatorConfig, 'controllers'>) {
  const has = (name: Controller): boolean => controllers.includes(name);
  return {
    proxyGroups: has('proxy-groups'),
    services: has('services'),
    ingresses: has('ingresses'),
    gateways: has('gateways'),
    connectors: has('connectors'),
    dnsConfigs: has('dns-configs'),
  };
}

export type OperatorConfig = SettingValues<typeof OPERATOR_SETTINGS>;
