import { logLevelSetting, opsListenSetting, SOCKET_SETTING } from './role-settings.ts';
import { setting, type SettingValues } from './settings.ts';
import { listenAddress, text } from './values.ts';

/** Settings of `tailcast ingress`. */
export const INGRESS_SETTINGS = {
  table: setting(
    'file with hosts, paths and certificates from the operator; reloaded on change',
    text,
    '/etc/tailcast-ingress/ingress-table',
    '<file>',
  ),
  listen: setting('address for HTTPS connections of tailscaled, with PROXY headers', listenAddress, {
    host: '127.0.0.77',
    port: 8443,
  }),
  socket: SOCKET_SETTING,
  opsListen: opsListenSetting(9005),
  logLevel: logLevelSetting('info'),
};

export type IngressConfig = SettingValues<typeof INGRESS_SETTINGS>;
