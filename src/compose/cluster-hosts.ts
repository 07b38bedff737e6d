/** Refuses and logs host names of clusters that the certificate of the gateway does not cover. */
import { forEachConcurrent } from '../async/for-each-concurrent.ts';
import { BoundedMap } from '../bounded-map.ts';
import type { GatewayConfig, TlsKind } from '../config/gateway.ts';
import { errorText } from '../errors.ts';
import type { Logger } from '../observe/logger.ts';
import { certifiesHost, type CertificateSource, type LoadedCertificate } from '../tailnet/certificates.ts';
import type { Clusters } from './clusters.ts';
import { tlsKindOf } from './tailnet.ts';

const MAX_REPORTED = 1000;
/** Maximum concurrent requests for certificates at the start. tailscaled may have to issue each certificate. */
const MAX_CONCURRENT = 4;
/** Maximum number of names in one log line. */
const MAX_LISTED = 20;
const REMEDIES: Readonly<Record<TlsKind, string>> = {
  'self-signed': 'Add the names to tlsNames and restart the gateway.',
  files: 'Replace the file of tlsCert with a certificate that covers the names.',
  tailscale: 'Use names for which tailscaled has certificates, or set tls=files.',
  none: '',
};

export interface HostCheckOptions {
  readonly config: GatewayConfig;
  readonly clusters: Pick<Clusters, 'current'>;
  readonly certificates: CertificateSource;
  readonly log: Logger;
}

/**
 * Refuses host names of clusters that no certificate covers. Logs all of these names at the start, and logs a name
 * again when it is refused for the first time.
 */
export function refuseUncoveredHosts(options: HostCheckOptions): CertificateSource {
  const { clusters, config, certificates, log } = options;
  const reported = new BoundedMap<LoadedCertificate>(MAX_REPORTED);
  const isUncovered = (host: string, certificate: LoadedCertificate): boolean =>
    clusters.current().byHost.has(host) && !certifiesHost(certificate, host);
  function report(hosts: readonly string[], { leaf }: LoadedCertificate): void {
    const names = leaf.subjectAltName?.replaceAll('DNS:', '') ?? 'no names';
    const error = `${listOf(hosts)}: the certificate covers only ${names}. ${REMEDIES[tlsKindOf(config)]}`;
    log.error({ error }, 'host names of clusters are not served, because no certificate covers them');
  }

  async function reportAll(): Promise<void> {
    const hosts = [...clusters.current().byHost.keys()];
    const covered = new Set<string>();
    await forEachConcurrent(hosts, MAX_CONCURRENT, async (host) => {
      const certificate = await certificates.certificate(host).catch(() => undefined);
      if (certificate !== undefined && !isUncovered(host, certificate)) covered.add(host);
    });
    const uncovered = hosts.filter((host) => !covered.has(host));
    if (uncovered.length > 0) report(uncovered, await certificates.certificate(undefined));
  }
  reportAll().catch((error: unknown) => log.error({ error: errorText(error) }, 'certificate not available'));

  return {
    ...certificates,
    refusesHost(host, certificate) {
      if (!isUncovered(host, certificate)) return false;
      if (reported.get(host) !== certificate) report([host], certificate);
      reported.set(host, certificate);
      return true;
    },
  };
}

function listOf(hosts: readonly string[]): string {
  const more = hosts.length - MAX_LISTED;
  return hosts.slice(0, MAX_LISTED).join(', ') + (more > 0 ? ` and ${more} more` : '');
}
