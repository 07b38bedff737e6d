/** Opens the evidence of a recorder: the evidence log in the spool, and the key. */
import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { makeDirectory } from '../files/durable-files.ts';
import {
  openSessionEvidence,
  type SessionEvidence,
  type SessionEvidenceOptions,
} from './session-evidence.ts';
import { loadSigningKey } from './signing-key.ts';

export interface OpenEvidenceOptions extends Omit<SessionEvidenceOptions, 'path' | 'key' | 'randomId'> {
  readonly spoolDirectory: string;
  /** File of the private key, created if missing. Default: a file in the spool. */
  readonly keyFile: string | undefined;
}

/** Returns the default path of the key. */
function keyInSpool(spoolDirectory: string): string {
  return join(spoolDirectory, 'evidence', 'key.pem');
}

/**
 * Opens the evidence.
 *
 * @throws TailcastError `CONFIG_INVALID` if the key is unusable; a system error if the evidence log is not writable
 */
export async function openEvidence({
  spoolDirectory,
  keyFile = keyInSpool(spoolDirectory),
  ...options
}: OpenEvidenceOptions): Promise<SessionEvidence> {
  const directory = join(spoolDirectory, 'evidence');
  await makeDirectory(directory);
  return openSessionEvidence({
    ...options,
    path: join(directory, 'log'),
    key: await loadSigningKey(keyFile, true),
    randomId: () => randomBytes(16).toString('hex'),
  });
}
