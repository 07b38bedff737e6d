/**
 * Where the listener's TLS certificate comes from. The sources are `certificate-files.ts`, `local-api-certificates.ts`
 * and `self-signed.ts`.
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
   * The default certificate, for clients that name nothing. The same object as long as it is the same certificate.
   * @throws TailcastError `CERTIFICATE_UNAVAILABLE`
   */
  fallback(): Promise<LoadedCertificate>;
  /**
   * What to serve a client that asks for `serverName`; clients that name nothing, an address or a stranger get the
   * default certificate. The same certificate is always the same object, so that TLS sessions can be resumed.
   * @throws TailcastError `CERTIFICATE_UNAVAILABLE`
   */
  context(serverName: string | undefined): Promise<SecureContext>;
  /** The certificate authority a client must trust, where the system's do not vouch for the certificate. */
  readonly caPem?: string;
}

/** PEM texts: a private key, and a chain that begins with its own certificate. */
export interface CertificatePair {
  readonly keyPem: string;
  readonly certificatePem: string;
}

/** A key and a chain that fit together, ready to serve. */
export interface LoadedCertificate {
  readonly context: SecureContext;
  readonly pair: CertificatePair;
  readonly leaf: X509Certificate;
  readonly notBeforeMs: number;
  readonly notAfterMs: number;
}

/**
 * What every listener speaks. AES-128 comes first, as with Go's servers and so with the API servers behind us: what it
 * encrypts costs four fifths of what AES-256 does, Node's first choice (`openssl speed`, 16 KB blocks).
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
 * @param origin where they are from, for the error's text
 * @throws TailcastError `CERTIFICATE_UNAVAILABLE` when they are unreadable or do not belong together
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
