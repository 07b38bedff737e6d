/** Topics that group the settings in `--help` and docs/config.md, and the format in which both show defaults. */
import { defaultText, type Setting, type SettingTable } from './settings.ts';

/** The settings of each topic, in the order of the page. A setting has the same topic in all roles. */
const TOPICS: Readonly<Record<string, readonly string[]>> = {
  'Addresses and TLS': [
    'listen',
    'readListen',
    'recorderListen',
    'proxyProtocol',
    'tls',
    'tlsCert',
    'tlsKey',
    'tlsNames',
    'hostNames',
    'hosts',
    'dashboardOrigins',
    'ui',
    'table',
    'records',
    'target',
    'ports',
  ],
  'API server': [
    'kubeconfig',
    'context',
    'clusters',
    'k3s',
    'namespace',
    'mode',
    'auditExtras',
    'accessReview',
    'clusterDomain',
  ],
  'Tailnet and identity': [
    'identity',
    'staticIdentity',
    'socket',
    'vpnAuth',
    'recorderDial',
    'tailnetDomain',
  ],
  'Control server': ['control', 'controlUrl', 'loginServer', 'credentials'],
  Access: ['policy', 'claimableGroups', 'uploaders', 'viewers', 'trustedGateways'],
  'Resources and tags': [
    'controllers',
    'defaultTags',
    'allowedTags',
    'recorderUploaders',
    'defaultLoadBalancer',
    'defaultProxyClass',
    'ingressAddresses',
    'recorderImage',
    'tailscaleImage',
  ],
  Storage: [
    'stateDirectory',
    'directory',
    'store',
    'spool',
    'archive',
    'sealKeys',
    's3Endpoint',
    's3Region',
    's3Encryption',
    's3Checksums',
    's3Retention',
    'retentionDays',
    'maxStoreBytes',
    'minRetentionDays',
    'maxSessionBytes',
    'eventLayout',
  ],
  Evidence: ['evidenceKey', 'recorderKeys'],
  'Delivery to recorders': ['recorderWindow', 'lateDirectory', 'lateKeyFile', 'lateDiskBytes'],
  'Search and alerts': [
    'search',
    'searchText',
    'searchUrl',
    'searchName',
    'searchCa',
    'searchCredentials',
    'alerts',
  ],
  Portal: ['portal', 'portalRecorders', 'portalPort'],
  Operation: ['opsListen', 'logLevel', 'accessLog', 'drainSeconds', 'lease'],
  Actions: ['cleanup', 'dryRun'],
  Advanced: ['execUpstream', 'maxRequests', 'requestsPerUser', 'outputBufferMemory', 'outputBufferDisk'],
};

/** Returns the topics that have settings in a table, in order. */
export function byTopic(table: SettingTable): readonly {
  readonly topic: string;
  readonly entries: readonly (readonly [key: string, setting: Setting<unknown>])[];
}[] {
  return Object.entries(TOPICS)
    .map(([topic, keys]) => ({
      topic,
      entries: keys.flatMap((key) => (table[key] === undefined ? [] : [[key, table[key]] as const])),
    }))
    .filter(({ entries }) => entries.length > 0);
}

/**
 * Returns a default in the format in which users write it, with a unit for durations. Returns undefined if there is no
 * default.
 */
export function shownDefault(key: string, setting: Setting<unknown>): string | undefined {
  const text = defaultText(setting);
  if (typeof setting.fallback !== 'number') return text;
  if (key.endsWith('Seconds')) return `${setting.fallback} s`;
  return key.endsWith('Days') ? `${setting.fallback} d` : text;
}
