import { ARCHIVE_FORMATS } from './archive-formats.ts';
import { logLevelSetting, opsListenSetting, SOCKET_SETTING } from './role-settings.ts';
import { setting, type ParseValue, type SettingValues } from './settings.ts';
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

/** Server-side encryption of a bucket. If `key` is undefined, the bucket's default key is used. */
interface Encryption {
  readonly kind: 'AES256' | 'aws:kms';
  readonly key: string | undefined;
}

const encryption: ParseValue<Encryption | undefined> = (raw) => {
  const match = /^(none|AES256|aws:kms)(?:=(\S+))?$/.exec(String(raw));
  const kind = match?.[1];
  const key = match?.[2];
  if (kind === 'none' && key === undefined) return undefined;
  if (kind === 'aws:kms' || (kind === 'AES256' && key === undefined)) return { kind, key };
  throw new Error(`none, AES256, aws:kms or aws:kms=key is expected, not ${JSON.stringify(raw)}`);
};

/** Object-lock retention of a recording. */
interface Retention {
  readonly mode: 'GOVERNANCE' | 'COMPLIANCE';
  readonly days: number;
}

const MAX_DAYS = 36_500;

/** Parses a retention in days, such as `365` or `365:compliance`. 0 disables object lock. */
const retention: ParseValue<Retention | undefined> = (raw) => {
  const match = /^(\d{1,5})(:compliance|:governance)?$/.exec(String(raw));
  const days = Number(match?.[1]);
  if (match === null || days > MAX_DAYS)
    throw new Error(`days such as 365 or 365:compliance are expected, not ${JSON.stringify(raw)}`);
  return days === 0 ? undefined : { mode: match[2] === ':compliance' ? 'COMPLIANCE' : 'GOVERNANCE', days };
};

/** Settings of `tailcast recorder`. */
export const RECORDER_SETTINGS = {
  listen: setting('address for uploads and viewers', listenAddress, loopback(8080)),
  readListen: setting(
    'separate address for viewers; --listen then accepts only uploads; off: --listen serves both',
    optionalListenAddress,
    undefined,
  ),
  proxyProtocol: setting(
    'additional loopback address for viewers, e.g. 127.0.0.77:8080, which requires a PROXY header before every ' +
      'connection, as from tailscale serve',
    optionalListenAddress,
    undefined,
  ),
  store: textSetting(
    'store of the recordings: a directory, s3://bucket or s3://bucket/prefix',
    '<directory|s3://…>',
  ),
  spool: textSetting(
    'local directory for unfinished sessions; default: the path of the store with .spool appended; required with s3://',
    '<directory>',
  ),
  archive: setting(
    'form of stored recordings: plain asciicast, compressed (zstd), or compressed and encrypted with sealKeys (sealed)',
    oneOf(...ARCHIVE_FORMATS),
    'plain',
  ),
  sealKeys: textSetting(
    'file with encryption keys, 32 bytes in base64 per line; the first key encrypts, all keys decrypt',
    '<file>',
  ),
  s3Endpoint: setting('URL of the S3 store; default: AWS', webAddress, undefined),
  s3Region: textSetting('region of the bucket; default: derived from the endpoint', '<region>'),
  s3Encryption: setting(
    'encryption by the store: AES256, aws:kms (default key of the bucket) or aws:kms=key; default: none',
    encryption,
    undefined,
    '<AES256|aws:kms[=key]>',
  ),
  s3Checksums: setting(
    'checksum of uploads; use md5 or none if the store lacks CRC-32',
    oneOf('crc32', 'md5', 'none'),
    'crc32',
  ),
  s3Retention: setting(
    'object lock of recordings, in days; with :compliance, not even administrators can lift the lock; default: none',
    retention,
    undefined,
    '<days[:compliance]>',
  ),
  ui: setting('serve the player', flag, true),
  hosts: listSetting('additional host names of the player; loopback is always allowed', '<names>'),
  identity: setting(
    'source of the uploader’s identity: tailscaled, or loopback, which accepts only this machine',
    oneOf('tailscale', 'loopback'),
    'tailscale',
  ),
  socket: SOCKET_SETTING,
  uploaders: listSetting(
    'tags or stable node IDs that may upload; default: all nodes that the tailnet policy allows',
    '<tags>',
  ),
  viewers: listSetting(
    'rules for viewers, each a login, a tag or *, optionally with =cluster:…, =namespace:…, =user:…, =tag:…, =review ' +
      'or =end; default: no restrictions',
    '<rules>',
  ),
  trustedGateways: listSetting(
    'tags or stable node IDs of gateways with a portal; requires the setting viewers',
    '<tags>',
  ),
  evidenceKey: textSetting(
    'private key that signs recordings and the log (Ed25519, PKCS#8 PEM), created if missing; default: a key ' +
      'in the spool',
    '<path>',
  ),
  recorderKeys: textSetting(
    'file with public evidence keys (PEM) of the other recorders of the store; the recorder trusts only these ' +
      'keys and its own',
    '<file>',
  ),
  search: setting('let viewers search names and screen text', flag, false),
  searchText: setting(
    'text to index in addition to names: all screen text (all), commands only (commands), or none (off)',
    oneOf('off', 'commands', 'all'),
    'all',
  ),
  searchUrl: setting(
    'URL of an OpenSearch server for the index; default: files in the spool',
    webAddress,
    undefined,
  ),
  searchName: setting(
    'prefix of index names at searchUrl, the same for all recorders of a store',
    text,
    'tailcast',
  ),
  searchCa: textSetting('CA certificates (PEM) for searchUrl; default: the CAs of Node.js', '<file>'),
  searchCredentials: textSetting(
    'file with user:password or a token for searchUrl; needs https:// or a loopback address',
    '<file>',
  ),
  alerts: textSetting('YAML file with alert rules and webhooks; rules with a query need search', '<file>'),
  eventLayout: setting(
    'layout of API request events; batch: one signed document per minute; reference: also one object per event, ' +
      'as in tsrecorder',
    oneOf('batch', 'reference'),
    'reference',
  ),
  retentionDays: setting('days until recordings and events are removed; 0: never', wholeNumber(0, 36_500), 0),
  maxStoreBytes: setting(
    'maximum size of the store; above it, unsigned recordings are removed first, then the oldest recordings of ' +
      'the user with the most bytes; 0: no limit',
    byteSize(0, 1024 ** 5),
    0,
  ),
  minRetentionDays: setting(
    'minimum age, in days, of recordings that maxStoreBytes may remove; if all are younger and the store is full, ' +
      'new sessions are refused',
    wholeNumber(0, 36_500),
    1,
  ),
  maxSessionBytes: setting('maximum size of a recording', byteSize(1024 ** 2, 1024 ** 4), 16 * 1024 ** 3),
  opsListen: opsListenSetting(9003),
  drainSeconds: setting('time for open uploads after a stop signal', wholeNumber(0, 86_400), 10),
  logLevel: logLevelSetting('info'),
};

export type RecorderConfig = SettingValues<typeof RECORDER_SETTINGS>;
