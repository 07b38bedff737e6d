/**
 * Issues ECDSA P-256 certificates: a CA and the server certificates that it signs. Keys and certificates are PEM
 * texts; this module stores nothing.
 */
import 'reflect-metadata'; // This import must come before @peculiar/x509, which fails to load without it.
import { createPrivateKey, KeyObject, randomBytes, webcrypto } from 'node:crypto';
import { isIP } from 'node:net';
import {
  AuthorityKeyIdentifierExtension,
  BasicConstraintsExtension,
  ExtendedKeyUsage,
  ExtendedKeyUsageExtension,
  KeyUsageFlags,
  KeyUsagesExtension,
  SubjectAlternativeNameExtension,
  SubjectKeyIdentifierExtension,
  X509Certificate,
  X509CertificateGenerator,
} from '@peculiar/x509';

export interface IssuedPair {
  /** Private key in PEM (PKCS #8). */
  readonly keyPem: string;
  readonly certificatePem: string;
}

const ECDSA = { name: 'ECDSA', namedCurve: 'P-256', hash: 'SHA-256' } as const;

/**
 * Time between the start of a certificate's validity and its issue, in milliseconds. The validity starts earlier,
 * because the clock of a client may be behind.
 */
const BACKDATED_MS = 3_600_000;

/** Creates a CA that may sign server certificates, but no other CAs. */
export async function issueAuthority(options: {
  readonly nowMs: number;
  readonly validMs: number;
}): Promise<IssuedPair> {
  const keys = await webcrypto.subtle.generateKey(ECDSA, true, ['sign', 'verify']);
  const name = `CN=tailcast ${randomBytes(4).toString('hex')}`;
  const certificate = await X509CertificateGenerator.createSelfSigned({
    serialNumber: serialNumber(),
    name,
    notBefore: new Date(options.nowMs - BACKDATED_MS),
    notAfter: new Date(options.nowMs + options.validMs),
    signingAlgorithm: ECDSA,
    keys,
    extensions: [
      new BasicConstraintsExtension(true, 0, true),
      new KeyUsagesExtension(KeyUsageFlags.keyCertSign | KeyUsageFlags.cRLSign, true),
      await SubjectKeyIdentifierExtension.create(keys.publicKey),
    ],
  });
  return { keyPem: keyPem(keys.privateKey), certificatePem: `${certificate.toString('pem')}\n` };
}

/**
 * Creates a server certificate signed by `authority`.
 * @param options `names`: DNS names and IP addresses of the server; not empty
 */
export async function issueServer(
  authority: IssuedPair,
  options: { readonly names: readonly string[]; readonly nowMs: number; readonly validMs: number },
): Promise<IssuedPair> {
  const keys = await webcrypto.subtle.generateKey(ECDSA, true, ['sign', 'verify']);
  const issuer = new X509Certificate(authority.certificatePem);
  const signingKey = createPrivateKey(authority.keyPem).toCryptoKey(ECDSA, false, ['sign']);
  const certificate = await X509CertificateGenerator.create({
    serialNumber: serialNumber(),
    subject: 'CN=tailcast gateway',
    issuer: issuer.subject,
    notBefore: new Date(options.nowMs - BACKDATED_MS),
    notAfter: new Date(Math.min(options.nowMs + options.validMs, issuer.notAfter.getTime())),
    signingAlgorithm: ECDSA,
    publicKey: keys.publicKey,
    signingKey,
    extensions: [
      new BasicConstraintsExtension(false, undefined, true),
      new KeyUsagesExtension(KeyUsageFlags.digitalSignature, true),
      new ExtendedKeyUsageExtension([ExtendedKeyUsage.serverAuth]),
      new SubjectAlternativeNameExtension(
        options.names.map((value) => ({ type: isIP(value) === 0 ? 'dns' : 'ip', value })),
      ),
      await SubjectKeyIdentifierExtension.create(keys.publicKey),
      await AuthorityKeyIdentifierExtension.create(issuer.publicKey),
    ],
  });
  return { keyPem: keyPem(keys.privateKey), certificatePem: `${certificate.toString('pem')}\n` };
}

/**
 * Returns a random serial number of 16 bytes in hexadecimal. It is positive and does not start with zero (RFC
 * 5280 §4.1.2.2).
 */
function serialNumber(): string {
  const bytes = randomBytes(16);
  bytes.writeUInt8((bytes.readUInt8(0) & 0x3f) | 0x40, 0);
  return bytes.toString('hex');
}

function keyPem(key: webcrypto.CryptoKey): string {
  return KeyObject.from(key).export({ type: 'pkcs8', format: 'pem' }).toString();
}
