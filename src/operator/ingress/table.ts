/**
 * Plans Ingresses whose certificates are in Secrets: the ingress table for tailcast's ingress server, and the serve
 * configuration of the tailscaled in front of this server. Pure.
 */
import { createPrivateKey, X509Certificate } from 'node:crypto';
import { errorText } from '../../errors.ts';
import type { IngressTable, TableCertificate } from '../../wire/ingress-table.ts';
import type { KubeObject } from '../kube-object.ts';
import { secretData } from '../workload/node-state.ts';
import { hostnameOf, INGRESS_ANNOTATIONS, type Ingress } from './resource.ts';
import type { HostRoutes, IngressProblem } from './routes.ts';

/** A certificate Secret, or the reason why it is not available. `excess`: the resource uses too many Secrets. */
export type TlsSecret = KubeObject | 'missing' | 'forbidden' | 'excess';

export interface TablePlan {
  readonly table: IngressTable;
  /** The serve configuration of tailscaled. */
  readonly config: { readonly TCP: Readonly<Record<string, object>> };
  readonly ports: readonly number[];
  readonly problems: readonly IngressProblem[];
}

/**
 * Maps the port that clients use to the listen address of `tailcast ingress`. The address is not 127.0.0.1, because a
 * userspace tailscaled forwards connections from the tailnet to 127.0.0.1. On that address, a peer could connect
 * directly and send its own PROXY header.
 */
const LISTENERS = { '443': '127.0.0.77:8443', '80': '127.0.0.77:8080' } as const;
/**
 * Maximum total size of the certificates of one Ingress or Gateway, in bytes. The certificates are copied into one
 * Secret, which has at most 1 MiB.
 */
export const MAX_CERTIFICATE_BYTES = 512 * 1024;

/** Returns the names of the Secrets in `spec.tls` of an Ingress. */
export function secretNames({ spec }: Ingress): readonly string[] {
  return [...new Set(spec.tls.map(({ secretName }) => secretName))].filter((name) => name !== '');
}

/**
 * Plans the table. A host with a Secret in `spec.tls` is served only if the Secret contains a usable certificate. A
 * host without a Secret is served over HTTP.
 *
 * @param hosts result of `ingressRoutesOf` for tailcast's ingress server
 * @param dnsName MagicDNS name of the node; undefined until the node has joined
 * @param secrets Secrets with certificates, with Secret names as map keys
 */
export function planTable(
  ingress: Ingress,
  hosts: ReadonlyMap<string, HostRoutes>,
  dnsName: string | undefined,
  secrets: ReadonlyMap<string, TlsSecret>,
  nowMs: number,
): TablePlan {
  const problems: IngressProblem[] = [];
  const certificates: TableCertificate[] = [];
  const secure = new Set<string>();
  const wide = (host: string): readonly string[] =>
    host === hostnameOf(ingress) && dnsName !== undefined ? [host, dnsName] : [host];
  let size = 0;
  for (const [index, { hosts: named, secretName }] of ingress.spec.tls.entries()) {
    if (secretName === '') continue;
    const patterns = named.flatMap((host) => wide(host.toLowerCase()));
    for (const pattern of named.length === 0 ? [''] : patterns) secure.add(pattern);
    const reject = (message: string): void => {
      problems.push({ reason: 'InvalidTLSSecret', message: `spec.tls[${index}].secretName: ${message}` });
    };
    const found = readCertificate(secretName, secrets.get(secretName) ?? 'missing');
    if ('problem' in found) {
      reject(`${found.problem}; ${named.join(', ') || 'no host'} is not served until then`);
      continue;
    }
    size += found.certificatePem.length + found.keyPem.length;
    if (size > MAX_CERTIFICATE_BYTES) {
      reject('the certificates of this Ingress are too large together: divide it into several');
      continue;
    }
    for (const doubt of doubtsOf(found.leaf, named, nowMs)) reject(`Secret "${secretName}" ${doubt}`);
    const { certificatePem, keyPem } = found;
    certificates.push({ hosts: patterns, certificatePem, keyPem });
  }
  const redirect = ingress.metadata.annotations[INGRESS_ANNOTATIONS.redirect] === 'true';
  if (ingress.metadata.annotations[INGRESS_ANNOTATIONS.funnel] === 'true') {
    const message =
      `${INGRESS_ANNOTATIONS.funnel}: Funnel works only with certificates of the control server: ` +
      'remove it, or the Secrets in spec.tls';
    problems.push({ reason: 'FunnelNotServed', message });
  }
  const isPlain = [...hosts.keys()].some((host) => host !== '' && !secure.has(host) && !secure.has(''));
  const ports =
    hosts.size === 0 ? [] : [...(certificates.length > 0 ? [443] : []), ...(redirect || isPlain ? [80] : [])];
  return {
    table: {
      version: 1,
      certificates,
      secure: [...secure],
      hosts: [...hosts].flatMap(([host, { prefixes, exact }]) =>
        (host === '' ? [''] : wide(host)).map((name) => ({
          name,
          prefixes: [...prefixes],
          exact: [...exact],
        })),
      ),
      redirect,
    },
    config: { TCP: Object.fromEntries(ports.map((port) => [port, forwardTo(port === 443 ? '443' : '80')])) },
    ports,
    problems,
  };
}

/**
 * Returns the configuration with which tailscaled forwards a port to tailcast's ingress server, with a PROXY header.
 */
export function forwardTo(port: keyof typeof LISTENERS): object {
  return { TCPForward: LISTENERS[port], ProxyProtocol: 2 };
}

type Found =
  | { readonly certificatePem: string; readonly keyPem: string; readonly leaf: X509Certificate }
  | { readonly problem: string };

/** Returns the certificate and the private key in a Secret, or the problem with the Secret. */
export function readCertificate(name: string, secret: TlsSecret): Found {
  if (secret === 'missing')
    return { problem: `Secret "${name}" does not exist: create it with type kubernetes.io/tls` };
  if (secret === 'excess')
    return { problem: `Secret "${name}" exceeds the maximum number of Secrets: divide the Ingress` };
  if (secret === 'forbidden') return { problem: `the operator may not read Secret "${name}": grant it get` };
  const data = secretData(secret);
  const certificatePem = data.get('tls.crt') ?? '';
  const keyPem = data.get('tls.key') ?? '';
  if (certificatePem === '' || keyPem === '') {
    return { problem: `Secret "${name}" has no tls.crt or no tls.key: fill both` };
  }
  try {
    const leaf = new X509Certificate(certificatePem);
    if (!leaf.checkPrivateKey(createPrivateKey(keyPem))) {
      return {
        problem: `tls.key of Secret "${name}" is not that of the first certificate in tls.crt: replace one of them`,
      };
    }
    return { certificatePem, keyPem, leaf };
  } catch (error) {
    return {
      problem: `Secret "${name}" cannot be read as PEM (${errorText(error)}): store certificate and key in PEM`,
    };
  }
}

/**
 * Returns problems that clients will find in a certificate. The certificate is served anyway, because each client
 * decides whether to trust it.
 */
export function doubtsOf(leaf: X509Certificate, hosts: readonly string[], nowMs: number): readonly string[] {
  // For the check, an example label replaces the wildcard.
  const foreign = hosts.filter((host) => leaf.checkHost(host.replace(/^\*\./, 'any.')) === undefined);
  return [
    ...(leaf.validToDate.getTime() <= nowMs ? [`has expired (${leaf.validTo}): renew it`] : []),
    ...(foreign.length > 0 ? [`is not for ${foreign.join(', ')}: name a certificate that is`] : []),
  ];
}
