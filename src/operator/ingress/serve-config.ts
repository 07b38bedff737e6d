/** The serve configuration of an Ingress's tailscaled. Pure. */
import { isIP } from 'node:net';
import { REFUSED, redirectStatusOf } from '../../wire/ingress-table.ts';
import type { HostRoutes, IngressProblem, Upstream } from './routes.ts';

/** What is known of the node. */
export interface ServingNode {
  /** MagicDNS name; undefined until it has joined. */
  readonly dnsName: string | undefined;
  readonly addresses: readonly string[];
  /** Whether the control server gives it a certificate for its name. */
  readonly hasCertificate: boolean;
}

export interface ServeChoices {
  /** Names by which rules mean the node itself: the first label, or the whole name. */
  readonly hostname: string;
  readonly redirect: boolean;
  readonly funnel: boolean;
}

interface Handler {
  readonly Proxy?: string;
  readonly Redirect?: string;
  readonly Path?: string;
}

/** As tailscaled has it, as much as is used. */
export interface ServeConfig {
  readonly TCP?: Readonly<Record<string, { readonly HTTPS?: boolean; readonly HTTP?: boolean }>>;
  readonly Web?: Readonly<Record<string, { readonly Handlers: Readonly<Record<string, Handler>> }>>;
  readonly AllowFunnel?: Readonly<Record<string, boolean>>;
}

export interface ServePlan {
  readonly config: ServeConfig;
  /** At which it is reached; none while there is nothing to serve. */
  readonly ports: readonly number[];
  readonly problems: readonly IngressProblem[];
}

/** containerboot puts the node's name in its place, when it has a certificate. */
export const CERT_DOMAIN = '${TS_CERT_DOMAIN}';
const TO_HTTPS = 'https://${HOST}${REQUEST_URI}';
/** There is no such file, which tailscaled answers with 404. */
const NOWHERE = '/nonexistent';

/** What tailscaled is to do with the routes of an Ingress. */
export function planServe(
  hosts: ReadonlyMap<string, HostRoutes>,
  node: ServingNode,
  choices: ServeChoices,
): ServePlan {
  return node.hasCertificate ? planHttps(hosts, node, choices) : planHttp(hosts, node, choices);
}

/** There is a certificate for the node's name and no other. */
export function planHttps(
  hosts: ReadonlyMap<string, HostRoutes>,
  node: ServingNode,
  choices: ServeChoices,
): ServePlan {
  const { own, others } = divide(hosts, node, choices);
  const problems = others.map(([host]) => ({
    reason: 'UnsupportedHost',
    message: `spec.rules: the control server gives no certificate for ${host}, but for the node’s own name: leave the host out, or name ${choices.hostname}`,
  }));
  const handlers = handlersOf(own);
  if (Object.keys(handlers).length === 0) return { config: {}, ports: [], problems };
  const redirects = Object.fromEntries(
    Object.keys(handlers).map((path) => [path, { Redirect: `301:${TO_HTTPS}` }]),
  );
  const { redirect, funnel } = choices;
  return {
    config: {
      TCP: { '443': { HTTPS: true }, ...(redirect ? { '80': { HTTP: true } } : {}) },
      Web: {
        [`${CERT_DOMAIN}:443`]: { Handlers: handlers },
        ...(redirect ? { [`${CERT_DOMAIN}:80`]: { Handlers: redirects } } : {}),
      },
      ...(funnel ? { AllowFunnel: { [`${CERT_DOMAIN}:443`]: true } } : {}),
    },
    ports: redirect ? [443, 80] : [443],
    problems,
  };
}

/**
 * HTTP, within the tailnet's own encryption. tailscaled looks a host up with the tailnet's domain behind it when it is
 * not below that domain: so any name can be one, and an address, too.
 */
export function planHttp(
  hosts: ReadonlyMap<string, HostRoutes>,
  node: ServingNode,
  choices: ServeChoices,
): ServePlan {
  const { dnsName } = node;
  if (dnsName === undefined) return { config: {}, ports: [], problems: [] };
  const domain = dnsName.slice(dnsName.indexOf('.') + 1);
  const { own, others } = divide(hosts, node, choices);
  const below = (host: string): string => (host.endsWith(`.${domain}`) ? host : `${host}.${domain}`);
  const names: readonly (readonly [string, HostRoutes])[] = [
    ...[dnsName, ...node.addresses.filter((address) => isIP(address) === 4)].map(
      (name) => [below(name), own] as const,
    ),
    ...others.map(([host, routes]) => [below(host), routes] as const),
  ];
  const web = names
    .map(([name, routes]) => [`${name}:80`, { Handlers: handlersOf(routes) }] as const)
    .filter(([, { Handlers }]) => Object.keys(Handlers).length > 0);
  if (web.length === 0) return { config: {}, ports: [], problems: [] };
  return {
    config: { TCP: { '80': { HTTP: true } }, Web: Object.fromEntries(web) },
    ports: [80],
    problems: [],
  };
}

/** The node's own routes, whatever it is called in the rules, and those of other hosts. */
function divide(
  hosts: ReadonlyMap<string, HostRoutes>,
  { dnsName }: ServingNode,
  { hostname }: ServeChoices,
): { readonly own: HostRoutes; readonly others: readonly (readonly [string, HostRoutes])[] } {
  const isOwn = (host: string): boolean => host === '' || host === hostname || host === dnsName;
  const prefixes = new Map<string, Upstream>();
  const exact = new Map<string, Upstream>();
  // Rules that name the host win over those for all.
  const own = [...hosts].filter(([host]) => isOwn(host)).toSorted(([a], [b]) => b.length - a.length);
  for (const [, routes] of own) {
    for (const [path, to] of routes.prefixes) if (!prefixes.has(path)) prefixes.set(path, to);
    for (const [path, to] of routes.exact) if (!exact.has(path)) exact.set(path, to);
  }
  return { own: { prefixes, exact }, others: [...hosts].filter(([host]) => !isOwn(host)) };
}

/**
 * tailscaled asks for the path itself, then for what it lies below, the nearest first. A path that is meant exactly is one
 * handler for itself, and another one, with a slash behind it, which leads whatever lies below to where it would go without.
 */
function handlersOf({ prefixes, exact }: HostRoutes): Record<string, Handler> {
  const handlers: Record<string, Handler> = {};
  for (const [path, to] of prefixes) handlers[path] = proxyTo(to, path);
  for (const [path, to] of exact) {
    const above = nearest(prefixes, path);
    handlers[path] = proxyTo(to, path);
    handlers[`${path}/`] = above === undefined ? { Path: NOWHERE } : proxyTo(above, path);
  }
  return handlers;
}

/** tailscaled takes the path of the handler away, and the target puts it back. */
function proxyTo(upstream: Upstream, path: string): Handler {
  if (upstream === REFUSED) return { Path: NOWHERE };
  const status = redirectStatusOf(upstream);
  if (status !== undefined) return { Redirect: `${status}:${TO_HTTPS}` };
  return { Proxy: `${upstream}${path}` };
}

/** Where the longest prefix in whole parts leads. */
export function nearest(prefixes: ReadonlyMap<string, Upstream>, path: string): Upstream | undefined {
  for (let at = path; at !== ''; at = at.slice(0, at.lastIndexOf('/'))) {
    const found = prefixes.get(at);
    if (found !== undefined) return found;
  }
  return prefixes.get('/');
}
