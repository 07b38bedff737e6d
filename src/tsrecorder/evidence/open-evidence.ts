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
  /** Of this process. */
  readonly spoolDirectory: string;
  /** Of all processes with the same key: it is in this spool when no file is named. */
  readonly keySpool: string;
  /** Private key, made if missing. */
  readonly keyFile: string | undefined;
}

/** @throws TailcastError `CONFIG_INVALID` when there is no usable key; a system error when the log cannot be kept. */
export async function openEvidence({
  spoolDirectory,
  keySpool,
  keyFile,
  ...options
}: OpenEvidenceOptions): Promise<SessionEvidence> {
  const directory = await makeFolder(spoolDirectory);
  return openSessionEvidence({
    ...options,
    path: join(directory, 'log'),
    key: await loadSigningKey(keyFile ?? join(await makeFolder(keySpool), 'key.pem'), true),
    randomId: () => randomBytes(16).toString('hex'),
  });
}

async function makeFolder(spool: string): Promise<string> {
  const folder = join(spool, 'evidence');
  await makeDirectory(folder);
  return folder;
}
