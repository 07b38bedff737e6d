/**
 * Which names the page and its API answer under. A page of another site can have its own name resolve to our address
 * and then read us as its own (DNS rebinding); it cannot make the browser send one of these names.
 */
const LOOPBACK = ['localhost', '127.0.0.1', '[::1]'] as const;

export interface Hosts {
  /**
   * @param host the `Host` header.
   * @param localAddress the address the connection came in on; naming that is naming us.
   */
  accepts(host: string | undefined, localAddress: string | undefined): boolean;
  /** The same for an `Origin` header; no header is fine: then it was no page of a browser. */
  acceptsOrigin(origin: string | undefined, localAddress: string | undefined): boolean;
}

/** @param names further host names, e.g. that of the tailnet node; any case, without port. */
export function createHosts(names: readonly string[]): Hosts {
  const known = new Set<string>([...LOOPBACK, ...names.map((name) => name.toLowerCase().replace(/\.$/, ''))]);
  function accepts(host: string | undefined, localAddress: string | undefined): boolean {
    const match = /^(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::\d{1,5})?$/.exec(host?.toLowerCase() ?? '');
    const name = match?.[1]?.replace(/\.$/, '');
    if (name === undefined) return false;
    const local = (localAddress ?? '').replace(/^::ffff:(?=\d+\.)/, '');
    return known.has(name) || name === local || name === `[${local}]`;
  }
  return {
    accepts,
    acceptsOrigin(origin, localAddress) {
      if (origin === undefined) return true;
      const match = /^https?:\/\/([^/]+)$/.exec(origin);
      return match !== null && accepts(match[1], localAddress);
    },
  };
}
