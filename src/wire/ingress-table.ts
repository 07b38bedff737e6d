/** What the operator tells `tailcast ingress`: hosts, paths, where they lead, and certificates. */

/**
 * Where requests go, without the path: `http://10.96.0.10:80`; also `https+insecure://` and `h2c://`. In place of an address:
 * {@link REFUSED}, or what {@link redirectBy} gives.
 */
export type TableUpstream = string;

/** Requests are answered with 500: what they were to go to cannot be had. */
export const REFUSED = 'refused';

const REDIRECT = /^redirect:(30[12378])$/;

/** Requests are led to the same place by HTTPS, with this status. */
export function redirectBy(status: 301 | 302 | 303 | 307 | 308): TableUpstream {
  return `redirect:${status}`;
}

/** The status with which requests are led to HTTPS; undefined where they are not. */
export function redirectStatusOf(upstream: TableUpstream): number | undefined {
  const status = REDIRECT.exec(upstream)?.[1];
  return status === undefined ? undefined : Number(status);
}

export interface TableCertificate {
  /** Names and wildcards (`*.example.org`) that it is for; none: all that no other is for. */
  readonly hosts: readonly string[];
  readonly certificatePem: string;
  readonly keyPem: string;
}

export interface TableHost {
  /** A name or a wildcard in small letters; empty: every host that has no entry of its own. */
  readonly name: string;
  /** Paths and where they lead; a prefix has no slash at its end, but for `/`. */
  readonly prefixes: readonly (readonly [path: string, upstream: TableUpstream])[];
  readonly exact: readonly (readonly [path: string, upstream: TableUpstream])[];
}

export interface IngressTable {
  readonly version: 1;
  readonly certificates: readonly TableCertificate[];
  /** Names and wildcards that are served by HTTPS alone, also while there is no certificate; an empty one: all. */
  readonly secure: readonly string[];
  readonly hosts: readonly TableHost[];
  /** What is served by HTTP, where that is not `hosts` and `redirect`; the empty name is for all hosts here, too. */
  readonly plain?: readonly TableHost[] | undefined;
  /** Whether HTTP leads to HTTPS. */
  readonly redirect: boolean;
}

/** Whether a name, in small letters, is what a pattern says: itself, `*.` and one label less, or `**.` and any number less. */
export function matchesHost(pattern: string, name: string): boolean {
  if (pattern.startsWith('**.')) return name.length > pattern.length - 2 && name.endsWith(pattern.slice(2));
  if (!pattern.startsWith('*.')) return pattern === name;
  const dot = name.indexOf('.');
  return dot > 0 && name.slice(dot) === pattern.slice(1);
}
