/** Plans the configuration of a Gateway's node from the attached routes. Pure. */
import { olderFirst } from '../../kube/object-age.ts';
import type { IngressTable, TableHost } from '../../wire/ingress-table.ts';
import { addPath, type HostRoutes, type OpenRoutes } from '../ingress/routes.ts';
import { planHttp, planHttps, type ServeConfig, type ServingNode } from '../ingress/serve-config.ts';
import { forwardTo, type TlsSecret } from '../ingress/table.ts';
import type { KubeObject } from '../kube-object.ts';
import { failed, succeeded, type Verdict } from '../workload/status.ts';
import { commonHosts, createPathBudget, inTurn, withWider } from './hosts.ts';
import { planListeners, namesCertificates, usesControlCertificate, type ListenerPlan } from './listeners.ts';
import { gatewayOf, type Gateway, type HttpRoute, type ParentRef } from './resource.ts';
import { readRouteRules, type ReadRules, type Server } from './rules.ts';

export interface GatewayFacts {
  readonly hostname: string;
  readonly node: ServingNode;
  readonly secrets: ReadonlyMap<string, TlsSecret>;
  /** Returns the Services that are backends of a route, with their names as map keys. */
  readonly servicesOf: (route: HttpRoute) => ReadonlyMap<string, KubeObject>;
  readonly nowMs: number;
}

/** Result for a route and one of its parent references. */
export interface AttachedParent {
  readonly parentRef: ParentRef;
  readonly accepted: Verdict;
  readonly refs: Verdict;
  /** Message about skipped rules; undefined if no rule is skipped, or every rule. */
  readonly partial: string | undefined;
  /** Listeners that accept the route, with the hosts of the route at each of them. */
  readonly at: readonly { readonly listener: ListenerPlan; readonly hosts: readonly string[] }[];
}

export interface RoutePlan {
  readonly route: HttpRoute;
  readonly parents: readonly AttachedParent[];
}

export interface GatewayPlan {
  readonly server: Server;
  readonly listeners: readonly ListenerPlan[];
  readonly routes: readonly RoutePlan[];
  /** The serve configuration of tailscaled. */
  readonly config: { readonly TCP?: Readonly<Record<string, object>> };
  /** Ingress table for tailcast's ingress server; undefined if tailscaled serves the requests. */
  readonly table: IngressTable | undefined;
}

/**
 * Maximum total size of the routes of one Gateway, in bytes. A Secret has at most 1 MiB. The limit is lower, because
 * the Secret also contains certificates, and stores routes for the node's own name twice.
 */
const MAX_ROUTE_BYTES = 192 * 1024;

/**
 * @param routes routes of the Gateway, in any order; if several routes have a rule for the same host and path, the rule
 * of the oldest route applies
 */
export function planGateway(
  gateway: Gateway,
  routes: readonly HttpRoute[],
  facts: GatewayFacts,
): GatewayPlan {
  const ordered = routes.toSorted(olderFirst);
  if (namesCertificates(gateway)) return planFor('own', gateway, ordered, facts);
  if (usesControlCertificate(gateway)) return planFor('tailscaled', gateway, ordered, facts);
  const own = planFor('own', gateway, ordered, facts);
  return own.needsOwn ? own : planFor('tailscaled', gateway, ordered, facts);
}

