/** The pager of the person at the terminal. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';

/** Exits when the text fits on the screen, shows colours, and leaves the text on the screen. */
const DEFAULT_PAGER = 'less -FRX';
/** How a shell exits when it cannot run or find a program. */
const NOT_RUN = new Set([126, 127]);

/**
 * Shows `text` in `$PAGER`, by default `less`.
 *
 * @returns false when there is no pager: `$PAGER` is empty or `cat`, or it cannot be run
 */
export async function showInPager(text: string, environment: ReadonlyMap<string, string>): Promise<boolean> {
  const pager = environment.get('PAGER') ?? DEFAULT_PAGER;
  if (pager.trim() === '' || pager.trim() === 'cat') return false;
  const child = spawn(pager, {
    shell: true,
    stdio: ['pipe', 'inherit', 'inherit'],
    env: { LESS: 'FRX', ...Object.fromEntries(environment) },
  });
  // the person may quit before all of the text was read
  child.stdin.on('error', () => undefined);
  child.stdin.end(text);
  try {
    await once(child, 'close');
  } catch {
    return false;
  }
  return !NOT_RUN.has(child.exitCode ?? 0);
}
