import { readFileSync } from 'node:fs';
import { parseDocument } from 'yaml';
import { TailcastError, errorReason } from '../errors.ts';

/**
 * Maximum size of a configuration file, in bytes. A larger file is rejected, because it cannot be a configuration file.
 */
const MAX_FILE_BYTES = 1 << 20;

/**
 * Reads a YAML (or JSON) configuration file into a flat map of its top-level keys.
 *
 * @throws TailcastError `CONFIG_INVALID` with the path of the file and the error in it
 */
export function readConfigFile(path: string): { path: string; entries: ReadonlyMap<string, unknown> } {
  let source: string;
  try {
    source = readFileSync(path, 'utf8');
  } catch (error) {
    throw new TailcastError('CONFIG_INVALID', `${path} cannot be read: ${errorReason(error)}`, {
      cause: error,
    });
  }
  if (source.length > MAX_FILE_BYTES)
    throw new TailcastError('CONFIG_INVALID', `${path} is larger than 1 MiB`);
  const document = parseDocument(source, { uniqueKeys: true });
  const [problem] = document.errors;
  if (problem !== undefined) {
    const { line = 1, col = 1 } = problem.linePos?.[0] ?? {};
    const what = problem.code === 'DUPLICATE_KEY' ? 'the key occurs twice' : 'the file is not valid YAML';
    throw new TailcastError('CONFIG_INVALID', `${path}: line ${line}, column ${col}: ${what}`);
  }
  const content: unknown = document.toJS({ maxAliasCount: 0 });
  if (content === null || content === undefined) return { path, entries: new Map() };
  if (typeof content !== 'object' || Array.isArray(content)) {
    throw new TailcastError('CONFIG_INVALID', `${path}: a mapping of settings is expected at the top level`);
  }
  return { path, entries: new Map(Object.entries(content)) };
}
