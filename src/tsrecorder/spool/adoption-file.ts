/**
 * The adoption file of a session that this recorder rebuilt from a shared bucket. The file identifies the recorder
 * that started the session, and is stored next to the spool.
 */
import { readFile } from 'node:fs/promises';
import { z } from 'zod';
import { ifPresent, TailcastError } from '../../errors.ts';
import { jsonOrUndefined } from '../../wire/json-value.ts';
import { removeFile, writeDurableFile } from '../files/durable-files.ts';

const schema = z.strictObject({
  log: z.string(),
  start: z.int().min(0),
  key: z.string(),
  durable: z.int().min(0),
});
type StoredAdoption = z.infer<typeof schema>;

/** Returns the path of the adoption file of a spool. */
export function adoptionPath({ cast }: { readonly cast: string }): string {
  return cast.replace(/\.cast$/, '.adopted');
}

/** Writes or replaces the file. The caller must sync the directory. @throws a system error */
export async function writeAdoption(path: string, adoption: StoredAdoption): Promise<void> {
  await removeFile(path);
  await writeDurableFile(path, [Buffer.from(`${JSON.stringify(adoption)}\n`)]);
}

/**
 * Reads the file. @returns undefined if there is no file, because this recorder did not rebuild the session. @throws
 * TailcastError `STORE_FAILED` if it is damaged
 */
export async function readAdoption(path: string): Promise<StoredAdoption | undefined> {
  const text = await ifPresent(readFile(path, 'utf8'));
  if (text === undefined) return undefined;
  const adoption = schema.safeParse(jsonOrUndefined(text)).data;
  if (adoption === undefined) throw new TailcastError('STORE_FAILED', 'the adoption file cannot be read');
  return adoption;
}
