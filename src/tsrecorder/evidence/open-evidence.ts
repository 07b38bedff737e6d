/** Opens the evidence of a recorder: its log in the spool, and its key. */
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
  /** Private key, made if missing. Default: the one in the spool. */
  readonly keyFile: string | undefined;
}

/** Where a recorder has its key unless it is told otherwise. */
function keyInSpool(spoolDirectory: string): string {
  return join(spoolDirectory, 'evidence', 'key.pem');
}

/** @throws TailcastError `CONFIG_INVALID` when there is no usable key; a system error when the log cannot be kept. */
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
