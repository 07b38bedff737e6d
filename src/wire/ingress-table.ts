/**
 * Format of the table that the operator writes for `tailcast ingress`: hosts, paths, backends and
 * certificates.
 */

/**
 * URL of a backend without the path, such as `http://10.96.0.10:80`. Other schemes are `https+insecure://`
 * and `h2c://`. The value can also be {@link REFUSED} or a result of {@link redirectBy}.
 */
export type TableUpstream = string;

/** Value for a backend that is not available. Requests to such a backend get the status 500. */
export const REFUSED = 'refused';

const REDIRECT = /^redirect:(30[12378])$/;

/** Returns the value that redirects requests to HTTPS with this status. */
export function redirectBy(status: 301 | 302 | 303 | 307 | 308): TableUpstream {
  return `redirect:${status}`;
}

/** Returns the status code of a value from {@link redirectBy}; undefined for the URL of a backend. */
export function redirectStatusOf(upstream: TableUpstream): number | undefined {
  const status = REDIRECT.exec(upstream)?.[1];
  return status === undefined ? undefined : Number(status);
}

export interface TableCertificate {
  /**
   * Hostnames and wildcards (`*.example.org`) for which the certificate is used. An empty list means all
   * hosts without a certificate of their own.
   */
  readonly hosts: readonly string[];
  readonly certificatePem: string;
  readonly keyPem: string;
}

export interface TableHost {
  /** Hostname or wildcard in lower case. An empty name means all hosts without an entry of their own. */
  readonly name: string;
  /** Path prefixes and their backends. A prefix has no final slash, except `/`. */
  readonly prefixes: readonly (readonly [path: string, upstream: TableUpstream])[];
  readonly exact: readonly (readonly [path: string, upstream: TableUpstream])[];
}

export interface IngressTable {
  readonly version: 1;
  readonly certificates: readonly TableCertificate[];
  /**
   * Hostnames and wildcards that are served only over HTTPS, even if they have no certificate. An empty name
   * means all hosts.
   */
  readonly secure: readonly string[];
  readonly hosts: readonly TableHost[];
  /**
   * Hosts that are served over HTTP. If absent, HTTP uses `hosts`, or redirects if `redirect` is true. An
   * empty name means all hosts.
   */
  readonly plain?: readonly TableHost[] | undefined;
  /** True if HTTP redirects to HTTPS. */
  readonly redirect: boolean;
}

/**
 * True if a lower-case name matches a pattern. The pattern is a name, or starts with `*.` for exactly one
 * label or with `**.` for any number of labels.
 */
export function matchesHost(pattern: string, name: string): boolean {
  if (pattern.startsWith('**.')) return name.length > pattern.length - 2 && name.endsWith(pattern.slice(2));
  if (!pattern.startsWith('*.')) return pattern === name;
  const dot = name.indexOf('.');
  return dot > 0 && name.slice(dot) === pattern.slice(1);
}
