/**
 * Whether the files of an index are what its writer left when it closed them. Then none has to be looked through for damage before anything is
 * written: of a million sessions with nothing in memory that takes ten seconds, in which no running session is found.
 */
import { readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

const MARK = 'closed.json';

/** What there is of these databases, and of what SQLite keeps beside them: sizes and times of change. */
function stateOf(directory: string, databases: readonly string[]): string {
  const files = databases.flatMap((name) => [name, `${name}-wal`]);
  return JSON.stringify(
    files.map((name) => {
      const found = statSync(join(directory, name), { bigint: true, throwIfNoEntry: false });
      return [name, String(found?.size), String(found?.mtimeNs)];
    }),
  );
}

/** Says so; nobody has them open for writing any more. */
export function markProperClose(directory: string, databases: readonly string[]): void {
  writeFileSync(join(directory, MARK), stateOf(directory, databases), { mode: 0o600 });
}

/** Whether they are what they were then. Only once: whoever writes them says so again. */
export function takeProperClose(directory: string, databases: readonly string[]): boolean {
  const path = join(directory, MARK);
  try {
    const then = readFileSync(path, 'utf8');
    rmSync(path);
    return then === stateOf(directory, databases);
  } catch {
    // there is none, or it cannot be taken away: they are looked through
    return false;
  }
}
