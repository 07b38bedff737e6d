/** Settings that mean the same in several roles. */
import type { ListenAddress } from '../listen.ts';
import { LOG_LEVELS, type LogLevel } from '../observe/log-levels.ts';
import { setting, type Setting } from './settings.ts';
import { loopback, oneOf, optionalListenAddress, optionalText, textSetting } from './values.ts';

/** The cluster that a role works for. */
export const API_SERVER_SETTINGS = {
  kubeconfig: textSetting('kubeconfig of the API server; default: in-cluster account', '<file>'),
  context: textSetting('context of the kubeconfig; default: its current-context', '<name>'),
};

/** Whom a role asks about nodes and people. */
export const SOCKET_SETTING = setting(
  'tailscaled’s LocalAPI socket',
  optionalText,
  '/var/run/tailscale/tailscaled.sock',
  '<path>',
);

/** @param port by default, on loopback */
export function opsListenSetting(port: number): Setting<ListenAddress | undefined> {
  return setting('address of /livez, /readyz and /metrics, or off', optionalListenAddress, loopback(port));
}

export function logLevelSetting(fallback: LogLevel): Setting<LogLevel> {
  return setting('least important level that is logged', oneOf(...LOG_LEVELS), fallback, '<level>');
}
