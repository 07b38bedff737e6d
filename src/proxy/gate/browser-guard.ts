/**
 * Rejects requests that a browser sends for a foreign page. The tailnet identifies a machine, not a program on
 * it: any web page can make the user's browser call the gateway, and a WebSocket to `pods/exec` needs no CORS
 * consent. If the gateway's hostnames are known, `Host` must be one of them, because a foreign name that resolves
 * to the gateway would make a foreign page appear as the gateway's own.
 */
import { TailcastError } from '../../errors.ts';
import { onlyLine } from '../../kube/header-lines.ts';

/** Headers that show which page made the browser send the request. */
export interface BrowserFields {
  readonly host: string;
  /** All values of `Origin`, in order. */
  readonly origins: readonly string[];
  /** All values of `Sec-Fetch-Site`, in order. Pages cannot set or remove it. */
  readonly fetchSites: readonly string[];
}

/** `same-site` is not sufficient, because all machines of a tailnet share one site. */
const OWN_SITES: ReadonlySet<string> = new Set(['same-origin', 'none']);

/** Pages that may make a browser call the gateway. All in lower case. */
export interface PageRules {
  /** Hostnames of the gateway without ports; empty allows any hostname. */
  readonly hostNames: ReadonlySet<string>;
  /**
   * Origins of dashboards whose server forwards requests of its pages: it changes `Host`, but keeps the browser's
   * headers. `Origin` is then that of the dashboard, and the browser reports a same-origin request. A page of the
   * dashboard that calls the gateway directly is still foreign.
   */
  readonly dashboardOrigins: ReadonlySet<string>;
}

/** @throws TailcastError `HEADER_REFUSED` for a foreign `Host`, `POLICY_REFUSED` for a foreign page */
export function refuseForeignPages(fields: BrowserFields, { hostNames, dashboardOrigins }: PageRules): void {
  const host = fields.host.toLowerCase();
  if (hostNames.size > 0 && !hostNames.has(withoutPort(host))) {
    throw new TailcastError('HEADER_REFUSED', 'Host is not a name of this gateway');
  }
  const foreign =
    fields.origins.some(
      (origin) => !isOwnOrigin(origin, host) && !dashboardOrigins.has(origin.toLowerCase()),
    ) || fields.fetchSites.some((site) => !OWN_SITES.has(site.toLowerCase()));
  if (foreign) throw new TailcastError('POLICY_REFUSED', 'a web page of another site made this request');
}

/**
 * True if the user followed a link: the browser shows the response in its own tab, and the linking page cannot
 * read it. Frames do not count. `Origin` is not checked, because links have none.
 *
 * @param rawHeaders flat, as received
 */
export function isFollowedLink(rawHeaders: readonly string[]): boolean {
  const says = (name: string, value: string): boolean => onlyLine(rawHeaders, name) === value;
  return says('sec-fetch-mode', 'navigate') && says('sec-fetch-dest', 'document');
}

/** Client libraries that send an `Origin` use the address they call, some of them always with `http`. */
function isOwnOrigin(origin: string, host: string): boolean {
  const authority = /^https?:\/\/(.+)$/.exec(origin.toLowerCase())?.[1];
  return authority !== undefined && withoutDefaultPort(authority) === withoutDefaultPort(host);
}

function withoutDefaultPort(authority: string): string {
  return authority.replace(/:(?:443|80)$/, '');
}

/** `gateway.example.ts.net.:8443` → `gateway.example.ts.net`, `[::1]:8443` → `::1` */
export function withoutPort(authority: string): string {
  return authority
    .replace(/:\d*$/, '')
    .replace(/^\[(.*)\]$/, '$1')
    .replace(/\.$/, '');
}
