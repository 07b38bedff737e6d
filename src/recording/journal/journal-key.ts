/** Key that seals (encrypts) journals: 32 random bytes in a file that other users cannot read. */
import { createSecretKey, hkdfSync, randomBytes, type KeyObject } from 'node:crypto';
import { link, open, readFile, stat, unlink } from 'node:fs/promises';
import { errorReason, isSystemError, TailcastError } from '../../errors.ts';

export const KEY_BYTES = 32;
export const KEY_ID_BYTES = 8;
export const SALT_BYTES = 32;

export interface JournalKey {
  /** Id of the key. With the id, readers can distinguish a damaged file from a file that is sealed with another key. */
  readonly id: Buffer;
  /** Returns the AES-256 key of one file. No two files have the same salt, so every file has its own key. */
  fileKey(salt: Uint8Array): KeyObject;
}

/** @param secret {@link KEY_BYTES} bytes */
export function createJournalKey(secret: Uint8Array): JournalKey {
  if (secret.length !== KEY_BYTES) throw new Error(`a journal key has ${KEY_BYTES} bytes`);
  const derive = (salt: Uint8Array, use: string, bytes: number): Buffer =>
    Buffer.from(hkdfSync('sha256', secret, salt, `tailcast journal ${use}`, bytes));
  return {
    id: derive(new Uint8Array(), 'id', KEY_ID_BYTES),
    fileKey: (salt) => createSecretKey(derive(salt, 'file', KEY_BYTES)),
  };
}

/**
 * Returns the key in `path`; undefined if the file does not exist.
 * @throws TailcastError `CONFIG_INVALID` as `loadJournalKey`
 */
export async function findJournalKey(path: string): Promise<JournalKey | undefined> {
  try {
    return createJournalKey(await readSecret(path));
  } catch (error) {
    if (isSystemError(error, 'ENOENT')) return undefined;
    throw unusable(path, error);
  }
}

/**
 * Returns the key in the file `path`, which contains the key in base64. Creates the file if it does not exist. If
 * several processes create the key at the same time, all use the key of the first process.
 *
 * @throws TailcastError `CONFIG_INVALID` if the key is malformed, or if other users can read the file
 */
export async function loadJournalKey(path: string): Promise<JournalKey> {
  return createJournalKey(await loadSecret(path));
}

/**
 * Returns the {@link KEY_BYTES} bytes of the key in `path`. Creates the key if it is missing. Throws the errors of
 * {@link loadJournalKey}.
 */
export async function loadSecret(path: string): Promise<Uint8Array> {
  try {
    return await readSecret(path).catch(async (error: unknown) => {
      if (!isSystemError(error, 'ENOENT')) throw error;
      await makeKey(path);
      return readSecret(path);
    });
  } catch (error) {
    throw unusable(path, error);
  }
}

async function readSecret(path: string): Promise<Uint8Array> {
  const text = (await readFile(path, 'latin1')).trim();
  const { mode } = await stat(path);
  // the file of a mounted Secret belongs to root and must be readable for the group of the pod
  if ((mode & 0o007) !== 0) throw new Error('everybody may read it: chmod o= it, and make a new one');
  const secret = Buffer.from(text, 'base64');
  if (secret.length !== KEY_BYTES || secret.toString('base64') !== text) {
    throw new Error(
      `it does not hold ${KEY_BYTES} bytes in base64: openssl rand -base64 ${KEY_BYTES} makes them`,
    );
  }
  return secret;
}

async function makeKey(path: string): Promise<void> {
  const draft = `${path}.${process.pid}.${randomBytes(4).toString('hex')}`;
  await using file = await open(draft, 'wx', 0o600);
  await file.writeFile(`${randomBytes(KEY_BYTES).toString('base64')}\n`);
  await file.sync();
  try {
    await link(draft, path);
  } catch (error) {
    if (!isSystemError(error, 'EEXIST')) throw error;
  } finally {
    await unlink(draft);
  }
}

function unusable(path: string, error: unknown): TailcastError {
  return new TailcastError('CONFIG_INVALID', `lateKeyFile ${path}: ${errorReason(error)}`, {
    cause: error,
  });
}
