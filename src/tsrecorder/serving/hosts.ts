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
  /**
   * True if an `Origin` header names this page: the host and port of the `Host` header, or one of the configured names. True
   * without the header, which browsers always send.
   */
  acceptsOrigin(origin: string | undefined, host: string | undefined): boolean;
}

/** @param names further host names, e.g. that of the tailnet node; any case, without port. */
export function createHosts(names: readonly string[]): Hosts {
  const configured = new Set(names.map((name) => name.toLowerCase().replace(/\.$/, '')));
  const known = new Set<string>([...LOOPBACK, ...configured]);
  function accepts(host: string | undefined, localAddress: string | undefined): boolean {
    const match = /^(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::\d{1,5})?$/.exec(host?.toLowerCase() ?? '');
    const name = match?.[1]?.replace(/\.$/, '');
    if (name === undefined) return false;
    const local = (localAddress ?? '').replace(/^::ffff:(?=\d+\.)/, '');
    return known.has(name) || name === local || name === `[${local}]`;
  }
  return {
    accepts,
    acceptsOrigin(origin, host) {
      if (origin === undefined) return true;
      const [, authority = '', name = ''] =
        /^https?:\/\/(([^/:]+|\[[^/\]]+\])(?::\d{1,5})?)$/.exec(origin) ?? [];
      return authority !== '' && (authority === host?.toLowerCase() || configured.has(name));
    },
  };
}
