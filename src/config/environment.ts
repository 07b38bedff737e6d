/** The only file that reads the process environment. */
import { homedir } from 'node:os';
import { join } from 'node:path';

/**
 * Returns a copy of the environment as a map. In a map, names such as `constructor` or `__proto__` have no special
 * meaning.
 */
export function readEnvironment(): ReadonlyMap<string, string> {
  const entries = Object.entries(process.env).filter(
    (entry): entry is [string, string] => entry[1] !== undefined,
  );
  return new Map(entries);
}

/**
 * Returns the state directory for processes of a normal user: `$XDG_STATE_HOME/tailcast`, or
 * `~/.local/state/tailcast`.
 */
export function defaultStateDirectory(environment: ReadonlyMap<string, string>): string {
  const base = environment.get('XDG_STATE_HOME');
  return join(base !== undefined && base !== '' ? base : join(homedir(), '.local', 'state'), 'tailcast');
}
