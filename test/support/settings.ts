/** Settings of roles in tests, without an environment and a file. */
import { GATEWAY_SETTINGS, type GatewayConfig } from '../../src/config/gateway.ts';
import { RECORDER_SETTINGS, type RecorderConfig } from '../../src/config/recorder.ts';
import { readSettings, type SettingValues } from '../../src/config/settings.ts';

type Flags = Readonly<Record<string, unknown>>;

export function settingsOf<Table extends Parameters<typeof readSettings>[0]>(
  table: Table,
  flags: Flags,
): SettingValues<Table> {
  return readSettings(table, {
    flags: new Map(Object.entries(flags)),
    environment: new Map(),
    file: undefined,
  });
}

/**
 * Returns the settings of a gateway on a free port, with one identity for all callers, without health checks and access
 * log.
 */
export function gatewaySettings(flags: Flags): GatewayConfig {
  const common = { identity: 'static', listen: '127.0.0.1:0', opsListen: 'off', accessLog: false };
  return settingsOf(GATEWAY_SETTINGS, { ...common, ...flags });
}

export function recorderSettings(flags: Flags): RecorderConfig {
  return settingsOf(RECORDER_SETTINGS, flags);
}
