/** The table that the operator writes for `tailcast ingress`: hosts, paths, backends and certificates. */

/**
 * Backend without the path: `http://10.96.0.10:80`; also `https+insecure://` and `h2c://`. Instead of an address:
 * {@link REFUSED}, or a result of {@link redirectBy}.
 */
export type TableUpstream = string;

/** Requests get 500, because their backend is not available. */
export const REFUSED = 'refused';

const REDIRECT = /^redirect:(30[12378])$/;

/** Requests are redirected to HTTPS with this status. */
export function redirectBy(status: 301 | 302 | 303 | 307 | 308): TableUpstream {
  return `redirect:${status}`;
}

/** Returns the status of the redirect to HTTPS; undefined for other backends. */
export function redirectStatusOf(upstream: TableUpstream): number | undefined {
  const status = REDIRECT.exec(upstream)?.[1];
  return status === undefined ? undefined : Number(status);
}

export interface TableCertificate {
  /** Hostnames and wildcards (`*.example.org`) of the certificate; empty: all hosts without another certificate. */
  readonly hosts: readonly string[];
  readonly certificatePem: string;
  readonly keyPem: string;
}

export interface TableHost {
  /** Hostname or wildcard in lower case; empty: all hosts without an entry. */
  readonly name: string;
  /** Paths and their backends; a prefix has no final slash, except `/`. */
  readonly prefixes: readonly (readonly [path: string, upstream: TableUpstream])[];
  readonly exact: readonly (readonly [path: string, upstream: TableUpstream])[];
}

export interface IngressTable {
  readonly version: 1;
  readonly certificates: readonly TableCertificate[];
  /** Hostnames and wildcards that are served over HTTPS only, also without a certificate; an empty one: all. */
  readonly secure: readonly string[];
  readonly hosts: readonly TableHost[];
  /** Hosts of HTTP, if they differ from `hosts` and `redirect`; the empty name means all hosts. */
  readonly plain?: readonly TableHost[] | undefined;
  /** True if HTTP redirects to HTTPS. */
  readonly redirect: boolean;
}

/**
 * True if a lower-case name matches a pattern: the name itself, `*.` for one more label, or `**.` for any number
 * of labels.
 */
export function matchesHost(pattern: string, name: string): boolean {
  if (pattern.startsWith('**.')) return name.length > pattern.length - 2 && name.endsWith(pattern.slice(2));
  if (!pattern.startsWith('*.')) return pattern === name;
  const dot = name.indexOf('.');
  return dot > 0 && name.slice(dot) === pattern.slice(1);
}
