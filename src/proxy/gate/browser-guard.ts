/**
 * Rejects requests that a web page of another site made the browser send. The tailnet identifies a machine,
 * not a program on it, so any web page could use the identity of the user's browser. CORS does not protect
 * `pods/exec`, because it does not apply to WebSockets. If the gateway's hostnames are known, `Host` must be
 * one of them. This prevents DNS rebinding, where the name of another site resolves to the gateway.
 */
import { TailcastError } from '../../errors.ts';
import { onlyLine } from '../../kube/headers.ts';

/** Headers that show which page made the browser send the request. */
export interface BrowserFields {
  readonly host: string;
  /** All values of `Origin`, in order. */
  readonly origins: readonly string[];
  /** All values of `Sec-Fetch-Site`, in order. Pages cannot set or remove this header. */
  readonly fetchSites: readonly string[];
}

/**
 * Accepted values of `Sec-Fetch-Site`. `same-site` is not accepted, because all machines of a tailnet belong to the
 * same site.
 */
const OWN_SITES: ReadonlySet<string> = new Set(['same-origin', 'none']);

/** Rules about web pages that may call the gateway. All names are in lower case. */
export interface PageRules {
  /** Hostnames of the gateway without ports; empty allows any hostname. */
  readonly hostNames: ReadonlySet<string>;
  /**
   * Origins of dashboards whose server forwards the requests of its pages to the gateway. Such a server
   * changes `Host` but keeps the browser's headers, so `Origin` names the dashboard and `Sec-Fetch-Site` is
   * `same-origin`. Requests that a page of the dashboard sends directly to the gateway are still rejected.
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
 * Returns true if the user followed a link: the browser shows the response as the page of a tab, and the linking page
 * cannot read it. Returns false if the link opens in a frame. This function ignores `Origin`, because browsers omit it
 * when a user follows a link.
 *
 * @param rawHeaders flat, as received
 */
export function isFollowedLink(rawHeaders: readonly string[]): boolean {
  const says = (name: string, value: string): boolean => onlyLine(rawHeaders, name) === value;
  return says('sec-fetch-mode', 'navigate') && says('sec-fetch-dest', 'document');
}

/**
 * True if the origin is the gateway itself. Client libraries that send `Origin` derive it from the gateway's
 * address, and some always use the scheme `http`.
 */
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
