/** Matches the hosts of listeners and routes, and decides which rule applies if several match the same request. */
import type { HostRoutes, OpenRoutes } from '../ingress/routes.ts';
import { nearest } from '../ingress/serve-config.ts';

/**
 * True if `wide` matches all names that `host` matches. `*.` matches one or more labels, and the empty host matches all
 * names.
 */
export function coversHost(wide: string, host: string): boolean {
  if (wide === '' || wide === host) return true;
  return wide.startsWith('*.') && host.replace(/^\*\./, '').endsWith(wide.slice(1));
}

/** Returns the hosts of a route that match a listener. A route without hosts matches the listener's hosts. */
export function commonHosts(listener: string, route: readonly string[]): readonly string[] {
  if (route.length === 0) return [listener];
  return [
    ...new Set(
      route.flatMap((host) => {
        if (coversHost(listener, host)) return [host];
        return coversHost(host, listener) ? [listener] : [];
      }),
    ),
  ];
}

/**
 * Adds to each host the paths of wider hosts, except paths that the host covers itself. The Gateway API requires a
 * fallback to wider hosts if no path of a host matches, but the server selects the most specific host before it
 * compares paths.
 */
export function withWider(hosts: ReadonlyMap<string, HostRoutes>): ReadonlyMap<string, HostRoutes> {
  const ordered = [...hosts].toSorted(
    ([a], [b]) => widthOf(a) - widthOf(b) || b.length - a.length || (a < b ? -1 : 1),
  );
  return new Map(
    ordered.map(([host, routes]) => {
      const wider = ordered.filter(([other]) => other !== host && coversHost(other, host));
      return [host, inTurn([routes, ...wider.map(([, one]) => one)])] as const;
    }),
  );
}

/**
 * Returns 0 for an exact name, 1 for a wildcard, and 2 for the host that matches all names. Hosts with a smaller width
 * are more specific. Among hosts of equal width, longer hosts are more specific.
 */
function widthOf(host: string): number {
  return host === '' ? 2 : Number(host.startsWith('*.'));
}

/** Merges paths. A path is omitted if an earlier entry has the same path, or a prefix that covers the path. */
export function inTurn(all: readonly HostRoutes[]): HostRoutes {
  const merged: OpenRoutes = { prefixes: new Map(), exact: new Map() };
  for (const { prefixes, exact } of all) {
    const before = new Map(merged.prefixes);
    for (const [path, to] of exact)
      if (nearest(before, path) === undefined && !merged.exact.has(path)) merged.exact.set(path, to);
    for (const [path, to] of prefixes) if (nearest(before, path) === undefined) merged.prefixes.set(path, to);
  }
  return merged;
}

/** A host with its protocol: HTTPS and HTTP have separate routes. */
export interface HostEntry {
  readonly isSecure: boolean;
  readonly host: string;
}

/**
 * Creates the counter of the bytes of all paths of all hosts, including paths that {@link withWider} copies.
 *
 * @param limit in bytes
 */
export function createPathBudget(limit: number) {
  let known = new Map<string, HostEntry & { readonly bytes: number }>();
  let used = 0;

  return {
    /**
     * @param bytes bytes to reserve for each entry
     * @returns false if there is not enough space; then nothing is reserved
     */
    take(entries: readonly HostEntry[], bytes: number): boolean {
      const next = new Map(known);
      let total = used;
      for (const entry of entries) {
        const key = `${entry.isSecure} ${entry.host}`;
        const before = next.get(key);
        const others = [...next.values()].filter(
          (one) => one.isSecure === entry.isSecure && one.host !== entry.host,
        );
        const below = others.filter(({ host }) => coversHost(entry.host, host)).length;
        const above = others.filter(({ host }) => coversHost(host, entry.host));
        total += bytes * (1 + below);
        if (before === undefined) total += above.reduce((sum, one) => sum + one.bytes, 0);
        if (total > limit) return false;
        next.set(key, { ...entry, bytes: (before?.bytes ?? 0) + bytes });
      }
      known = next;
      used = total;
      return true;
    },
  };
}
