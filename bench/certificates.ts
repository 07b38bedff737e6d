/** One CA and one server certificate for all processes of a benchmark, as files in a directory of their own. */
import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { issueAuthority, issueServer } from '../src/tailnet/issue-certificate.ts';

export interface CertificateFiles {
  readonly directory: string;
  readonly ca: string;
  readonly cert: string;
  readonly key: string;
}

const DAY_MS = 86_400_000;

export async function writeCertificates(): Promise<CertificateFiles> {
  const directory = mkdtempSync(join(tmpdir(), 'tailcast-bench-'));
  const nowMs = Date.now();
  const authority = await issueAuthority({ nowMs, validMs: DAY_MS });
  const pair = await issueServer(authority, { names: ['localhost', '127.0.0.1'], nowMs, validMs: DAY_MS });
  const files = {
    directory,
    ca: join(directory, 'ca.pem'),
    cert: join(directory, 'cert.pem'),
    key: join(directory, 'key.pem'),
  };
  writeFileSync(files.ca, authority.certificatePem);
  writeFileSync(files.cert, pair.certificatePem);
  writeFileSync(files.key, pair.keyPem, { mode: 0o600 });
  return files;
}
