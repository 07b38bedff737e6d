/**
 * Creates one scratch directory for all temporary files of a test run, and removes it after the run. After the removal,
 * checks that tests have not created files elsewhere.
 */
import { existsSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { homedir, tmpdir } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
/** The path is short, because paths of sockets have a maximum length. */
const PREFIX = 'tctest-';
/** Cache of compiled sources. It halves the CPU time that the start of a process or thread takes. */
export const COMPILE_CACHE = join(ROOT, 'node_modules', '.cache', 'compiled');
/** Names that only tailcast uses. Other files in the home or temporary folder do not count. */
const OURS = /tailcast|tsrecorder|^\.kube$|^tc[a-z0-9]*-/;
const AT_HOME = ['', '.cache', '.config', '.local', '.local/share', '.local/state'];

/**
 * Returns the paths of existing files that tests could create outside the scratch folder. If the list is longer after
 * the tests, a test has written outside that folder.
 */
export function namesThatTestsMayNotMake(home: string, temporary: string, root: string): ReadonlySet<string> {
  const list = (folder: string): readonly string[] =>
    existsSync(folder) ? readdirSync(folder).map((name) => join(folder, name)) : [];
  const ours = (path: string): boolean => OURS.test(basename(path)) && !basename(path).startsWith(PREFIX);
  return new Set([
    ...list('/'),
    ...list(root),
    ...AT_HOME.flatMap((folder) => list(join(home, folder))).filter(ours),
    ...list(temporary).filter(ours),
  ]);
}

/** Runs once, because the projects of a run share their set-up. */
let begun = false;

export default function setUp(): (() => void) | undefined {
  if (begun) return undefined;
  begun = true;
  const temporary = tmpdir();
  const before = namesThatTestsMayNotMake(homedir(), temporary, ROOT);
  const scratch = mkdtempSync(join(temporary, PREFIX));
  // test processes inherit these environment variables
  process.env['TMPDIR'] = scratch;
  process.env['NODE_COMPILE_CACHE'] ??= COMPILE_CACHE;
  return () => {
    process.env['TMPDIR'] = temporary;
    removeAll(scratch);
    const made = [...namesThatTestsMayNotMake(homedir(), temporary, ROOT)].filter(
      (name) => !before.has(name),
    );
    if (made.length === 0) return;
    const finding = `tests made something outside their scratch folder: ${made.join(', ')}`;
    // fails only for files in `/`, because a user of this machine may have created files in other folders
    const isOurs = made.some((name) => dirname(name) === '/');
    if (isOurs && process.env['CI'] === 'true') throw new Error(finding);
    process.stderr.write(`tailcast: ${finding}\n`);
  };
}

/** Removes a folder. Prints an error instead of throwing it, because a process may still write to the folder. */
function removeAll(folder: string): void {
  try {
    rmSync(folder, { recursive: true, force: true, maxRetries: 3 });
  } catch (error) {
    process.stderr.write(`tailcast: ${folder} could not be removed: ${String(error)}\n`);
  }
}
