/** The configuration files for the tailscaled of a proxy, one for each version of the file format. Pure. */
import { z } from 'zod';
import type { SpecOptions, Duty, Proxy } from './workload.ts';
import { jsonOrUndefined } from '../../wire/json-value.ts';

/** Names of the configuration files. */
export const CONFIG_FILES = ['cap-95.hujson', 'cap-107.hujson'] as const;

/** Name of the file with the serve configuration. */
export const SERVE_CONFIG = 'serve-config';
/** Name of the file with the table for tailcast's ingress server; see `wire/ingress-table`. */
export const TABLE = 'ingress-table';
/**
 * Name of the file with the forwarding rules. The rules are in the same Secret as the field in which containerboot
 * reports the applied rules, so the names must differ.
 */
export const RULES = 'ingress-rules';

/** Configuration file in the oldest format that supports Tailscale Services. */
const OFFERING = 'cap-107.hujson';

/** Routes and Tailscale Services that a configuration advertises. */
export interface Offer {
  readonly routes: readonly string[];
  readonly services: readonly string[];
}

const offerSchema = z.object({
  AdvertiseRoutes: z.array(z.string()).nullish(),
  AdvertiseServices: z.array(z.string()).nullish(),
});

/**
 * Returns the routes and Tailscale Services that a configuration advertises; empty without a configuration.
 *
 * @param data data of the Secret with the configuration
 */
export function offerIn(data: ReadonlyMap<string, string>): Offer {
  const { data: said } = offerSchema.safeParse(jsonOrUndefined(data.get(OFFERING) ?? ''));
  return { routes: said?.AdvertiseRoutes ?? [], services: said?.AdvertiseServices ?? [] };
}

/** Settings of a ProxyClass that change the configuration files. */
export interface ConfigChoices {
  readonly acceptRoutes: boolean;
}

/**
 * Returns the configuration files, with their names as keys. containerboot selects the file with the highest version
 * that it supports, and reads the file again after changes. A configuration always contains the list of routes,
 * because tailscaled advertises a route until it reads a list that lacks this route.
 *
 * @param authKey undefined after the node has joined
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
