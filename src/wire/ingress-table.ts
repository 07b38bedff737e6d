/** What the operator tells `tailcast ingress`: hosts, paths, where they lead, and certificates. */

/** Where requests go, without the path: `http://10.96.0.10:80`; also `https+insecure://` and `h2c://`. */
export type TableUpstream = string;

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
  /** Whether HTTP leads to HTTPS. */
  readonly redirect: boolean;
}

/** Whether a name, in small letters, is what a pattern says: itself, or `*.` and one label less. */
export function matchesHost(pattern: string, name: string): boolean {
  if (!pattern.startsWith('*.')) return pattern === name;
  const dot = name.indexOf('.');
  return dot > 0 && name.slice(dot) === pattern.slice(1);
}
