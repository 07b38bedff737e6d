/** The configuration file of a proxy's tailscaled, one per version of its format. Pure. */
import type { SpecOptions } from '../nodes/node-group.ts';
import type { Proxy } from './proxy.ts';

/** What the files are called. */
export const CONFIG_FILES = ['cap-95.hujson', 'cap-107.hujson'] as const;

/** What a node is to serve lies beside them. */
export const SERVE_CONFIG = 'serve-config';

/** What a ProxyClass decides about it. */
export interface ConfigChoices {
  readonly acceptRoutes: boolean;
}

/**
 * The files by name. containerboot takes the one with the highest number that it understands, and reads it again when it
 * changes. What is withdrawn must be said: a route stays until a list without it is read, so the list is always there.
 *
 * @param authKey undefined once the node is known.
 */
export function configFiles(
  { duty, hostname }: Proxy,
  ordinal: number,
  authKey: string | undefined,
  { acceptRoutes }: ConfigChoices,
  { loginServer }: Pick<SpecOptions, 'loginServer'>,
): Readonly<Record<string, string>> {
  const config = {
    Version: 'alpha0',
    Locked: false,
    Hostname: hostname(ordinal),
    ServerURL: loginServer,
    ...(authKey === undefined ? {} : { AuthKey: authKey }),
    acceptDNS: false,
    acceptRoutes,
    AdvertiseRoutes: duty.kind === 'connector' ? duty.routes : [],
    NoStatefulFiltering: true,
  };
  const appConnector = { AppConnector: { Advertise: duty.kind === 'connector' && duty.appConnector } };
  return {
    'cap-95.hujson': JSON.stringify(config),
    'cap-107.hujson': JSON.stringify({ ...config, ...appConnector }),
    ...('serveConfig' in duty ? { [SERVE_CONFIG]: duty.serveConfig } : {}),
  };
}
