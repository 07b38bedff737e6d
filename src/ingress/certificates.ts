/** Selects the certificates of a routing table by SNI hostname. For an unknown hostname, the TLS handshake fails. */
import { TailcastError } from '../errors.ts';
import {
  canonicalHost,
  loadCertificate,
  type CertificateSource,
  type LoadedCertificate,
} from '../tailnet/certificates.ts';
import { matchesHost, type IngressTable, type TableCertificate } from '../wire/ingress-table.ts';

export interface TableCertificates extends CertificateSource {
  /**
   * Replaces the current certificates with the certificates of a new table. If one of them is invalid, the previous
   * certificates stay in use.
   *
   * @throws TailcastError `CERTIFICATE_UNAVAILABLE`
   */
  use(table: IngressTable): void;
}

interface Loaded {
  readonly hosts: readonly string[];
  readonly certificate: LoadedCertificate;
}

/** Creates an empty selection. `use` adds the certificates. */
export function createTableCertificates(): TableCertificates {
  let loaded: readonly Loaded[] = [];
  let known = new Map<string, LoadedCertificate>();

  function load(entry: TableCertificate, next: Map<string, LoadedCertificate>): Loaded {
    const key = `${entry.certificatePem}\n${entry.keyPem}`;
    // An unchanged certificate keeps its TLS context, so that clients can resume their TLS sessions.
    const certificate = known.get(key) ?? loadCertificate(entry, `the certificate of ${namesOf(entry)}`);
    next.set(key, certificate);
    return { hosts: entry.hosts, certificate };
  }
  function choose(serverName: string | undefined): LoadedCertificate {
    const name = canonicalHost(serverName ?? '');
    const exact = loaded.find(({ hosts }) => hosts.includes(name));
    const wide = loaded.find(({ hosts }) => hosts.some((pattern) => matchesHost(pattern, name)));
    const open = exact ?? wide ?? loaded.find(({ hosts }) => hosts.length === 0);
    // a client without SNI gets the certificate for all hosts; without such a certificate, the first certificate
    const found = open ?? (serverName === undefined ? loaded[0] : undefined);
    if (found !== undefined) return found.certificate;
    throw new TailcastError('CERTIFICATE_UNAVAILABLE', `there is none for ${JSON.stringify(name)}`);
  }

  return {
    use({ certificates }) {
      const next = new Map<string, LoadedCertificate>();
      loaded = certificates.map((entry) => load(entry, next));
      known = next;
    },
    certificate: (serverName) =>
      new Promise((done) => {
        done(choose(serverName));
      }),
  };
}

function namesOf({ hosts }: TableCertificate): string {
  return hosts.length === 0 ? 'all hosts' : hosts.join(', ');
}
