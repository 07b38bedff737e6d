/**
 * The tailnet says which machine is calling, not which program on it. A web page that somebody looks at can make their
 * browser call the gateway too, and a WebSocket to `pods/exec` needs no consent from the server. So what a browser sends
 * on behalf of a foreign page is refused. Where the names of the gateway are known, `Host` must be one of them: a foreign
 * name that resolves to the gateway would make a foreign page look like our own.
 */
import { TailcastError } from '../../errors.ts';
import { onlyLine } from '../../kube/header-lines.ts';

/** What of a request's header fields says who made the browser send it. */
export interface BrowserFields {
  readonly host: string;
  /** Every `Origin`, in order. */
  readonly origins: readonly string[];
  /** Every `Sec-Fetch-Site`, in order. Pages cannot set or remove it. */
  readonly fetchSites: readonly string[];
}

/** `same-site` is not enough: the machines of a tailnet are siblings under one name. */
const OWN_SITES: ReadonlySet<string> = new Set(['same-origin', 'none']);

/** Which pages may make a browser call. All in lower case. */
export interface PageRules {
  /** Names of the gateway without ports; empty: any. */
  readonly hostNames: ReadonlySet<string>;
  /**
   * Origins of dashboards. The server of such a dashboard changes `Host` and passes on what the browser said: `Origin` is
   * the dashboard's, while to the browser the request stayed at home. A page of theirs that calls the gateway past its
   * server is foreign all the same, where the browser says so.
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
 * Whether somebody followed a link: the browser shows what comes in a tab of its own, and the page with the link reads
 * nothing of it. A frame is no such place. Nothing is said about `Origin`, which links do not have.
 *
 * @param rawHeaders flat, as received
 */
export function isFollowedLink(rawHeaders: readonly string[]): boolean {
  const says = (name: string, value: string): boolean => onlyLine(rawHeaders, name) === value;
  return says('sec-fetch-mode', 'navigate') && says('sec-fetch-dest', 'document');
}

/** Client libraries that send an `Origin` write the address they call, some of them always with `http`. */
function isOwnOrigin(origin: string, host: string): boolean {
  const authority = /^https?:\/\/(.+)$/.exec(origin.toLowerCase())?.[1];
  return authority !== undefined && withoutDefaultPort(authority) === withoutDefaultPort(host);
}

function withoutDefaultPort(authority: string): string {
  return authority.replace(/:(?:443|80)$/, '');
}

/** `gateway.example.ts.net.:8443` → `gateway.example.ts.net`, `[::1]:8443` → `::1` */
function withoutPort(authority: string): string {
  return authority
    .replace(/:\d*$/, '')
    .replace(/^\[(.*)\]$/, '$1')
    .replace(/\.$/, '');
}
