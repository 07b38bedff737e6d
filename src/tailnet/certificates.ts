/**
 * Where the listener's TLS certificate comes from. The sources are `certificate-files.ts`, `local-api-certificates.ts`
 * and `self-signed.ts`.
 */
import { X509Certificate } from 'node:crypto';
import { createSecureContext, type SecureContext } from 'node:tls';
import { errorText, TailcastError } from '../errors.ts';

export interface CertificateSource {
  /**
   * What to serve a client that asks for `serverName`; clients that name nothing, an address or a stranger get the
   * default certificate. The same certificate is always the same object, so that TLS sessions can be resumed.
   * @throws TailcastError `CERTIFICATE_UNAVAILABLE`
   */
  context(serverName: string | undefined): Promise<SecureContext>;
  /** The certificate authority a client must trust, where the system's do not vouch for the certificate. */
  readonly caPem?: string;
}

/** A key and a chain that fit together, ready to serve. */
export interface LoadedCertificate {
  readonly context: SecureContext;
  readonly leaf: X509Certificate;
  readonly notBeforeMs: number;
  readonly notAfterMs: number;
}

/**
 * @param pair PEM texts; the chain begins with the server's own certificate
 * @param origin where they are from, for the error's text
 * @throws TailcastError `CERTIFICATE_UNAVAILABLE` when they are unreadable or do not belong together
 */
export function loadCertificate(
  pair: { readonly keyPem: string; readonly certificatePem: string },
  origin: string,
): LoadedCertificate {
  try {
    const leaf = new X509Certificate(pair.certificatePem);
    const context = createSecureContext({
      key: pair.keyPem,
      cert: pair.certificatePem,
      minVersion: 'TLSv1.2',
      honorCipherOrder: true,
      sessionIdContext: 'tailcast',
    });
    return {
      context,
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
