/** Stored inputs of the fuzz targets. `fuzz/corpus/<target>/` contains one small file for each input. */
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('corpus', import.meta.url));

export interface CorpusEntry {
  readonly file: string;
  readonly input: Uint8Array;
}

/** Returns the inputs in the order of file names; an empty list if the target has no folder. */
export function readCorpus(target: string): readonly CorpusEntry[] {
  const folder = join(root, target);
  if (!existsSync(folder)) return [];
  return readdirSync(folder)
    .toSorted()
    .map((file) => ({ file: join(folder, file), input: new Uint8Array(readFileSync(join(folder, file))) }));
}

/** Writes an input to a file named after its hash, and returns the path. */
export function keepInput(target: string, input: Uint8Array): string {
  const folder = join(root, target);
  mkdirSync(folder, { recursive: true });
  const file = join(folder, createHash('sha256').update(input).digest('hex').slice(0, 12));
  writeFileSync(file, input);
  return file;
}
