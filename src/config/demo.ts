import { logLevelSetting } from './role-settings.ts';
import { setting, type SettingValues } from './settings.ts';
import { listenAddress, loopback, optionalText, fileSetting, textSetting } from './values.ts';

/** Everything `tailcast demo` (`npm start`) can be told. All listeners are on loopback. */
export const DEMO_SETTINGS = {
  kubeconfig: fileSetting('use this real cluster instead of the embedded one', '<file>'),
  context: textSetting('context of that kubeconfig', '<name>'),
  listen: setting('address of the gateway', listenAddress, loopback(0)),
  recorderListen: setting('address of the recorder and its player', listenAddress, loopback(0)),
  directory: textSetting(
    'where recordings, certificate and kubeconfig are kept; default: the state directory',
    '<directory>',
  ),
  login: setting('the identity everybody has in the demo', optionalText, 'demo@example.com', '<login>'),
  logLevel: logLevelSetting('warn'),
};

export type DemoConfig = SettingValues<typeof DEMO_SETTINGS>;