function planFor(
  server: Server,
  gateway: Gateway,
  routes: readonly HttpRoute[],
  facts: GatewayFacts,
): GatewayPlan & { readonly needsOwn: boolean } {
  const { hostname, node, secrets, nowMs } = facts;
  const isOwnName = (host: string): boolean =>
    host === hostname ||
    (node.dnsName === undefined ? host.startsWith(`${hostname}.`) : host === node.dnsName);
  const listeners = planListeners(gateway, { node, isOwnName, secrets, nowMs });
  const open = { secure: new Map<string, OpenRoutes>(), plain: new Map<string, OpenRoutes>() };
  const pathBudget = createPathBudget(MAX_ROUTE_BYTES);
  const plans = routes.map((route): RoutePlan => {
    const rules = readRouteRules(route, facts.servicesOf(route), server);
    const parents = route.spec.parentRefs
      .filter((one) => gatewayOf(one, route.metadata.namespace) === nameOf(gateway))
      .map((parentRef) => attach({ gateway, route, parentRef, rules, listeners, isOwnName, server }));
    const places = parents
      .flatMap(({ at }) => at)
      .filter(({ listener }) => listener.unserved === undefined)
      .flatMap(({ listener: { isSecure }, hosts }) => hosts.map((host) => ({ isSecure, host })));
    if (!pathBudget.take(places, sizeOf(rules))) {
      return { route, parents: parents.map((one) => (one.at.length === 0 ? one : tooMuch(one))) };
    }
    for (const { isSecure, host } of places)
      addRules(isSecure ? open.secure : open.plain, host, rules, isSecure);
    return { route, parents };
  });
  const all = [...open.secure, ...open.plain];
  const needsOwn = all.some(
    ([host, { exact }]) => host.includes('*') || [...exact.keys()].some((path) => path.endsWith('/')),
  );
  const served = { secure: withWider(open.secure), plain: withWider(open.plain) };
  return {
    server,
    needsOwn,
    listeners,
    routes: plans,
    ...(server === 'own'
      ? planOwn(listeners, served, facts)
      : { config: serveConfigOf(served, facts, isOwnName), table: undefined }),
  };
}

function nameOf({ metadata }: Gateway): string {
  return `${metadata.namespace ?? ''}/${metadata.name}`;
}

interface Attaching {
  readonly gateway: Gateway;
  readonly route: HttpRoute;
  readonly parentRef: ParentRef;
  readonly rules: ReadRules;
  readonly listeners: readonly ListenerPlan[];
  readonly isOwnName: (host: string) => boolean;
  readonly server: Server;
}

/**
 * Attaches a route to listeners. First, the parent reference must select a listener. Then the listener must permit the
 * route, and the hosts of both must match.
 */
function attach({
  gateway,
  route,
  parentRef,
  rules,
  listeners,
  isOwnName,
  server,
}: Attaching): AttachedParent {
  const { refs, dropped, count } = rules;
  const refused = (reason: string, message: string): AttachedParent => ({
    parentRef,
    accepted: failed(reason, message),
    refs,
    partial: undefined,
    at: [],
  });
  const { sectionName, port } = parentRef;
  const meant = listeners.filter(
    (one) =>
      (sectionName === undefined || one.name === sectionName) && (port === undefined || one.port === port),
  );
  if (meant.length === 0)
    return refused(
      'NoMatchingParent',
      `spec.parentRefs: Gateway ${nameOf(gateway)} has no listener with this sectionName and port`,
    );
  const isNear = route.metadata.namespace === gateway.metadata.namespace;
  const open = meant.filter(({ fromAll, allowsHttpRoutes }) => allowsHttpRoutes && (fromAll || isNear));
  if (open.length === 0)
    return refused(
      'NotAllowedByListeners',
      `spec.parentRefs: no listener of Gateway ${nameOf(gateway)} accepts HTTPRoutes of this namespace (allowedRoutes)`,
    );
  const wanted = route.spec.hostnames.map((host) => host.toLowerCase());
  const at = open
    .map((listener) => {
      const hosts = commonHosts(listener.hostname, wanted);
      return {
        listener,
        hosts: hosts.filter((host) => {
          if (listener.isOwnNameOnly) return host === '' || isOwnName(host);
          return server === 'own' || !host.includes('*');
        }),
      };
    })
    .filter(({ hosts }) => hosts.length > 0);
  if (at.length === 0)
    return refused(
      'NoMatchingListenerHostname',
      `spec.hostnames: no listener of Gateway ${nameOf(gateway)} serves one of them`,
    );
  if (dropped.length > 0 && dropped.length === count) return refused('UnsupportedValue', dropped.join('; '));
  return {
    parentRef,
    accepted: succeeded('Accepted'),
    refs,
    partial: dropped.length === 0 ? undefined : `Dropped Rule(s): ${dropped.join('; ')}`,
    at,
  };
}

