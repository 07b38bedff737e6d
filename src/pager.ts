/** Shows text in the user's pager. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';

/** Options of `less`: exit if the text fits on the screen, show colours, and leave the text on the screen. */
const DEFAULT_PAGER = 'less -FRX';
/** Exit codes with which a shell reports that it cannot find or run a program. */
const NOT_RUN = new Set([126, 127]);

/**
 * Shows `text` in `$PAGER`, by default `less`.
 *
 * @returns false if there is no pager, because `$PAGER` is empty, is `cat`, or cannot be run
 */
export async function showInPager(text: string, environment: ReadonlyMap<string, string>): Promise<boolean> {
  const pager = environment.get('PAGER') ?? DEFAULT_PAGER;
  if (pager.trim() === '' || pager.trim() === 'cat') return false;
  const child = spawn(pager, {
    shell: true,
    stdio: ['pipe', 'inherit', 'inherit'],
    env: { LESS: 'FRX', ...Object.fromEntries(environment) },
  });
  // ignores write errors, because the user may quit before the pager has read all text
  child.stdin.on('error', () => undefined);
  child.stdin.end(text);
  try {
    await once(child, 'close');
  } catch {
    return false;
  }
  return !NOT_RUN.has(child.exitCode ?? 0);
}
