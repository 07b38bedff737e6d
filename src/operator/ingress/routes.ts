/** Reads the rules of an Ingress: the paths of each host, the backend of each path, and the problems. Pure. */
import { isIP } from 'node:net';
import type { KubeObject } from '../kube-object.ts';
import { parseService } from '../service/resource.ts';
import type { Ingress, IngressBackend } from './resource.ts';

/** An unsupported feature of an Ingress. The message names the field, and gives advice. */
export interface IngressProblem {
  readonly reason: string;
  readonly message: string;
}

/** URL of a backend without the path: `http://10.96.0.10:80`. */
export type Upstream = string;

/** The paths of one host. */
export interface HostRoutes {
  /** Prefixes without a trailing slash, except `/`. */
  readonly prefixes: ReadonlyMap<string, Upstream>;
  readonly exact: ReadonlyMap<string, Upstream>;
}

/** Routes of a host to which further paths can be added. */
export interface OpenRoutes extends HostRoutes {
  readonly prefixes: Map<string, Upstream>;
  readonly exact: Map<string, Upstream>;
}

export interface IngressRoutes {
  /** Routes of each host. The empty host stands for the node's own name. */
  readonly hosts: ReadonlyMap<string, HostRoutes>;
  readonly problems: readonly IngressProblem[];
}

/**
 * @param services existing Services that the Ingress uses as backends
 * @param server tailscaled, or tailcast's ingress server (`own`), which supports more of Ingress
 */
export function ingressRoutesOf(
  ingress: Ingress,
  services: ReadonlyMap<string, KubeObject>,
  server: 'tailscaled' | 'own' = 'tailscaled',
): IngressRoutes {
  const problems: IngressProblem[] = [];
  const hosts = new Map<string, OpenRoutes>();
  const at = (host: string): OpenRoutes => {
    const routes = hosts.get(host) ?? { prefixes: new Map(), exact: new Map() };
    hosts.set(host, routes);
    return routes;
  };
  function upstream(backend: IngressBackend, field: string): Upstream | undefined {
    const found = upstreamOf(backend, services, server);
    if (typeof found === 'string') return found;
    problems.push({ reason: 'InvalidIngressBackend', message: `${field}: ${found.problem}` });
    return undefined;
  }
  for (const [index, { host, http }] of ingress.spec.rules.entries()) {
    const rule = `spec.rules[${index}]`;
    if (isUnclear(host, server)) {
      const message = `${rule}.host: tailscaled does not support wildcards: name each host instead of ${host}`;
      problems.push({ reason: 'UnsupportedHost', message });
      continue;
    }
    const routes = at(host.toLowerCase());
    for (const [number, { path, pathType, backend }] of (http?.paths ?? []).entries()) {
      const field = `${rule}.http.paths[${number}]`;
      const target = upstream(backend, `${field}.backend`);
      if (path === '')
        problems.push({ reason: 'PathUndefined', message: `${field}.path: not set, so it is /` });
      if (target === undefined) continue;
      const problem = addPath(routes, path === '' ? '/' : path, pathType, target, server);
      if (problem !== undefined)
        problems.push({ reason: 'UnsupportedPath', message: `${field}.path: ${problem}` });
    }
  }
  const { defaultBackend } = ingress.spec;
  const fallback = defaultBackend === undefined ? undefined : upstream(defaultBackend, 'spec.defaultBackend');
  if (fallback !== undefined) {
    at('');
    for (const { prefixes } of hosts.values()) if (!prefixes.has('/')) prefixes.set('/', fallback);
  }
  return {
    hosts: new Map([...hosts].filter(([, { prefixes, exact }]) => prefixes.size + exact.size > 0)),
    problems,
  };
}

/** Returns true for a wildcard host that the server does not support. */
function isUnclear(host: string, server: 'tailscaled' | 'own'): boolean {
  return server === 'tailscaled' && host.includes('*');
}

/** @returns the reason why the path cannot be served, or undefined */
export function addPath(
  { prefixes, exact }: OpenRoutes,
  path: string,
  pathType: string,
  target: Upstream,
  server: 'tailscaled' | 'own',
): string | undefined {
  if (pathType !== 'Exact') {
    const prefix = path === '/' ? path : path.replace(/\/+$/, '');
    if (!prefixes.has(prefix)) prefixes.set(prefix, target);
    return undefined;
  }
  if (path.endsWith('/') && server === 'tailscaled') {
    return (
      `tailscaled cannot distinguish ${path} from paths below it: use pathType Prefix, or a path without a ` +
      'trailing slash'
    );
  }
  if (!exact.has(path)) exact.set(path, target);
  return undefined;
}

/** Returns the URL of a backend, or the problem with it. */
export function upstreamOf(
  { service }: IngressBackend,
  services: ReadonlyMap<string, KubeObject>,
  server: 'tailscaled' | 'own',
): Upstream | { readonly problem: string } {
  if (service === undefined) return { problem: 'names no Service; other resources cannot be served' };
  const { name, port } = service;
  const object = services.get(name);
  if (object === undefined) return { problem: `Service "${name}" does not exist` };
  const { spec } = parseService(object);
  if (isIP(spec.clusterIP) === 0) return { problem: `Service "${name}" has no clusterIP` };
  const found = spec.ports.find((one) =>
    port.name === '' ? one.port === port.number : one.name === port.name,
  );
  const wanted = port.name === '' ? String(port.number) : port.name;
  if (found === undefined) return { problem: `Service "${name}" has no port ${wanted}` };
  const secure = found.port === 443 || found.name === 'https' || found.appProtocol === 'https';
  const host = isIP(spec.clusterIP) === 6 ? `[${spec.clusterIP}]` : spec.clusterIP;
  // Only tailcast's ingress server needs the scheme h2c, because tailscaled uses h2c automatically for gRPC requests.
  const isH2c = server === 'own' && found.appProtocol === 'kubernetes.io/h2c';
  // The proxy does not verify certificates of pods, because these are not issued for IP addresses.
  return `${isH2c ? 'h2c' : secure ? 'https+insecure' : 'http'}://${host}:${found.port}`;
}
