/**
 * Detects whether the files of an index are unchanged since its writer closed them. In that case, the check for damage
 * is skipped. This check takes ten seconds for a million sessions, and running sessions are not indexed during the
 * check.
 */
import { readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

const MARK = 'closed.json';

/** Returns sizes and modification times of the databases and their SQLite side files. */
function stateOf(directory: string, databases: readonly string[]): string {
  const files = databases.flatMap((name) => [name, `${name}-wal`]);
  return JSON.stringify(
    files.map((name) => {
      const found = statSync(join(directory, name), { bigint: true, throwIfNoEntry: false });
      return [name, String(found?.size), String(found?.mtimeNs)];
    }),
  );
}

/** Marks the files as closed. The files must not be open for writing. */
export function markProperClose(directory: string, databases: readonly string[]): void {
  writeFileSync(join(directory, MARK), stateOf(directory, databases), { mode: 0o600 });
}

/** Returns true if the files are unchanged since they were marked, and removes the mark. */
export function takeProperClose(directory: string, databases: readonly string[]): boolean {
  const path = join(directory, MARK);
  try {
    const then = readFileSync(path, 'utf8');
    rmSync(path);
    return then === stateOf(directory, databases);
  } catch {
    // If the mark is missing or cannot be removed, the files are checked.
    return false;
  }
}
