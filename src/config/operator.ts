import { API_SERVER_SETTINGS, logLevelSetting, opsListenSetting } from './role-settings.ts';
import { readableFiles } from './readable-files.ts';
import { setting, type ParseValue, type SettingCheck, type SettingValues } from './settings.ts';
import {
  bareFlag,
  flag,
  listSetting,
  oneOf,
  text,
  textList,
  textSetting,
  webAddress,
  wholeNumber,
} from './values.ts';

/** Items such as `tag:web`, for all namespaces, and `prod=tag:db`, for the namespace `prod`. */
const allowedTags: ParseValue<readonly { readonly namespace: string | undefined; readonly tag: string }[]> = (
  raw,
) =>
  textList(raw).map((item) => {
    const match = /^(?:([a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?)=)?(tag:[a-zA-Z][a-zA-Z0-9-]*)$/.exec(item);
    if (match?.[2] === undefined)
      throw new Error(`tag:<name> or <namespace>=tag:<name> is expected, not ${JSON.stringify(item)}`);
    return { namespace: match[1], tag: match[2] };
  });

/** Everything `tailcast operator` can be told. */
export const OPERATOR_SETTINGS = {
  namespace: textSetting('namespace that everything is made in; default: the operator’s own', '<name>'),
  ...API_SERVER_SETTINGS,
  control: setting(
    'whose API makes auth keys and removes nodes',
    oneOf('tailscale', 'headscale'),
    'tailscale',
  ),
  controlUrl: setting('address of that API; default: Tailscale’s', webAddress, undefined),
  loginServer: setting(
    'control server the recorders’ nodes log in to; default: Tailscale’s, or controlUrl with headscale',
    webAddress,
    undefined,
  ),
  clientIdFile: setting('file with the OAuth client id (tailscale)', text, '/oauth/client_id', '<file>'),
  clientSecretFile: setting(
    'file with the OAuth client secret (tailscale)',
    text,
    '/oauth/client_secret',
    '<file>',
  ),
  apiKeyFile: setting('file with the API key (headscale)', text, '/headscale/api_key', '<file>'),
  defaultTags: setting('tags of resources that name none', textList, ['tag:k8s'], '<tags>'),
  allowedTags: setting(
    'tags besides the default ones that Services, Ingresses and Gateways may name: a tag for all namespaces, or <namespace>=<tag>',
    allowedTags,
    [],
    '<tags>',
  ),
  recorderUploaders: listSetting(
    'tags or stable node IDs that may upload to recorders; default: every node that reaches them, which may then make up recordings',
    '<tags>',
  ),
  recorderImage: textSetting(
    'image of gateways and forwarders, and of recorders and nameservers that name none; default: this version of tailcast',
    '<image>',
  ),
  tailscaleImage: setting(
    'image of the tailscale container beside each of them',
    text,
    'tailscale/tailscale:v1.102.5@sha256:c507f3a2a6ab1cabd8d809b98edeb41edbd5c3fb6ad9632ffd098b4c7d0b4065',
    '<image>',
  ),
  tailnetDomain: textSetting(
    'MagicDNS domain: players answer under their full names, and the nameserver for everything below it',
    '<domain>',
  ),
  leaderElection: setting('work only while holding a Lease', flag, true),
  leaseName: setting('name of that Lease', text, 'tailcast-operator', '<name>'),
  proxyGroups: setting(
    'see to ProxyGroups (those of type egress need services as well, those of type ingress services or ingresses); false where their CRD is not installed',
    flag,
    true,
  ),
  services: setting(
    'see to Services that are reached from the tailnet or lead there; false where the operator may not read Services',
    flag,
    true,
  ),
  ingresses: setting(
    'see to Ingresses of the class tailscale; false where the operator may not read Ingresses',
    flag,
    true,
  ),
  gateways: setting(
    'see to Gateways of a GatewayClass whose controllerName is tailcast.dev/gateway, and to their HTTPRoutes (Gateway API)',
    flag,
    false,
  ),
  connectors: setting('see to Connectors; false where their CRD is not installed', flag, true),
  dnsConfigs: setting('see to DNSConfigs; false where their CRD is not installed', flag, true),
  defaultLoadBalancer: setting(
    'Services of type LoadBalancer that name no class are exposed to the tailnet as well',
    flag,
    false,
  ),
  defaultProxyClass: textSetting(
    'ProxyClass of Services, Ingresses and groups that name none; default: none',
    '<name>',
  ),
  clusterDomain: setting(
    'DNS domain of the cluster, for the names that egress Services lead to',
    text,
    'cluster.local',
    '<domain>',
  ),
  ingressAddresses: listSetting(
    'networks, of IPv4 and IPv6 one at most, from which Services and Ingresses of groups get addresses where the control server has no Tailscale Services (headscale)',
    '<networks>',
  ),
  workers: setting('resources worked on at the same time', wholeNumber(1, 64), 16),
  resyncSeconds: setting('how often every resource is looked at anyway', wholeNumber(1, 86_400), 600),
  cleanup: setting(
    'take back everything that the operator made, nodes first, and end; the resources stay, without its finalizers',
    bareFlag,
    false,
  ),
  dryRun: setting('print the objects of every resource as YAML, change nothing, and end', bareFlag, false),
  opsListen: opsListenSetting(9004),
  logLevel: logLevelSetting('info'),
};

/** Rules for settings that need each other. */
export const OPERATOR_CHECKS: readonly SettingCheck<typeof OPERATOR_SETTINGS>[] = [
  ...readableFiles('kubeconfig'),
  {
    settings: ['control', 'controlUrl'],
    check({ control, controlUrl }) {
      if (control === 'headscale' && controlUrl === undefined)
        throw new Error('control=headscale needs controlUrl: name where headscale is (--control-url)');
    },
  },
];

export type OperatorConfig = SettingValues<typeof OPERATOR_SETTINGS>;
