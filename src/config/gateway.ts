import { LOG_LEVELS } from './log-levels.ts';
import { setting, type SettingValues } from './settings.ts';
import {
  byteSize,
  flag,
  listenAddress,
  loopback,
  oneOf,
  optionalListenAddress,
  optionalText,
  originList,
  textList,
  wholeNumber,
  workerCount,
} from './values.ts';

/** Everything `tailcast gateway` can be told. */
export const GATEWAY_SETTINGS = {
  listen: setting('address the gateway accepts kubectl on', listenAddress, loopback(8443), '<host:port>'),
  mode: setting(
    'auth: impersonate the tailnet identity; noauth: pass the client’s own credentials through',
    oneOf('auth', 'noauth'),
    'auth',
    '<auth|noauth>',
  ),
  kubeconfig: setting(
    'kubeconfig of the API server; default: in-cluster account',
    optionalText,
    undefined,
    '<file>',
  ),
  context: setting(
    'context of the kubeconfig; default: its current-context',
    optionalText,
    undefined,
    '<name>',
  ),
  identity: setting(
    'who says who is calling: tailscaled, or one fixed identity for loopback listeners',
    oneOf('tailscale', 'static'),
    'tailscale',
    '<tailscale|static>',
  ),
  staticIdentity: setting('JSON file with the fixed identity', optionalText, undefined, '<file>'),
  socket: setting(
    'tailscaled’s LocalAPI socket',
    optionalText,
    '/var/run/tailscale/tailscaled.sock',
    '<path>',
  ),
  proxyProtocol: setting(
    'require: every connection must begin with a PROXY header (tailscale serve); off: none may',
    oneOf('off', 'require'),
    'off',
    '<off|require>',
  ),
  tls: setting(
    'where the certificate comes from; none: TLS ends in front of the gateway',
    oneOf('self-signed', 'files', 'tailscale', 'none'),
    'self-signed',
    '<kind>',
  ),
  tlsCert: setting('certificate chain (PEM) for tls=files', optionalText, undefined, '<file>'),
  tlsKey: setting('private key (PEM) for tls=files', optionalText, undefined, '<file>'),
  tlsNames: setting('names and addresses a self-signed certificate is for', textList, [], '<names>'),
  policy: setting(
    'YAML file that says what may be done and what is recorded; default: see docs/policy.md',
    optionalText,
    undefined,
    '<file>',
  ),
  auditExtras: setting(
    'name the caller’s node and each session in extras of the impersonated user, so that the cluster’s audit log can be joined with recordings; needs impersonate on userextras',
    flag,
    false,
    '<true|false>',
  ),
  claimableGroups: setting(
    'groups that this gateway may ever claim for a caller, whatever grants say; a name may end with *; default: any',
    textList,
    [],
    '<groups>',
  ),
  checkRights: setting(
    'warn at start-up when the gateway’s own account may do more than impersonate',
    flag,
    true,
    '<true|false>',
  ),
  hostNames: setting(
    'names and addresses under which clients may call; default: any, with identity=static those of this machine and tlsNames',
    textList,
    [],
    '<names>',
  ),
  dashboardOrigins: setting(
    'origins of dashboards, such as Headlamp, whose own server passes on what the browser sent; default: none',
    originList,
    [],
    '<origins>',
  ),
  stateDirectory: setting('where the self-signed CA is kept', optionalText, undefined, '<directory>'),
  maxConnections: setting(
    'client connections of one process; requests on more are answered 429, and far more are closed',
    wholeNumber(10, 1_000_000),
    20_000,
    '<n>',
  ),
  recorderDial: setting(
    'how recorders are reached: direct (kernel networking) or through tailscaled (userspace networking)',
    oneOf('direct', 'tailscale'),
    'direct',
    '<direct|tailscale>',
  ),
  portal: setting(
    'show recordings under /-/recordings/ to whom the recorder shows them; it must name this gateway in trustedGateways',
    flag,
    true,
    '<true|false>',
  ),
  portalRecorders: setting(
    'recorders that the portal asks, as tags or ip:port; default: those that the caller’s own grants name',
    textList,
    [],
    '<recorders>',
  ),
  recorderWindow: setting(
    'bytes of one session that may wait for a recorder’s acknowledgement; 0: users see nothing before it is durable',
    byteSize(0, 1024 ** 3),
    8 * 1024 ** 2,
    '<size>',
  ),
  lateDeliveryBytes: setting(
    'bytes of recordings that may wait in one process for a recorder, after the one they were for was lost; 0: they are dropped',
    byteSize(0, 16 * 1024 ** 3),
    64 * 1024 ** 2,
    '<size>',
  ),
  lateDeliverySeconds: setting('how long such bytes may wait', wholeNumber(1, 30 * 86_400), 86_400, '<n>'),
  workers: setting('processes that share the port; auto: one for each CPU', workerCount, 1, '<n|auto>'),
  opsListen: setting(
    'address of /livez, /readyz and /metrics, or off',
    optionalListenAddress,
    loopback(9002),
    '<host:port|off>',
  ),
  accessLog: setting('write one line per request', flag, true, '<true|false>'),
  drainSeconds: setting(
    'how long running sessions may go on after a stop',
    wholeNumber(0, 86_400),
    30,
    '<n>',
  ),
  logLevel: setting('least important level that is logged', oneOf(...LOG_LEVELS), 'info', '<level>'),
};

export type GatewayConfig = SettingValues<typeof GATEWAY_SETTINGS>;
