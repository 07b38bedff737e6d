import { API_SERVER_SETTINGS, logLevelSetting, opsListenSetting, SOCKET_SETTING } from './role-settings.ts';
import { setting, type SettingValues } from './settings.ts';
import {
  byteSize,
  flag,
  listenAddress,
  listSetting,
  loopback,
  oneOf,
  orAuto,
  originList,
  textSetting,
  wholeNumber,
} from './values.ts';

const TLS_KINDS = ['self-signed', 'files', 'tailscale', 'none'] as const;
/** Sources of a gateway's certificate. */
export type TlsKind = (typeof TLS_KINDS)[number];

/** Settings of `tailcast gateway`. */
export const GATEWAY_SETTINGS = {
  listen: setting('address for kubectl and other clients', listenAddress, loopback(8443)),
  mode: setting(
    'auth: impersonate the tailnet identity; noauth: pass the client’s credentials through',
    oneOf('auth', 'noauth'),
    'auth',
  ),
  ...API_SERVER_SETTINGS,
  clusters: textSetting(
    'YAML file with the clusters behind this gateway, see docs/clusters.md; default: one cluster, from kubeconfig',
    '<file>',
  ),
  k3s: setting(
    'on a k3s server: log in with the --vpn-auth of k3s, create the gateway’s account with the admin kubeconfig, and ' +
      'refuse the paths of k3s itself; see docs/k3s.md',
    flag,
    false,
  ),
  vpnAuth: textSetting(
    'for k3s: the value of its --vpn-auth, or a file that contains this value; default: from the settings of k3s',
    '<string|/file>',
  ),
  identity: setting(
    'source of the caller’s identity: tailscaled, or (only on loopback listeners) one fixed identity',
    oneOf('tailscale', 'static'),
    'tailscale',
  ),
  staticIdentity: textSetting('JSON file with the fixed identity of identity=static', '<file>'),
  socket: SOCKET_SETTING,
  proxyProtocol: setting(
    'require: every connection must start with a PROXY header, as from tailscale serve; off: no PROXY headers',
    oneOf('off', 'require'),
    'off',
  ),
  tls: setting<TlsKind | undefined>(
    'source of the certificate (none: a proxy in front terminates TLS); default: tailscale if identity=tailscale, ' +
      'otherwise self-signed',
    oneOf(...TLS_KINDS),
    undefined,
    '<kind>',
  ),
  tlsCert: textSetting('certificate chain (PEM) for tls=files', '<file>'),
  tlsKey: textSetting('private key (PEM) for tls=files', '<file>'),
  tlsNames: listSetting('names and addresses in a self-signed certificate', '<names>'),
  policy: textSetting(
    'YAML file with the action for each class of requests; default: the policy in docs/identity.md',
    '<file>',
  ),
  auditExtras: setting(
    'add the caller’s node and the session id to the audit log of the cluster; needs the right to impersonate ' +
      'userextras',
    flag,
    false,
  ),
  claimableGroups: listSetting(
    'groups that grants may assign; if set, access requests cannot name users; a name may end with *; default: all',
    '<groups>',
  ),
  hostNames: listSetting(
    'host names that clients may use; default: all, but with identity=static only localhost and tlsNames',
    '<names>',
  ),
  dashboardOrigins: setting(
    'browser origins of dashboards that forward the Origin header, such as Headlamp; default: none',
    originList,
    [],
  ),
  stateDirectory: textSetting('directory for the self-signed CA and pending output', '<directory>'),
  maxRequests: setting(
    'maximum concurrent requests of one process, including watches; auto: derived from half of its memory limit',
    orAuto(wholeNumber(1, 1_000_000)),
    undefined,
  ),
  requestsPerUser: setting(
    'maximum concurrent requests of one user in one process; more get 429; auto: a third of maxRequests',
    orAuto(wholeNumber(1, 1_000_000)),
    undefined,
  ),
  recorderDial: setting(
    'connections to recorders: direct (kernel networking), or tailscale: through tailscaled (userspace networking)',
    oneOf('direct', 'tailscale'),
    'direct',
  ),
  portal: setting(
    'show recordings at /-/recordings/; recorders must name this gateway in trustedGateways',
    flag,
    true,
  ),
  portalRecorders: listSetting(
    'recorders of the portal, as tags or ip:port; default: the recorders in the caller’s grants',
    '<recorders>',
  ),
  portalPort: setting(
    'port of recorders for viewers, if the recorders set readListen; default: the port for uploads',
    orAuto(wholeNumber(1, 65_535)),
    undefined,
    '<port|auto>',
  ),
  accessReview: setting(
    'in mode auth, send an access review as the caller before and during sessions and proxied requests; without a ' +
      'response, the request is refused',
    flag,
    false,
  ),
  recorderWindow: setting(
    'maximum unacknowledged output of one session; 0: show only output that the recorder has synced',
    byteSize(0, 1024 ** 3),
    8 * 1024 ** 2,
  ),
  execUpstream: setting(
    'protocol to the API server for recorded WebSocket sessions in mode auth: spdy proves that output is complete; ' +
      'same: WebSocket',
    oneOf('spdy', 'same'),
    'spdy',
  ),
  outputBufferMemory: setting(
    'maximum pending output of one session in memory; auto: an eighth of the limit for all sessions',
    orAuto(byteSize(64 * 1024, 1024 ** 4)),
    undefined,
  ),
  outputBufferDisk: setting(
    'maximum pending output of one session in a file, used when outputBufferMemory is full; 0: no file',
    byteSize(0, 1024 ** 4),
    1024 ** 3,
  ),
  lateDirectory: textSetting(
    'directory for encrypted output that no recorder has acknowledged; gateways may share it; off: memory only; ' +
      'default: late/ in the state directory',
    '<directory|off>',
  ),
  lateKeyFile: textSetting(
    'file with the key that encrypts lateDirectory (32 bytes in base64); gateways that share a directory need ' +
      'the same key; default: the systemd credential late.key, or late.key in the state directory',
    '<file>',
  ),
  lateDiskBytes: setting(
    'maximum bytes of one process in lateDirectory, half of them per user; above it, sessions wait for their recorder',
    byteSize(1024 ** 2, 1024 ** 4),
    1024 ** 3,
  ),
  opsListen: opsListenSetting(9002),
  accessLog: setting('write one line per request to standard output', flag, true),
  drainSeconds: setting('time for open sessions after a stop signal', wholeNumber(0, 86_400), 30),
  logLevel: logLevelSetting('info'),
};

export type GatewayConfig = SettingValues<typeof GATEWAY_SETTINGS>;
