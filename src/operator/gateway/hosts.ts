/** Hosts of listeners and routes, and which rule has a request that several are for. Pure. */
import type { HostRoutes, OpenRoutes } from '../ingress/routes.ts';
import { nearest } from '../ingress/serve-config.ts';

/** Whether all names of one are names of the other; `*.` stands for any number of labels, and the empty one for all. */
export function coversHost(wide: string, host: string): boolean {
  if (wide === '' || wide === host) return true;
  return wide.startsWith('*.') && host.replace(/^\*\./, '').endsWith(wide.slice(1));
}

/** The hosts of a route that a listener takes; a route without hosts has those of the listener. */
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
 * The most specific host has a request, whatever the paths; where none of its paths is for it, the next one has it. So each host gets
 * the paths of the wider ones that it says nothing about.
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

/** A name, names below one, all names; of two alike the longer one is more specific. */
function widthOf(host: string): number {
  return host === '' ? 2 : Number(host.startsWith('*.'));
}

/** The paths of all, of which the first ones have what they are for. */
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

/** Hosts of HTTPS and of HTTP have nothing in common. */
export interface HostEntry {
  readonly isSecure: boolean;
  readonly host: string;
}

/** Counts what the paths of hosts take once {@link withWider} has given them to others. */
export interface HostRoom {
  /**
   * @param bytes that each of the hosts gets
   * @returns whether there was room; otherwise nothing was taken
   */
  take(entries: readonly HostEntry[], bytes: number): boolean;
}

export function createHostRoom(limit: number): HostRoom {
  let known = new Map<string, HostEntry & { readonly bytes: number }>();
  let used = 0;

  return {
    take(entries, bytes) {
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
