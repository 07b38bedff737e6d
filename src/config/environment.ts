/** The only file that reads the process environment. */
import { homedir } from 'node:os';
import { join } from 'node:path';

/** A copy of the environment as a map, so that no variable can shadow an object's own members. */
export function readEnvironment(): ReadonlyMap<string, string> {
  const entries = Object.entries(process.env).filter(
    (entry): entry is [string, string] => entry[1] !== undefined,
  );
  return new Map(entries);
}

/** Folder for the state of a user's own processes: `$XDG_STATE_HOME/tailcast`, else `~/.local/state/tailcast`. */
export function defaultStateDirectory(environment: ReadonlyMap<string, string>): string {
  const base = environment.get('XDG_STATE_HOME');
  return join(base !== undefined && base !== '' ? base : join(homedir(), '.local', 'state'), 'tailcast');
}