function tooMuch({ parentRef, refs }: AttachedParent): AttachedParent {
  const message =
    'spec.rules: the routes of this Gateway are too many for one node, and older routes take precedence: ' +
    'attach this route to another Gateway';
  return { parentRef, accepted: failed('TooManyRoutes', message), refs, partial: undefined, at: [] };
}

/** Returns an estimate of the size of the rules in bytes, including a hostname. */
function sizeOf({ paths }: ReadRules): number {
  return paths.reduce((sum, { path, target }) => sum + path.length + target.length + 16, 288);
}

function addRules(
  hosts: Map<string, OpenRoutes>,
  host: string,
  { paths }: ReadRules,
  isSecure: boolean,
): void {
  const routes = hosts.get(host) ?? { prefixes: new Map(), exact: new Map() };
  hosts.set(host, routes);
  for (const { path, isExact, target } of paths) {
    // A redirect to HTTPS does not apply to HTTPS requests.
    if (isSecure && target.startsWith('redirect:')) continue;
    addPath(routes, path, isExact ? 'Exact' : 'Prefix', target, 'own');
  }
}

interface Served {
  readonly secure: ReadonlyMap<string, HostRoutes>;
  readonly plain: ReadonlyMap<string, HostRoutes>;
}

function planOwn(
  listeners: readonly ListenerPlan[],
  { secure, plain }: Served,
  { hostname, node: { dnsName } }: GatewayFacts,
): Pick<GatewayPlan, 'config' | 'table'> {
  const good = listeners.filter(({ unserved }) => unserved === undefined);
  const widen = (host: string): readonly string[] =>
    host === hostname && dnsName !== undefined ? [host, dnsName] : [host.replace(/^\*\./, '**.')];
  const hostsOf = (hosts: ReadonlyMap<string, HostRoutes>): readonly TableHost[] =>
    [...hosts].flatMap(([host, { prefixes, exact }]) =>
      widen(host).map((name) => ({ name, prefixes: [...prefixes], exact: [...exact] })),
    );
  const ports = ([443, 80] as const).filter((port) => good.some((one) => one.port === port));
  return {
    config: { TCP: Object.fromEntries(ports.map((port) => [port, forwardTo(port === 443 ? '443' : '80')])) },
    table: {
      version: 1,
      certificates: good.flatMap(({ certificate }) =>
        certificate === undefined ? [] : [{ ...certificate, hosts: certificate.hosts.flatMap(widen) }],
      ),
      secure: good.filter(({ isSecure }) => isSecure).flatMap((one) => widen(one.hostname)),
      hosts: hostsOf(secure),
      plain: hostsOf(plain),
      redirect: false,
    },
  };
}

/**
 * Returns the serve configuration. tailscaled does not distinguish the names of the node, so the rules for these names
 * and the rules for all hosts are merged. Rules for a name take precedence.
 */
function serveConfigOf(
  { secure, plain }: Served,
  { node, hostname }: GatewayFacts,
  isOwnName: (host: string) => boolean,
): ServeConfig {
  const joined = (hosts: ReadonlyMap<string, HostRoutes>): ReadonlyMap<string, HostRoutes> => {
    const own = [...hosts].filter(([host]) => host === '' || isOwnName(host)).map(([, routes]) => routes);
    return new Map([...[...hosts].filter(([host]) => host !== '' && !isOwnName(host)), ['', inTurn(own)]]);
  };
  const choices = { hostname, redirect: false, funnel: false };
  const https: ServeConfig = node.hasCertificate ? planHttps(joined(secure), node, choices).config : {};
  const http = planHttp(joined(plain), node, choices).config;
  return { TCP: { ...https.TCP, ...http.TCP }, Web: { ...https.Web, ...http.Web } };
}
