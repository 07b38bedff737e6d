/** A release for this machine's architecture, new or existing, for suites that install only from its folder. */
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { ROOT } from '../../../scripts/release/project.ts';
import type { Outcome } from '../chart/render.ts';
import { ensureDebianProgram } from '../rig/debian.ts';
import { expectSuccess } from './container.ts';

/** Debian removes old packages, so the pinned version may be missing until the next release updates it. */
const GONE = /--update-base/;

/**
 * Prints the time from the start of an installation to the first recorded shell, for docs/install.md. The test does not
 * limit this time, because the machine may be busy.
 *
 * @param beganMs start time of the first command
 */
export function tellTime(way: string, beganMs: number): void {
  const seconds = ((Date.now() - beganMs) / 1000).toFixed(0);
  process.stderr.write(`install: ${way}: the first recorded shell after ${seconds} s\n`);
}

/** Returns the folder in `INSTALL_RELEASE`, or builds a release, which needs the network and several minutes. */
export function releaseFolder(folder: string): string {
  return process.env['INSTALL_RELEASE'] ?? makeRelease(folder, 'first');
}

/** Builds a release into a new subfolder of `folder` with this name, and returns its path. */
export function makeRelease(folder: string, name: string): string {
  ensureDebianProgram('rpm');
  const output = join(folder, name);
  const make = (...more: readonly string[]): Outcome => {
    const script = join(ROOT, 'scripts', 'release', 'main.ts');
    const args = [script, '--dry-run', '--arch=amd64', `--output=${output}`, ...more];
    const { status, stdout, stderr } = spawnSync(process.execPath, args, {
      encoding: 'utf8',
      env: cleanly(),
    });
    return { code: status ?? 1, stdout, stderr };
  };
  const outcome = make();
  expectSuccess(GONE.test(outcome.stderr) ? make('--base=newest') : outcome);
  return output;
}

/**
 * Returns the environment without the variables of this rig and of vitest, because tailcast rejects unknown settings.
 */
export function cleanly(more: Readonly<Record<string, string>> = {}): NodeJS.ProcessEnv {
  const kept = Object.entries(process.env).filter(([name]) => !/^(TAILCAST_|VITEST|NODE_ENV$)/.test(name));
  return { ...Object.fromEntries(kept), ...more };
}
