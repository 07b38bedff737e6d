/** The rules of an HTTPRoute: paths with their backends, and unsupported features. Pure. */
import { REFUSED, redirectBy } from '../../wire/ingress-table.ts';
import { upstreamOf, type Upstream } from '../ingress/routes.ts';
import type { KubeObject } from '../kube-object.ts';
import { failed, succeeded, type Verdict } from '../workload/status.ts';
import type { BackendRef, HttpRoute, RouteRule } from './resource.ts';

/**
 * Server that applies the rules: tailscaled, or tailcast's ingress server (`own`), which supports more of HTTPRoute.
 */
export type Server = 'tailscaled' | 'own';

export interface RoutePath {
  readonly path: string;
  readonly isExact: boolean;
  readonly target: Upstream;
}

export interface ReadRules {
  readonly paths: readonly RoutePath[];
  /** Messages about skipped rules. Each message names the unsupported field, and explains the problem. */
  readonly dropped: readonly string[];
  /** Number of rules in the route, including skipped ones. */
  readonly count: number;
  /** Verdict for the condition `ResolvedRefs`. */
  readonly refs: Verdict;
}

const KNOWN: readonly string[] = ['name', 'matches', 'filters', 'backendRefs'];
const KNOWN_BACKEND: readonly string[] = ['group', 'kind', 'namespace', 'name', 'port', 'weight'];
const STATUSES = [301, 302, 303, 307, 308] as const;

/**
 * Reads the rules. An unsupported rule is skipped. A rule with an unavailable backend keeps its paths, and requests for
 * these paths get errors. Without these paths, the requests would match shorter paths of other rules.
 *
 * @param services backends of the route: existing Services in its namespace
 */
export function readRouteRules(
  route: HttpRoute,
  services: ReadonlyMap<string, KubeObject>,
  server: Server,
): ReadRules {
  const paths: RoutePath[] = [];
  const dropped: string[] = [];
  const unresolved: Verdict[] = [];
  for (const [index, rule] of route.spec.rules.entries()) {
    const field = `spec.rules[${index}]`;
    const problem = problemOf(rule, server);
    if (problem !== undefined) {
      dropped.push(`${field}.${problem}`);
      continue;
    }
    const target = targetOf(route, rule, services, server);
    if (typeof target !== 'string') unresolved.push({ ...target, message: `${field}.${target.message}` });
    const to = typeof target === 'string' ? target : REFUSED;
    const matches = rule.matches.length === 0 ? [{ path: { type: 'PathPrefix', value: '/' } }] : rule.matches;
    for (const { path } of matches)
      paths.push({ path: path.value, isExact: path.type === 'Exact', target: to });
  }
  const [first] = unresolved;
  return {
    paths,
    dropped,
    count: route.spec.rules.length,
    refs:
      first === undefined
        ? succeeded('ResolvedRefs')
        : failed(first.reason, unresolved.map(({ message }) => message).join('; ')),
  };
}

/** @returns the problem, with the path of the field in the rule; undefined if the rule is supported */
function problemOf(rule: RouteRule, server: Server): string | undefined {
  const unknown = Object.keys(rule).find((key) => !KNOWN.includes(key));
  if (unknown !== undefined) return `${unknown}: not supported: leave it out`;
  for (const [index, match] of rule.matches.entries()) {
    const field = `matches[${index}]`;
    const other = Object.keys(match).find((key) => key !== 'path');
    if (other !== undefined) return `${field}.${other}: routes match only by host and path`;
    const { type, value } = match.path;
    if (type !== 'Exact' && type !== 'PathPrefix')
      return `${field}.path.type: Exact and PathPrefix are supported, ${type} is not`;
    if (!value.startsWith('/') || value.includes('//'))
      return `${field}.path.value: it must begin with a slash, and must not contain //`;
    if (type === 'Exact' && value.endsWith('/') && server === 'tailscaled')
      return (
        `${field}.path.value: tailscaled cannot distinguish ${value} from paths below it: remove the ` +
        'trailing slash, or use your own certificates'
      );
  }
  return filterProblem(rule) ?? backendProblem(rule);
}

function filterProblem({ filters, backendRefs }: RouteRule): string | undefined {
  const [first, ...more] = filters;
  if (first === undefined) return undefined;
  if (more.length > 0) return 'filters[1]: one is supported';
  if (first.type !== 'RequestRedirect' || backendRefs.length > 0)
    return `filters[0].type: only RequestRedirect is supported, in a rule without backends, not ${first.type}`;
  const { scheme, port, statusCode, ...rest } = first.requestRedirect ?? {};
  const [other] = Object.keys(rest);
  const field = 'filters[0].requestRedirect';
  if (other !== undefined) return `${field}.${other}: scheme and statusCode are supported`;
  if (scheme !== 'https' || (port !== undefined && port !== 443))
    return `${field}.scheme: requests can only be redirected to https at port 443`;
  if (statusCode !== undefined && !isStatus(statusCode))
    return `${field}.statusCode: name one of ${STATUSES.join(', ')}`;
  return undefined;
}

function backendProblem({ backendRefs }: RouteRule): string | undefined {
  const [first, ...more] = backendRefs;
  if (first === undefined) return undefined;
  if (more.length > 0) return 'backendRefs[1]: one backend is supported: let a Service stand for several';
  if (first.weight === 0) return 'backendRefs[0].weight: there is only one backend: remove the weight';
  const other = Object.keys(first).find((key) => !KNOWN_BACKEND.includes(key));
  return other === undefined ? undefined : `backendRefs[0].${other}: not supported: leave it out`;
}

function isStatus(value: unknown): value is (typeof STATUSES)[number] {
  return STATUSES.some((one) => one === value);
}

function targetOf(
  { metadata }: HttpRoute,
  { filters, backendRefs }: RouteRule,
  services: ReadonlyMap<string, KubeObject>,
  server: Server,
): Upstream | Verdict {
  const [filter] = filters;
  if (filter !== undefined) {
    const status = filter.requestRedirect?.['statusCode'];
    return redirectBy(isStatus(status) ? status : 302);
  }
  const [backend] = backendRefs;
  return backend === undefined ? REFUSED : backendOf(backend, metadata.namespace, services, server);
}

function backendOf(
  { group, kind, namespace, name, port }: BackendRef,
  own: string | undefined,
  services: ReadonlyMap<string, KubeObject>,
  server: Server,
): Upstream | Verdict {
  const field = 'backendRefs[0]';
  if (group !== '' || kind !== 'Service')
    return failed('InvalidKind', `${field}.kind: Services are supported, ${kind} is not`);
  if ((namespace ?? own) !== own) {
    const why =
      'Services of other namespaces are not supported, even with ReferenceGrants: create the route in the ' +
      'namespace of the Service';
    return failed('RefNotPermitted', `${field}.namespace: ${why}`);
  }
  const found = upstreamOf({ service: { name, port: { name: '', number: port ?? 0 } } }, services, server);
  return typeof found === 'string' ? found : failed('BackendNotFound', `${field}: ${found.problem}`);
}
