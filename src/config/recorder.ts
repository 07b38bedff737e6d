import { ARCHIVE_FORMATS } from './archive-formats.ts';
import { logLevelSetting, opsListenSetting, SOCKET_SETTING } from './role-settings.ts';
import { setting, type SettingValues } from './settings.ts';
import {
  byteSize,
  flag,
  listenAddress,
  listSetting,
  loopback,
  oneOf,
  optionalListenAddress,
  text,
  textSetting,
  webAddress,
  wholeNumber,
} from './values.ts';

/** Everything `tailcast recorder` can be told. */
export const RECORDER_SETTINGS = {
  listen: setting('address that takes uploads and serves the player', listenAddress, loopback(8080)),
  readListen: setting(
    'address for viewers alone: player, API and live views; listen then takes uploads alone; off: listen serves both',
    optionalListenAddress,
    undefined,
  ),
  store: textSetting(
    'where recordings are kept: a directory, or s3://bucket or s3://bucket/prefix',
    '<directory|s3://…>',
  ),
  spool: textSetting(
    'local directory for sessions that are not finished; default: beside the store (<store>.spool), needed with s3://',
    '<directory>',
  ),
  archive: setting(
    'how recordings are kept: plain (asciicast, as other readers of the store expect), zstd (compressed; ours read all), or sealed (compressed and encrypted with --seal-keys)',
    oneOf(...ARCHIVE_FORMATS),
    'plain',
  ),
  sealKeys: textSetting(
    'file with keys that recordings are sealed with, each 32 bytes in base64 on a line of its own; the first seals, all open',
    '<file>',
  ),
  s3Endpoint: setting('URL of the S3 store; default: that of AWS', webAddress, undefined),
  s3Region: textSetting('region of the bucket; default: as the endpoint says', '<region>'),
  s3PathStyle: setting(
    'name the bucket in the path: auto does so wherever the store is not AWS',
    oneOf('auto', 'always', 'never'),
    'auto',
  ),
  s3Encryption: setting('encryption by the store', oneOf('none', 'AES256', 'aws:kms'), 'none'),
  s3KmsKey: textSetting('key for aws:kms; default: that of the bucket', '<key>'),
  s3Checksums: setting(
    'how content is protected on its way; md5 or none for stores that do not know CRC-32',
    oneOf('crc32', 'md5', 'none'),
    'crc32',
  ),
  s3RetentionDays: setting(
    'object lock: days for which nobody can remove a recording; 0 for none',
    wholeNumber(0, 36_500),
    0,
  ),
  s3RetentionMode: setting(
    'object lock: governance can be lifted by some, compliance by nobody',
    oneOf('governance', 'compliance'),
    'governance',
  ),
  checkpointSeconds: setting(
    'with s3://: how late the bytes of open sessions are in the bucket',
    wholeNumber(1, 3600),
    10,
  ),
  leaseSeconds: setting(
    'with s3://: how long a recorder may be silent before another finishes its sessions',
    wholeNumber(20, 86_400),
    60,
  ),
  ui: setting('serve the player', flag, true),
  hosts: listSetting('host names the player may be opened under, besides loopback', '<names>'),
  identity: setting(
    'who says which node uploads: tailscaled, or loopback (this machine only)',
    oneOf('tailscale', 'loopback'),
    'tailscale',
  ),
  socket: SOCKET_SETTING,
  uploaders: listSetting(
    'tags or stable node IDs that may upload; default: every node the tailnet policy lets in',
    '<tags>',
  ),
  viewers: listSetting(
    'who may see what: <who> or <who>=<what>, where who is *, a login or a tag, and what is namespace:…, user:… or tag:…; default: everybody everything',
    '<rules>',
  ),
  trustedGateways: listSetting(
    'tags or stable node IDs of gateways whose portal (/-/recordings/) may show recordings to whom the gateway names; needs viewers',
    '<tags>',
  ),
  evidenceKey: textSetting(
    'private key that signs recordings and log (Ed25519, PKCS#8 PEM), made if missing; default: one in the spool',
    '<path>',
  ),
  recorderKeys: textSetting(
    'file with the public evidence keys of the other recorders of the same store, PEM; only sessions and recordings that they or this recorder signed count as verified, and only those are taken over',
    '<file>',
  ),
  search: setting(
    'keep an index in the spool, so that recordings are found by what they were and by what was on their screen',
    flag,
    false,
  ),
  searchText: setting(
    'with search: what of recordings is indexed besides their names: all that was on the screen, commands, or off',
    oneOf('off', 'commands', 'all'),
    'all',
  ),
  searchUrl: setting(
    'with search: URL of an OpenSearch that has the index, for many nodes or several recorders; default: files in the spool',
    webAddress,
    undefined,
  ),
  searchName: setting(
    'what the names of indices at searchUrl begin with; recorders of one store share one, those of another store need another',
    text,
    'tailcast',
  ),
  searchShards: setting('shards of an index that is made at searchUrl', wholeNumber(1, 1000), 1),
  searchCa: textSetting(
    'PEM file of the authorities that are trusted for searchUrl; default: those of Node',
    '<file>',
  ),
  searchCredentials: textSetting(
    'file with user:password or a token for searchUrl, on one line; needs https:// or a loopback address',
    '<file>',
  ),
  alerts: textSetting(
    'file with rules, queries that are held against sessions as they come in, and the webhooks that are told; needs search',
    '<file>',
  ),
  eventLayout: setting(
    'how API request events are kept: a document per minute, or an object each as the reference does',
    oneOf('batch', 'reference'),
    'batch',
  ),
  retentionDays: setting(
    'days after which recordings and events are removed; 0 for never',
    wholeNumber(0, 36_500),
    0,
  ),
  maxStoreBytes: setting(
    'maximum size of the store; above it, the oldest recordings of the largest user are removed; 0: no limit',
    byteSize(0, 1024 ** 5),
    0,
  ),
  minRetentionDays: setting(
    'days for which --max-store-bytes removes no recording; if that keeps the store above its limit, new sessions are refused',
    wholeNumber(0, 36_500),
    1,
  ),
  resumeSeconds: setting(
    'how long a session whose upload was cut may be continued here',
    wholeNumber(1, 3600),
    60,
  ),
  maxSessionBytes: setting('largest recording', byteSize(1024 ** 2, 1024 ** 4), 16 * 1024 ** 3),
  earlyCollection: setting(
    'collect what is taken in leaves in memory before V8 would: less CPU and memory under bulk; false: for whoever measures or suspects it',
    flag,
    true,
  ),
  opsListen: opsListenSetting(9003),
  drainSeconds: setting('how long running uploads may go on after a stop', wholeNumber(0, 86_400), 10),
  logLevel: logLevelSetting('info'),
};

export type RecorderConfig = SettingValues<typeof RECORDER_SETTINGS>;
