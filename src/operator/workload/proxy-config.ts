/** The configuration file of a proxy's tailscaled, one per version of its format. Pure. */
import { z } from 'zod';
import type { SpecOptions, Duty, Proxy } from './workload.ts';
import { jsonOrUndefined } from '../../wire/json-value.ts';

/** What the files are called. */
export const CONFIG_FILES = ['cap-95.hujson', 'cap-107.hujson'] as const;

/** What a node is to serve lies beside them. */
export const SERVE_CONFIG = 'serve-config';
/** What a server of ours is to serve, with certificates; see `wire/ingress-table`. */
export const TABLE = 'ingress-table';
/** Where packets go. Its name is not that of the member in which containerboot says what it has read. */
export const RULES = 'ingress-rules';

/** The version from which on a configuration can say what a node offers besides routes. */
const OFFERING = 'cap-107.hujson';

/** What a configuration says that a node offers. */
export interface Offer {
  readonly routes: readonly string[];
  readonly services: readonly string[];
}

const offerSchema = z.object({
  AdvertiseRoutes: z.array(z.string()).nullish(),
  AdvertiseServices: z.array(z.string()).nullish(),
});

/** @param data of the Secret that hands the configuration to a pod */
export function offerIn(data: ReadonlyMap<string, string>): Offer {
  const { data: said } = offerSchema.safeParse(jsonOrUndefined(data.get(OFFERING) ?? ''));
  return { routes: said?.AdvertiseRoutes ?? [], services: said?.AdvertiseServices ?? [] };
}

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
  const orders = duty.kind === 'ingress-group' ? duty.orders(ordinal) : undefined;
  const config = {
    Version: 'alpha0',
    Locked: false,
    Hostname: hostname(ordinal),
    ServerURL: loginServer,
    ...(authKey === undefined ? {} : { AuthKey: authKey }),
    acceptDNS: false,
    acceptRoutes,
    AdvertiseRoutes: routesOf(duty, ordinal),
    NoStatefulFiltering: true,
  };
  const appConnector = { AppConnector: { Advertise: duty.kind === 'connector' && duty.appConnector } };
  const services = orders === undefined ? {} : { AdvertiseServices: orders.services };
  return {
    'cap-95.hujson': JSON.stringify(config),
    [OFFERING]: JSON.stringify({ ...config, ...appConnector, ...services }),
    ...('serveConfig' in duty ? { [SERVE_CONFIG]: duty.serveConfig } : {}),
    ...(duty.kind === 'web' && duty.table !== undefined ? { [TABLE]: duty.table } : {}),
    ...(orders === undefined
      ? {}
      : { [SERVE_CONFIG]: JSON.stringify(orders.serveConfig), [RULES]: JSON.stringify(orders.rules) }),
  };
}

function routesOf(duty: Duty, ordinal: number): readonly string[] {
  if (duty.kind === 'connector') return duty.routes;
  return duty.kind === 'ingress-group' ? duty.orders(ordinal).routes : [];
}
