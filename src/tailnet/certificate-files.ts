/**
 * TLS certificate from two files, for example from cert-manager, a mounted Secret or an ACME client. Reloads
 * the files when they change.
 */
import { readFile, stat } from 'node:fs/promises';
import { errorText, TailcastError } from '../errors.ts';
import type { Logger } from '../observe/logger.ts';
import { loadCertificate, type CertificateSource, type LoadedCertificate } from './certificates.ts';
import { createRefreshing } from './refreshing.ts';

export interface CertificateFilesOptions {
  /** Path of the certificate chain: PEM, the server's certificate first. */
  readonly certificatePath: string;
  /** Path of the private key, as PEM. */
  readonly keyPath: string;
  readonly log: Logger;
  /** Minimum time between two checks of the files, in milliseconds. */
  readonly checkEveryMs?: number;
  /** Monotonic clock, in milliseconds. */
  readonly now?: () => number;
}

interface FileCertificate extends LoadedCertificate {
  /** Version of both files. It changes if either file changes. */
  readonly version: string;
}

/**
 * Resolves after the files have been read once. If the files become invalid later, the source logs an error and keeps
 * the last valid certificate.
 * @throws TailcastError `CERTIFICATE_UNAVAILABLE` if the files are invalid at the start
 */
export async function openCertificateFiles(options: CertificateFilesOptions): Promise<CertificateSource> {
  const { log } = options;
  const checkEveryMs = options.checkEveryMs ?? 2000;
  let reported: string | undefined;
  const refreshing = createRefreshing<FileCertificate>({
    async load(kept) {
      const next = await read(options, kept);
      if (kept !== undefined && next !== kept) {
        log.info({ file: options.certificatePath, validTo: next.leaf.validTo }, 'certificate reloaded');
      }
      reported = undefined;
      return next;
    },
    usable: () => true,
    refreshAfterMs: checkEveryMs,
    retryAfterMs: checkEveryMs,
    now: options.now ?? (() => performance.now()),
    onBackgroundFailure(error) {
      const text = errorText(error);
      if (text !== reported) log.error({ error: text }, 'certificate not reloaded; the last valid one stays');
      reported = text;
    },
  });
  await refreshing.get();
  return { certificate: () => refreshing.get() };
}

async function read(
  { certificatePath, keyPath }: CertificateFilesOptions,
  kept: FileCertificate | undefined,
): Promise<FileCertificate> {
  try {
    const version = `${await versionOf(certificatePath)} ${await versionOf(keyPath)}`;
    if (kept?.version === version) return kept;
    const certificatePem = await readFile(certificatePath, 'utf8');
    const keyPem = await readFile(keyPath, 'utf8');
    return { ...loadCertificate({ certificatePem, keyPem }, `${certificatePath} with ${keyPath}`), version };
  } catch (error) {
    if (error instanceof TailcastError) throw error;
    throw new TailcastError('CERTIFICATE_UNAVAILABLE', errorText(error), { cause: error });
  }
}

async function versionOf(path: string): Promise<string> {
  const { ino, size, mtimeNs } = await stat(path, { bigint: true });
  return `${ino}/${size}/${mtimeNs}`;
}
