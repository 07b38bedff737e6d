import { logLevelSetting, opsListenSetting } from './role-settings.ts';
import { setting, type SettingValues } from './settings.ts';
import { listenAddress, text } from './values.ts';

/** Settings of `tailcast nameserver`. */
export const NAMESERVER_SETTINGS = {
  listen: setting('address of the nameserver, UDP and TCP', listenAddress, { host: '::', port: 1053 }),
  records: setting(
    'file with names and addresses from the operator; reloaded on change',
    text,
    '/config/records.json',
    '<file>',
  ),
  opsListen: opsListenSetting(9005),
  logLevel: logLevelSetting('info'),
};

export type NameserverConfig = SettingValues<typeof NAMESERVER_SETTINGS>;
