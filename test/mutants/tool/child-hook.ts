/**
 * Preloaded into every Node process that a test starts (`NODE_OPTIONS`): replaces the source by the version with all
 * changes, and reads the active change from the environment. Without an active change, the hook records each change
 * whose code is executed. Child processes of such a process load the hook as well, even with another environment.
 */
import { ChildProcess } from 'node:child_process';
import { appendFileSync, readFileSync } from 'node:fs';
import { registerHooks } from 'node:module';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { ACTIVE_VARIABLE, JOBS_VARIABLE, SEEN_VARIABLE, SWITCHED_FOLDER } from './jobs.ts';

const folder = process.env[JOBS_VARIABLE];
const root = join(import.meta.dirname, '../../..');

if (folder !== undefined && Reflect.get(globalThis, '$mutant') === undefined) {
  const active = process.env[ACTIVE_VARIABLE];
  const seenFile = process.env[SEEN_VARIABLE];
  const seen = new Set<string>();
  Object.assign(globalThis, {
    $mutant(key: string): boolean {
      if (active !== undefined) return key === active;
      // the record is written immediately, because tests kill many of these processes
      if (seenFile !== undefined && !seen.has(key)) appendFileSync(seenFile, `${key}\n`);
      seen.add(key);
      return false;
    },
  });
  const prototype = ChildProcess.prototype as unknown as {
    spawn(options: { envPairs?: readonly string[] }): number;
  };
  const { spawn } = prototype;
  prototype.spawn = function (this: unknown, options) {
    return spawn.call(this, { ...options, envPairs: withVariables(options.envPairs ?? []) });
  };
  registerHooks({
    load(url, context, next) {
      const source = switchedSource(url, folder);
      if (source === undefined) return next(url, context);
      return { format: 'module-typescript', source, shortCircuit: true };
    },
  });
}

/** Adds missing variables of the tool to an environment. */
function withVariables(pairs: readonly string[]): readonly string[] {
  const added = ['NODE_OPTIONS', JOBS_VARIABLE, ACTIVE_VARIABLE, SEEN_VARIABLE].flatMap((name) => {
    const value = process.env[name];
    return value === undefined || pairs.some((pair) => pair.startsWith(`${name}=`))
      ? []
      : [`${name}=${value}`];
  });
  return [...pairs, ...added];
}

function switchedSource(url: string, jobs: string): string | undefined {
  if (!url.startsWith('file:')) return undefined;
  const path = fileURLToPath(url);
  if (!path.startsWith(join(root, 'src', '/')) || !path.endsWith('.ts')) return undefined;
  const name = path.slice(root.length + 1).replaceAll('/', '+');
  try {
    return readFileSync(join(jobs, SWITCHED_FOLDER, name), 'utf8');
  } catch {
    // the file has no version with changes
    return undefined;
  }
}
