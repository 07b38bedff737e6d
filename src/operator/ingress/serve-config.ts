/** The serve configuration of an Ingress's tailscaled. Pure. */
import { isIP } from 'node:net';
import { REFUSED, redirectStatusOf } from '../../wire/ingress-table.ts';
import type { HostRoutes, IngressProblem, Upstream } from './routes.ts';

/** The node that serves an Ingress. */
export interface ServingNode {
  /** MagicDNS name; undefined until the node has joined. */
  readonly dnsName: string | undefined;
  readonly addresses: readonly string[];
  /** True if the control server issues a certificate for the node's name. */
  readonly hasCertificate: boolean;
}

export interface ServeChoices {
  /** First label of the node's name. Rules of an Ingress may name the node by this label or by its full name. */
  readonly hostname: string;
  readonly redirect: boolean;
  readonly funnel: boolean;
}

interface Handler {
  readonly Proxy?: string;
  readonly Redirect?: string;
  readonly Path?: string;
}

/** The part of tailscaled's serve configuration that the operator uses. */
export interface ServeConfig {
  readonly TCP?: Readonly<Record<string, { readonly HTTPS?: boolean; readonly HTTP?: boolean }>>;
  readonly Web?: Readonly<Record<string, { readonly Handlers: Readonly<Record<string, Handler>> }>>;
  readonly AllowFunnel?: Readonly<Record<string, boolean>>;
}

export interface ServePlan {
  readonly config: ServeConfig;
  /** Ports on which the node listens; empty if the node serves nothing. */
  readonly ports: readonly number[];
  readonly problems: readonly IngressProblem[];
}

/** Placeholder for the node's name. containerboot replaces it if the node has a certificate. */
export const CERT_DOMAIN = '${TS_CERT_DOMAIN}';
const TO_HTTPS = 'https://${HOST}${REQUEST_URI}';
/** Path of a file that does not exist, for which tailscaled returns 404. */
const NOWHERE = '/nonexistent';

/** Plans the serve configuration for the routes of an Ingress. */
export function planServe(
  hosts: ReadonlyMap<string, HostRoutes>,
  node: ServingNode,
  choices: ServeChoices,
): ServePlan {
  return node.hasCertificate ? planHttps(hosts, node, choices) : planHttp(hosts, node, choices);
}

/** Plans HTTPS, which is possible only for the node's own name, because no other host has a certificate. */
export function planHttps(
  hosts: ReadonlyMap<string, HostRoutes>,
  node: ServingNode,
  choices: ServeChoices,
): ServePlan {
  const { own, others } = divide(hosts, node, choices);
  const problems = others.map(([host]) => ({
    reason: 'UnsupportedHost',
    message:
      `spec.rules: the control server gives no certificate for ${host}, but for the node’s own name: ` +
      `leave the host out, or name ${choices.hostname}`,
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
 * Plans HTTP without TLS; the tailnet encrypts the traffic. Any name or address can be a host. For a host outside the
 * tailnet's domain, tailscaled appends this domain before it searches the configuration, so the plan appends it too.
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

/** Separates the routes for the node's own names from the routes for other hosts. */
function divide(
  hosts: ReadonlyMap<string, HostRoutes>,
  { dnsName }: ServingNode,
  { hostname }: ServeChoices,
): { readonly own: HostRoutes; readonly others: readonly (readonly [string, HostRoutes])[] } {
  const isOwn = (host: string): boolean => host === '' || host === hostname || host === dnsName;
  const prefixes = new Map<string, Upstream>();
  const exact = new Map<string, Upstream>();
  // Rules for one name take precedence over rules for all hosts.
  const own = [...hosts].filter(([host]) => isOwn(host)).toSorted(([a], [b]) => b.length - a.length);
  for (const [, routes] of own) {
    for (const [path, to] of routes.prefixes) if (!prefixes.has(path)) prefixes.set(path, to);
    for (const [path, to] of routes.exact) if (!exact.has(path)) exact.set(path, to);
  }
  return { own: { prefixes, exact }, others: [...hosts].filter(([host]) => !isOwn(host)) };
}

/**
 * Returns the handlers of a host. tailscaled searches for the path itself, then for its parents, nearest first. An
 * exact path therefore needs two handlers: one for the path, and one with a trailing slash, which sends longer paths
 * to the backend of the next shorter prefix.
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

/**
 * Returns the handler for a path. tailscaled removes the path of the handler from the request, so the target of the
 * handler adds this path again.
 */
function proxyTo(upstream: Upstream, path: string): Handler {
  if (upstream === REFUSED) return { Path: NOWHERE };
  const status = redirectStatusOf(upstream);
  if (status !== undefined) return { Redirect: `${status}:${TO_HTTPS}` };
  return { Proxy: `${upstream}${path}` };
}

/** Returns the backend of the longest prefix of the path. Only complete path segments match. */
export function nearest(prefixes: ReadonlyMap<string, Upstream>, path: string): Upstream | undefined {
  for (let at = path; at !== ''; at = at.slice(0, at.lastIndexOf('/'))) {
    const found = prefixes.get(at);
    if (found !== undefined) return found;
  }
  return prefixes.get('/');
}
