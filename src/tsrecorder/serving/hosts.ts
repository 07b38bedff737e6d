/**
 * Host names of the page and its API. The check of these names prevents DNS rebinding. Another site can let its own
 * host name resolve to the address of the recorder. The browser then sends that host name, and the recorder rejects the
 * request.
 */
const LOOPBACK = ['localhost', '127.0.0.1', '[::1]'] as const;

/** Check of `Host` and `Origin` headers. */
export type Hosts = ReturnType<typeof createHosts>;

/**
 * Creates the check.
 * @param names additional host names without port, for example the name of the tailnet node; case-insensitive
 */
export function createHosts(names: readonly string[]) {
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
    /**
     * Returns true if a request may be served.
     * @param host `Host` header
     * @param localAddress local address of the connection. This address is also accepted as a host name
     */
    accepts,
    /**
     * True if an `Origin` header names this page: the host and port of the `Host` header, or one of the configured
     * names without a port. Also returns true if the header is missing.
     */
    acceptsOrigin(origin: string | undefined, host: string | undefined): boolean {
      if (origin === undefined) return true;
      const [, authority = ''] = /^https?:\/\/((?:[^/:]+|\[[^/\]]+\])(?::\d{1,5})?)$/.exec(origin) ?? [];
      // Other ports of a configured name may belong to other services.
      return authority !== '' && (authority === host?.toLowerCase() || configured.has(authority));
    },
  };
}
