/** Refuses and logs host names of clusters that the certificate of the gateway does not cover. */
import { BoundedMap } from '../bounded-map.ts';
import type { GatewayConfig, TlsKind } from '../config/gateway.ts';
import type { Logger } from '../observe/logger.ts';
import { certifiesHost, type CertificateSource, type LoadedCertificate } from '../tailnet/certificates.ts';
import type { Clusters } from './clusters.ts';
import { tlsKindOf } from './tailnet.ts';

const MAX_REPORTED = 1000;
const REMEDIES: Readonly<Record<TlsKind, string>> = {
  'self-signed': 'Add the name to tlsNames and restart the gateway.',
  files: 'Replace the file of tlsCert with a certificate that covers the name.',
  tailscale: 'Use a name for which tailscaled has a certificate, or set tls=files.',
  none: '',
};

export interface HostCheckOptions {
  readonly config: GatewayConfig;
  readonly clusters: Pick<Clusters, 'current'>;
  readonly certificates: CertificateSource;
  readonly log: Logger;
}

/** Refuses host names of clusters that the certificate does not cover. Logs each name once per certificate. */
export function refuseUncoveredHosts(options: HostCheckOptions): CertificateSource {
  const { clusters, config, certificates, log } = options;
  const reported = new BoundedMap<LoadedCertificate>(MAX_REPORTED);
  const isUncovered = (host: string, certificate: LoadedCertificate): boolean =>
    clusters.current().byHost.has(host) && !certifiesHost(certificate, host);
  function report(host: string, { leaf }: LoadedCertificate): void {
    const names = leaf.subjectAltName?.replaceAll('DNS:', '') ?? 'no names';
    const error = `${host}: the certificate covers only ${names}. ${REMEDIES[tlsKindOf(config)]}`;
    log.error({ error }, 'a host name of a cluster is not served, because no certificate covers it');
  }

  return {
    ...certificates,
    refusesHost(host, certificate) {
      if (!isUncovered(host, certificate)) return false;
      if (reported.get(host) !== certificate) report(host, certificate);
      reported.set(host, certificate);
      return true;
    },
  };
}
