/**
 * Self-signed TLS certificates, for setups without a public certificate. The CA is created once and stored in
 * a directory, so that kubeconfigs that trust it still work after a restart. The server certificate is
 * replaced before it expires, and when its names change.
 *
 * Directory: `ca/ca.crt`, `ca/ca.key`, `server.pem` (key, then certificate). Keys are readable by their owner
 * only.
 */
import { randomUUID, X509Certificate, createPrivateKey } from 'node:crypto';
import { mkdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { isIP } from 'node:net';
import { join } from 'node:path';
import { makeDirectories } from '../directories.ts';
import { errorText, ifPresent, TailcastError } from '../errors.ts';
import type { Logger } from '../observe/logger.ts';
import { normaliseAddress } from './addresses.ts';
import { loadCertificate, type CertificateSource, type LoadedCertificate } from './certificates.ts';
import { issueAuthority, issueServer, type IssuedPair } from './issue-certificate.ts';
import { createRefreshing } from './refreshing.ts';

export interface SelfSignedOptions {
  /** Directory of the CA and the certificate. Created if missing. */
  readonly directory: string;
  /** DNS names and IP addresses in addition to `localhost`, `127.0.0.1` and `::1`. */
  readonly names?: readonly string[];
  readonly log: Logger;
  /** Wall clock in milliseconds since 1970. */
  readonly wallClock?: () => number;
}

const DAY_MS = 86_400_000;
const AUTHORITY_DAYS = 3650;
const SERVER_DAYS = 90;
/** Minimum remaining validity of a server certificate, in days. */
const RENEW_DAYS = 30;

/**
 * @throws TailcastError `CERTIFICATE_UNAVAILABLE` if the directory is unusable, or its CA is damaged or has
 * expired. The CA is never replaced silently, because clients trust it.
 */
export async function openSelfSignedCertificates(
  options: SelfSignedOptions,
): Promise<CertificateSource & { readonly caPem: string }> {
  const { log } = options;
  const wallClock = options.wallClock ?? Date.now;
  const directory = options.directory;
  const names = [...new Set(['localhost', '127.0.0.1', '::1', ...(options.names ?? []).map(canonicalName)])];
  try {
    await makeDirectories(directory);
    const authority = await openAuthority(join(directory, 'ca'), wallClock());
    const server = createRefreshing<LoadedCertificate>({
      async load(kept) {
        const needs = { authority, names, nowMs: wallClock() };
        if (kept !== undefined && isGood(kept, needs)) return kept;
        return await openServer(join(directory, 'server.pem'), needs);
      },
      usable: ({ notAfterMs }) => notAfterMs > wallClock(),
      refreshAfterMs: DAY_MS,
      retryAfterMs: 60_000,
      now: wallClock,
      onBackgroundFailure: (error) => log.error({ error: errorText(error) }, 'certificate not renewed'),
    });
    await server.get();
    return { caPem: authority.certificatePem, certificate: () => server.get() };
  } catch (error) {
    if (error instanceof TailcastError) throw error;
    throw new TailcastError('CERTIFICATE_UNAVAILABLE', `${directory}: ${errorText(error)}`, { cause: error });
  }
}

/**
 * Returns a name in the form of a SAN.
 * @throws TailcastError `CONFIG_INVALID` for text that is neither a DNS name nor an IP address
 */
function canonicalName(name: string): string {
  const address = normaliseAddress(name);
  if (address !== undefined) return address;
  const lower = name.toLowerCase().replace(/\.$/, '');
  if (/^(\*\.)?[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*$/.test(lower))
    return lower;
  throw new TailcastError('CONFIG_INVALID', `${JSON.stringify(name)} is not a name for a certificate`);
}

async function openAuthority(directory: string, nowMs: number): Promise<IssuedPair> {
  const kept = await readAuthority(directory);
  if (kept !== undefined) {
    checkAuthority(kept, directory, nowMs);
    return kept;
  }
  const made = await issueAuthority({ nowMs, validMs: AUTHORITY_DAYS * DAY_MS });
  const fresh = `${directory}.${randomUUID()}`;
  await mkdir(fresh, { mode: 0o700 });
  await writeFile(join(fresh, 'ca.key'), made.keyPem, { mode: 0o600, flush: true });
  await writeFile(join(fresh, 'ca.crt'), made.certificatePem, { mode: 0o644, flush: true });
  try {
    // Renames the directory atomically, so that two processes that start at the same time use the same CA.
    await rename(fresh, directory);
    return made;
  } catch (error) {
    await rm(fresh, { recursive: true, force: true });
    const other = await readAuthority(directory);
    if (other === undefined) throw error;
    return other;
  }
}

/** Returns `undefined` if there is no CA. Throws if the CA is incomplete. */
async function readAuthority(directory: string): Promise<IssuedPair | undefined> {
  const certificatePem = await ifPresent(readFile(join(directory, 'ca.crt'), 'utf8'));
  const keyPem = await ifPresent(readFile(join(directory, 'ca.key'), 'utf8'));
  if (certificatePem === undefined && keyPem === undefined) return undefined;
  if (certificatePem !== undefined && keyPem !== undefined) return { certificatePem, keyPem };
  throw damaged(directory, 'one of ca.crt and ca.key is missing');
}

function checkAuthority(authority: IssuedPair, directory: string, nowMs: number): void {
  let certificate: X509Certificate;
  let fits: boolean;
  try {
    certificate = new X509Certificate(authority.certificatePem);
    fits = certificate.ca && certificate.checkPrivateKey(createPrivateKey(authority.keyPem));
  } catch (error) {
    throw damaged(directory, errorText(error), error);
  }
  if (!fits) throw damaged(directory, 'ca.crt is not a CA, or ca.key is not its key');
  if (certificate.validToDate.getTime() <= nowMs) throw damaged(directory, 'the CA has expired');
}

function damaged(directory: string, why: string, cause?: unknown): TailcastError {
  const detail =
    `the CA in ${directory} is unusable (${why}): restore it, or remove the directory and give clients the ` +
    `new CA`;
  return new TailcastError('CERTIFICATE_UNAVAILABLE', detail, cause === undefined ? undefined : { cause });
}

interface ServerNeeds {
  readonly authority: IssuedPair;
  readonly names: readonly string[];
  readonly nowMs: number;
}

async function openServer(path: string, needs: ServerNeeds): Promise<LoadedCertificate> {
  const kept = loadStored(await ifPresent(readFile(path, 'utf8')), path);
  if (kept !== undefined && isGood(kept, needs)) return kept;
  const { authority, names, nowMs } = needs;
  const pair = await issueServer(authority, { names, nowMs, validMs: SERVER_DAYS * DAY_MS });
  const fresh = `${path}.${randomUUID()}`;
  await writeFile(fresh, `${pair.keyPem}${pair.certificatePem}`, { mode: 0o600, flush: true });
  await rename(fresh, path);
  return loadCertificate(pair, path);
}

/**
 * Returns undefined for an invalid file. The caller then replaces the file, which is safe because clients
 * trust the CA and not the server certificate.
 */
function loadStored(pem: string | undefined, path: string): LoadedCertificate | undefined {
  const start = pem?.indexOf('-----BEGIN CERTIFICATE-----') ?? -1;
  if (pem === undefined || start === -1) return undefined;
  try {
    return loadCertificate({ keyPem: pem.slice(0, start), certificatePem: pem.slice(start) }, path);
  } catch {
    return undefined;
  }
}

function isGood(kept: LoadedCertificate, { authority, names, nowMs }: ServerNeeds): boolean {
  const issuer = new X509Certificate(authority.certificatePem);
  const lastsLong =
    kept.notAfterMs - nowMs > RENEW_DAYS * DAY_MS || kept.notAfterMs === issuer.validToDate.getTime();
  return (
    lastsLong &&
    kept.notBeforeMs <= nowMs &&
    kept.leaf.verify(issuer.publicKey) &&
    names.every((name) => covers(kept.leaf, name))
  );
}

function covers(leaf: X509Certificate, name: string): boolean {
  const found = isIP(name) === 0 ? leaf.checkHost(name, { wildcards: false }) : leaf.checkIP(name);
  return found !== undefined || leaf.subjectAltName?.split(', ').includes(`DNS:${name}`) === true;
}
