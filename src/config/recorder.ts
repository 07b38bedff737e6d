import { LOG_LEVELS } from './log-levels.ts';
import { setting, type SettingValues } from './settings.ts';
import {
  byteSize,
  flag,
  listenAddress,
  oneOf,
  optionalListenAddress,
  optionalText,
  textList,
  wholeNumber,
  type ListenAddress,
} from './values.ts';

const loopback = (port: number): ListenAddress => ({ host: '127.0.0.1', port });

/** Everything `tailcast recorder` can be told. */
export const RECORDER_SETTINGS = {
  listen: setting(
    'address that takes uploads and serves the player',
    listenAddress,
    loopback(8080),
    '<host:port>',
  ),
  store: setting('directory the recordings are kept in', optionalText, undefined, '<directory>'),
  spool: setting(
    'directory for sessions that are not finished; default: .spool in the store',
    optionalText,
    undefined,
    '<directory>',
  ),
  ui: setting('serve the player', flag, true, '<true|false>'),
  hosts: setting('host names the player may be opened under, besides loopback', textList, [], '<names>'),
  identity: setting(
    'who says which node uploads: tailscaled, or loopback (this machine only)',
    oneOf('tailscale', 'loopback'),
    'tailscale',
    '<tailscale|loopback>',
  ),
  socket: setting(
    'tailscaled’s LocalAPI socket',
    optionalText,
    '/var/run/tailscale/tailscaled.sock',
    '<path>',
  ),
  uploaders: setting(
    'tags or stable node IDs that may upload; default: every node the tailnet policy lets in',
    textList,
    [],
    '<tags>',
  ),
  maxSessionBytes: setting('largest recording', byteSize(1024 ** 2, 1024 ** 4), 16 * 1024 ** 3, '<size>'),
  opsListen: setting(
    'address of /livez, /readyz and /metrics, or off',
    optionalListenAddress,
    loopback(9003),
    '<host:port|off>',
  ),
  drainSeconds: setting('how long running uploads may go on after a stop', wholeNumber(0, 86_400), 10, '<n>'),
  logLevel: setting('least important level that is logged', oneOf(...LOG_LEVELS), 'info', '<level>'),
};

export type RecorderConfig = SettingValues<typeof RECORDER_SETTINGS>;
