import { API_SERVER_SETTINGS, logLevelSetting, opsListenSetting } from './role-settings.ts';
import { setting, type SettingValues } from './settings.ts';
import { flag, oneOf, optionalText, text, textList, webAddress, wholeNumber } from './values.ts';

/** Everything `tailcast operator` can be told. */
export const OPERATOR_SETTINGS = {
  namespace: setting(
    'namespace that everything is made in; default: the operator’s own',
    optionalText,
    undefined,
    '<name>',
  ),
  ...API_SERVER_SETTINGS,
  control: setting(
    'whose API makes auth keys and removes nodes',
    oneOf('tailscale', 'headscale'),
    'tailscale',
    '<tailscale|headscale>',
  ),
  controlUrl: setting('address of that API; default: Tailscale’s', webAddress, undefined, '<url>'),
  loginServer: setting(
    'control server the recorders’ nodes log in to; default: Tailscale’s, or controlUrl with headscale',
    webAddress,
    undefined,
    '<url>',
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
  recorderUploaders: setting(
    'tags or stable node IDs that may upload to recorders; default: every node that reaches them, which may then make up recordings',
    textList,
    [],
    '<tags>',
  ),
  recorderImage: setting(
    'image of gateways, and of recorders that name none; default: this version of tailcast',
    optionalText,
    undefined,
    '<image>',
  ),
  tailscaleImage: setting(
    'image of the tailscale container beside each of them',
    text,
    'tailscale/tailscale:v1.102.5@sha256:c507f3a2a6ab1cabd8d809b98edeb41edbd5c3fb6ad9632ffd098b4c7d0b4065',
    '<image>',
  ),
  tailnetDomain: setting(
    'MagicDNS domain, so that players answer under their full names',
    optionalText,
    undefined,
    '<domain>',
  ),
  leaderElection: setting('work only while holding a Lease', flag, true, '<true|false>'),
  leaseName: setting('name of that Lease', text, 'tailcast-operator', '<name>'),
  proxyGroups: setting(
    'see to ProxyGroups of type kube-apiserver as well; false where their CRD is not installed',
    flag,
    true,
    '<true|false>',
  ),
  services: setting(
    'see to Services that are reached from the tailnet or lead there; false where the operator may not read Services',
    flag,
    true,
    '<true|false>',
  ),
  connectors: setting(
    'see to Connectors; false where their CRD is not installed',
    flag,
    true,
    '<true|false>',
  ),
  defaultLoadBalancer: setting(
    'Services of type LoadBalancer that name no class are exposed to the tailnet as well',
    flag,
    false,
    '<true|false>',
  ),
  defaultProxyClass: setting(
    'ProxyClass of Services that name none; default: none',
    optionalText,
    undefined,
    '<name>',
  ),
  clusterDomain: setting(
    'DNS domain of the cluster, for the names that egress Services lead to',
    text,
    'cluster.local',
    '<domain>',
  ),
  workers: setting('resources worked on at the same time', wholeNumber(1, 64), 4, '<n>'),
  resyncSeconds: setting('how often every resource is looked at anyway', wholeNumber(1, 86_400), 600, '<n>'),
  dryRun: setting('print the objects of every resource as YAML, change nothing, and end', flag, false),
  opsListen: opsListenSetting(9004),
  logLevel: logLevelSetting('info'),
};

export type OperatorConfig = SettingValues<typeof OPERATOR_SETTINGS>;
