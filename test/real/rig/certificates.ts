import 'reflect-metadata';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import * as x509 from '@peculiar/x509';

const ALGORITHM = { name: 'ECDSA', namedCurve: 'P-256', hash: 'SHA-256' };
const DAY_MS = 24 * 3600 * 1000;

export interface Leaf {
  readonly certificatePath: string;
  readonly keyPath: string;
  readonly certificate: string;
  readonly key: string;
}

export interface LeafOptions {
  readonly name: string;
  /** Subject: common name and, for Kubernetes' client certificates, groups. */
  readonly commonName: string;
  readonly groups?: readonly string[];
  readonly dnsNames?: readonly string[];
  readonly addresses?: readonly string[];
}

export interface Authority {
  readonly certificatePath: string;
  readonly certificate: string;
  issue(options: LeafOptions): Promise<Leaf>;
}

/** Creates a CA with elliptic-curve keys, which are fast to create. Writes the files of the CA to `folder`. */
export async function createAuthority(folder: string, name: string): Promise<Authority> {
  const keys = await crypto.subtle.generateKey(ALGORITHM, true, ['sign', 'verify']);
  const subject = new x509.Name([{ CN: [name] }]);
  const root = await x509.X509CertificateGenerator.createSelfSigned({
    name: subject,
    keys,
    signingAlgorithm: ALGORITHM,
    ...validity(),
    extensions: [
      new x509.BasicConstraintsExtension(true, undefined, true),
      new x509.KeyUsagesExtension(x509.KeyUsageFlags.keyCertSign | x509.KeyUsageFlags.digitalSignature, true),
      await x509.SubjectKeyIdentifierExtension.create(keys.publicKey),
    ],
  });
  const certificatePath = join(folder, `${name}.crt`);
  const certificate = root.toString('pem');
  writeFileSync(certificatePath, certificate);
  let serial = 1;

  async function issue(options: LeafOptions): Promise<Leaf> {
    const leafKeys = await crypto.subtle.generateKey(ALGORITHM, true, ['sign', 'verify']);
    const alternatives: x509.JsonGeneralName[] = [
      ...(options.dnsNames ?? []).map((value) => ({ type: 'dns' as const, value })),
      ...(options.addresses ?? []).map((value) => ({ type: 'ip' as const, value })),
    ];
    serial += 1;
    const leaf = await x509.X509CertificateGenerator.create({
      serialNumber: serial.toString(16).padStart(8, '0'),
      subject: new x509.Name([
        ...(options.groups ?? []).map((group) => ({ O: [group] })),
        { CN: [options.commonName] },
      ]),
      issuer: subject,
      publicKey: leafKeys.publicKey,
      signingKey: keys.privateKey,
      signingAlgorithm: ALGORITHM,
      ...validity(),
      extensions: [
        new x509.BasicConstraintsExtension(false, undefined, true),
        new x509.ExtendedKeyUsageExtension([
          x509.ExtendedKeyUsage.serverAuth,
          x509.ExtendedKeyUsage.clientAuth,
        ]),
        ...(alternatives.length > 0 ? [new x509.SubjectAlternativeNameExtension(alternatives)] : []),
      ],
    });
    const written = {
      certificatePath: join(folder, `${options.name}.crt`),
      keyPath: join(folder, `${options.name}.key`),
      certificate: leaf.toString('pem'),
      key: await privateKeyPem(leafKeys.privateKey),
    };
    writeFileSync(written.certificatePath, written.certificate);
    writeFileSync(written.keyPath, written.key, { mode: 0o600 });
    return written;
  }

  return { certificatePath, certificate, issue };
}

/** Creates a key pair for service-account tokens and returns the paths of its files. */
export async function createSigningKey(folder: string): Promise<{ privatePath: string; publicPath: string }> {
  const keys = await crypto.subtle.generateKey(ALGORITHM, true, ['sign', 'verify']);
  const paths = {
    privatePath: join(folder, 'service-account.key'),
    publicPath: join(folder, 'service-account.pub'),
  };
  writeFileSync(paths.privatePath, await privateKeyPem(keys.privateKey), { mode: 0o600 });
  writeFileSync(
    paths.publicPath,
    x509.PemConverter.encode(await crypto.subtle.exportKey('spki', keys.publicKey), 'PUBLIC KEY'),
  );
  return paths;
}

async function privateKeyPem(key: CryptoKey): Promise<string> {
  return `${x509.PemConverter.encode(await crypto.subtle.exportKey('pkcs8', key), 'PRIVATE KEY')}\n`;
}

function validity(): { notBefore: Date; notAfter: Date } {
  return { notBefore: new Date(Date.now() - DAY_MS), notAfter: new Date(Date.now() + 30 * DAY_MS) };
}
