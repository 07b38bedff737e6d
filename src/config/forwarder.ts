import { logLevelSetting, opsListenSetting, SOCKET_SETTING } from './role-settings.ts';
import { setting, type SettingCheck, type SettingValues } from './settings.ts';
import { portList, textSetting } from './values.ts';

/** Settings of `tailcast forwarder`. */
export const FORWARDER_SETTINGS = {
  target: textSetting('name or address of the target in the tailnet', '<host>'),
  ports: setting('ports to listen on, which are also the ports of the target', portList, [], '<ports>'),
  socket: SOCKET_SETTING,
  opsListen: opsListenSetting(9005),
  logLevel: logLevelSetting('info'),
};

/** Checks that a target and ports are set, because a forwarder without them would have no connections to forward. */
export const FORWARDER_CHECKS: readonly SettingCheck<typeof FORWARDER_SETTINGS>[] = [
  {
    settings: ['target'],
    check({ target }) {
      if (target === undefined) throw new Error('target: name where connections go (--target)');
    },
  },
  {
    settings: ['ports'],
    check({ ports }) {
      if (ports.length === 0) throw new Error('ports: name those to listen on (--ports)');
    },
  },
];

export type ForwarderConfig = SettingValues<typeof FORWARDER_SETTINGS>;
