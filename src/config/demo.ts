import { logLevelSetting } from './role-settings.ts';
import { readableFiles, writableDirectories } from './setting-paths.ts';
import { setting, type SettingCheck, type SettingValues } from './settings.ts';
import { listenAddress, loopback, textSetting, wholeNumber } from './values.ts';

/** Settings of `tailcast demo` (`npm start`). All listeners are on loopback. */
export const DEMO_SETTINGS = {
  kubeconfig: textSetting('kubeconfig of a real cluster instead of the embedded cluster', '<file>'),
  context: textSetting('context of that kubeconfig', '<name>'),
  clusters: setting('number of embedded clusters behind the gateway', wholeNumber(1, 9), 1),
  listen: setting('address of the gateway', listenAddress, loopback(0)),
  recorderListen: setting('address of the recorder and its player', listenAddress, loopback(0)),
  directory: textSetting(
    'directory for recordings, certificate and kubeconfig; default: the state directory',
    '<directory>',
  ),
  logLevel: logLevelSetting('warn'),
};

/** Checks of the files and directories in the settings. */
export const DEMO_CHECKS: readonly SettingCheck<typeof DEMO_SETTINGS>[] = [
  ...readableFiles<typeof DEMO_SETTINGS>('kubeconfig'),
  ...writableDirectories<typeof DEMO_SETTINGS>('directory'),
];

export type DemoConfig = SettingValues<typeof DEMO_SETTINGS>;
