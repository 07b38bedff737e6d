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

/** Everything `tailcast gateway` can be told. */
export const GATEWAY_SETTINGS = {
  listen: setting('address the gateway accepts kubectl on', listenAddress, loopback(8443)),
  mode: setting(
    'auth: impersonate the tailnet identity; noauth: pass the client’s own credentials through',
    oneOf('auth', 'noauth'),
    'auth',
  ),
  ...API_SERVER_SETTINGS,
  identity: setting(
    'who says who is calling: tailscaled, or one fixed identity for loopback listeners',
    oneOf('tailscale', 'static'),
    'tailscale',
  ),
  staticIdentity: textSetting('JSON file with the fixed identity', '<file>'),
  socket: SOCKET_SETTING,
  proxyProtocol: setting(
    'require: every connection must begin with a PROXY header (tailscale serve); off: none may',
    oneOf('off', 'require'),
    'off',
  ),
  tls: setting(
    'where the certificate comes from; none: TLS ends in front of the gateway',
    oneOf('self-signed', 'files', 'tailscale', 'none'),
    'self-signed',
    '<kind>',
  ),
  tlsCert: textSetting('certificate chain (PEM) for tls=files', '<file>'),
  tlsKey: textSetting('private key (PEM) for tls=files', '<file>'),
  tlsNames: listSetting('names and addresses a self-signed certificate is for', '<names>'),
  policy: textSetting(
    'YAML file that says what may be done and what is recorded; default: see docs/identity.md',
    '<file>',
  ),
  auditExtras: setting(
    'name the caller’s node and each session in extras of the impersonated user, so that the cluster’s audit log can be joined with recordings; needs impersonate on userextras',
    flag,
    false,
  ),
  claimableGroups: listSetting(
    'groups that this gateway may ever claim for a caller, whatever grants say; a name may end with *; default: any',
    '<groups>',
  ),
  checkRights: setting(
    'warn at start-up when the gateway’s own account may do more than impersonate',
    flag,
    true,
  ),
  hostNames: listSetting(
    'names and addresses under which clients may call; default: any, with identity=static those of this machine and tlsNames',
    '<names>',
  ),
  dashboardOrigins: setting(
    'origins of dashboards, such as Headlamp, whose own server passes on what the browser sent; default: none',
    originList,
    [],
  ),
  stateDirectory: textSetting(
    'where the self-signed CA and what waits for recorders are kept',
    '<directory>',
  ),
  maxConnections: setting(
    'client connections of one process; requests on more are answered 429, and far more are closed',
    wholeNumber(10, 1_000_000),
    20_000,
  ),
  maxRequests: setting(
    'requests that one process serves at a time, watches included; auto: as many as half of its memory is enough for',
    orAuto(wholeNumber(1, 1_000_000)),
    undefined,
  ),
  requestsPerUser: setting(
    'requests of one user that one process serves at a time; on more it answers 429; auto: a third of maxRequests',
    orAuto(wholeNumber(1, 1_000_000)),
    undefined,
  ),
  connectionsPerUser: setting(
    'connections of one user, and from one address, that one process serves; auto: as many as requestsPerUser',
    orAuto(wholeNumber(1, 1_000_000)),
    undefined,
  ),
  bytesPerUser: setting(
    'bytes that may wait in one process for the clients of one user before it begins nothing new for them; auto: a sixteenth of its memory',
    orAuto(byteSize(1024, 1024 ** 4)),
    undefined,
  ),
  recorderDial: setting(
    'how recorders are reached: direct (kernel networking) or through tailscaled (userspace networking)',
    oneOf('direct', 'tailscale'),
    'direct',
  ),
  portal: setting(
    'show recordings under /-/recordings/ to whom the recorder shows them; it must name this gateway in trustedGateways',
    flag,
    true,
  ),
  portalRecorders: listSetting(
    'recorders that the portal asks, as tags or ip:port; default: those that the caller’s own grants name',
    '<recorders>',
  ),
  portalPort: setting(
    'port on which these recorders serve viewers (their readListen), where a tag or a grant names them; default: that of uploads',
    orAuto(wholeNumber(1, 65_535)),
    undefined,
    '<port|auto>',
  ),
  accessReview: setting(
    'in auth mode: ask the API server, as the caller, whether the caller may create the session, before sessions and requests through proxies and again while they last; no answer is a refusal',
    flag,
    false,
  ),
  recorderWindow: setting(
    'bytes of one session that may wait for a recorder’s acknowledgement; 0: users see nothing before it is durable',
    byteSize(0, 1024 ** 3),
    8 * 1024 ** 2,
  ),
  execUpstream: setting(
    'what the API server is asked for where a client wants a recorded exec or attach over WebSocket; spdy: in auth mode SPDY, which loses nothing where a server between would translate; same: a WebSocket',
    oneOf('spdy', 'same'),
    'spdy',
  ),
  outputBufferMemory: setting(
    'output of one session that waits in memory for its client or recorder, before it waits in a file; auto: an eighth of what all may have',
    orAuto(byteSize(64 * 1024, 1024 ** 4)),
    undefined,
  ),
  outputBufferDisk: setting(
    'output of one session that waits in a file, before its API server waits; 0: no file',
    byteSize(0, 1024 ** 4),
    1024 ** 3,
  ),
  outputBufferTotalMemory: setting(
    'the same in memory, of all sessions of one process; auto: a quarter of its memory',
    orAuto(byteSize(1024 ** 2, 1024 ** 4)),
    undefined,
  ),
  outputBufferTotalDisk: setting(
    'the same in files, of all sessions of one process',
    byteSize(0, 16 * 1024 ** 4),
    4 * 1024 ** 3,
  ),
  outputBufferDirectory: textSetting(
    'where these files are made; they have no name and go with the process; default: the directory for temporary files',
    '<directory>',
  ),
  lateDeliveryBytes: setting(
    'bytes of recordings that may wait in one process for a recorder, after the one they were for was lost; 0: they are dropped',
    byteSize(0, 16 * 1024 ** 3),
    64 * 1024 ** 2,
  ),
  lateDeliverySeconds: setting('how long such bytes may wait', wholeNumber(1, 30 * 86_400), 86_400),
  lateDirectory: textSetting(
    'where output is kept, encrypted, until a recorder has acknowledged it, so that it outlives this process; may be shared by gateways; off: it is kept in memory only; default: late in the state directory',
    '<directory|off>',
  ),
  lateKeyFile: textSetting(
    'key of these files, 32 bytes in base64, the same for gateways that share them; default: the systemd credential late.key, or else late.key in the state directory, which is created if missing',
    '<file>',
  ),
  lateDiskBytes: setting(
    'bytes that one process may have there; sessions beyond wait for their recorder before they show anything',
    byteSize(1024 ** 2, 1024 ** 4),
    1024 ** 3,
  ),
  earlyCollection: setting(
    'collect what passes through leaves in memory before V8 would: less CPU and memory under bulk; false: for whoever measures or suspects it',
    flag,
    true,
  ),
  opsListen: opsListenSetting(9002),
  accessLog: setting('write one line per request', flag, true),
  drainSeconds: setting('how long running sessions may go on after a stop', wholeNumber(0, 86_400), 30),
  logLevel: logLevelSetting('info'),
};

export type GatewayConfig = SettingValues<typeof GATEWAY_SETTINGS>;
