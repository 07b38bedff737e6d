/** Settings that have the same meaning in several roles. */
import type { ListenAddress } from '../listen.ts';
import { LOG_LEVELS, type LogLevel } from '../observe/log-levels.ts';
import { setting, type Setting } from './settings.ts';
import { loopback, oneOf, optionalListenAddress, optionalText, textSetting } from './values.ts';

/** Settings of the cluster that a role connects to. */
export const API_SERVER_SETTINGS = {
  kubeconfig: textSetting('kubeconfig of the API server; default: the service account of the pod', '<file>'),
  context: textSetting('context of the kubeconfig; default: its current context', '<name>'),
};

/** Setting for the socket of tailscaled's LocalAPI, which identifies nodes and users. */
export const SOCKET_SETTING = setting(
  'LocalAPI socket of tailscaled',
  optionalText,
  '/var/run/tailscale/tailscaled.sock',
  '<path>',
);

/** @param port default port; the host of the default address is loopback */
export function opsListenSetting(port: number): Setting<ListenAddress | undefined> {
  return setting('address for /livez, /readyz and /metrics', optionalListenAddress, loopback(port));
}

export function logLevelSetting(fallback: LogLevel): Setting<LogLevel> {
  return setting('minimum level of log lines', oneOf(...LOG_LEVELS), fallback, '<level>');
}
