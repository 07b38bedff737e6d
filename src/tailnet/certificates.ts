/**
 * Sources of the listener's TLS certificate: `certificate-files.ts`, `local-api-certificates.ts` and
 * `self-signed.ts`.
 */
import { X509Certificate } from 'node:crypto';
import {
  createSecureContext,
  DEFAULT_CIPHERS,
  type SecureContext,
  type SecureContextOptions,
} from 'node:tls';
import { errorText, TailcastError } from '../errors.ts';

export interface CertificateSource {
  /**
   * Returns the certificate for `serverName`. Returns the default certificate if `serverName` is undefined (no SNI), an
   * address or an unknown name. Returns the same object until the certificate changes, so that TLS sessions can be
   * resumed.
   * @throws TailcastError `CERTIFICATE_UNAVAILABLE`
   */
  certificate(serverName: string | undefined): Promise<LoadedCertificate>;
  /**
   * Returns true if connections with this certificate must not request this canonical host name. Default: all
   * names are allowed.
   */
  readonly refusesHost?: (hostName: string, certificate: LoadedCertificate) => boolean;
  /** PEM of the CA that clients must trust, if the OS does not trust it. */
  readonly caPem?: string;
}

/** A private key, and a chain that starts with its certificate, as PEM texts. */
export interface CertificatePair {
  readonly keyPem: string;
  readonly certificatePem: string;
}

/** A loaded key and its chain. */
export interface LoadedCertificate {
  readonly context: SecureContext;
  readonly pair: CertificatePair;
  readonly leaf: X509Certificate;
  readonly notBeforeMs: number;
  readonly notAfterMs: number;
}

/** Returns a DNS name in lower case, without a trailing dot. */
export function canonicalHost(name: string): string {
  return name.toLowerCase().replace(/\.$/, '');
}

/**
 * True if a certificate covers a host name. As in Go, the common name is ignored and `*` matches exactly one
 * label.
 */
export function certifiesHost({ leaf }: LoadedCertificate, hostName: string): boolean {
  return leaf.checkHost(hostName, { subject: 'never', partialWildcards: false }) !== undefined;
}

/**
 * TLS settings of every listener. AES-128 comes first, as in Go servers such as the API server. AES-128 takes four
 * fifths of the time of AES-256, which is the first choice of Node.js (`openssl speed`, 16 KB blocks).
 */
export const TLS_OPTIONS = {
  minVersion: 'TLSv1.2',
  honorCipherOrder: true,
  ciphers: [
    'TLS_AES_128_GCM_SHA256',
    'TLS_AES_256_GCM_SHA384',
    'TLS_CHACHA20_POLY1305_SHA256',
    ...DEFAULT_CIPHERS.split(':').filter((name) => !name.startsWith('TLS_')),
  ].join(':'),
} as const satisfies SecureContextOptions;

/**
 * @param origin name of the source in errors
 * @throws TailcastError `CERTIFICATE_UNAVAILABLE` if key and certificate are unreadable or do not match
 */
export function loadCertificate(pair: CertificatePair, origin: string): LoadedCertificate {
  try {
    const leaf = new X509Certificate(pair.certificatePem);
    const context = createSecureContext({
      key: pair.keyPem,
      cert: pair.certificatePem,
      ...TLS_OPTIONS,
      sessionIdContext: 'tailcast',
    });
    return {
      context,
      pair,
      leaf,
      notBeforeMs: leaf.validFromDate.getTime(),
      notAfterMs: leaf.validToDate.getTime(),
    };
  } catch (error) {
    throw new TailcastError('CERTIFICATE_UNAVAILABLE', `${origin} cannot be used: ${errorText(error)}`, {
      cause: error,
    });
  }
}
