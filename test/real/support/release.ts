/** A release, made for this machine's kind of processor or there already, for suites that install from its folder alone. */
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { ROOT } from '../../../scripts/release/project.ts';
import type { Outcome } from '../chart/render.ts';
import { ensureDebianProgram } from '../rig/debian.ts';
import { expectSuccess } from './container.ts';

/** Debian takes packages away when it has newer ones; what is pinned is then for the next release to bring forward. */
const GONE = /--update-base/;

/**
 * Says how long one way of installing takes to the first recorded shell: a figure for docs/install.md, and no limit, because the
 * machine may be busy.
 *
 * @param beganMs when the first command of that way was started
 */
export function tellTime(way: string, beganMs: number): void {
  const seconds = ((Date.now() - beganMs) / 1000).toFixed(0);
  process.stderr.write(`install: ${way}: the first recorded shell after ${seconds} s\n`);
}

/** What `INSTALL_RELEASE` names; else a release that is made now, which takes the network and minutes. */
export function releaseFolder(folder: string): string {
  return process.env['INSTALL_RELEASE'] ?? makeRelease(folder, 'first');
}

/** Makes a release into a new folder of this name in `folder`; gives its path. */
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

/** The environment without the marks of this rig and of vitest, which settings are checked against. */
export function cleanly(more: Readonly<Record<string, string>> = {}): NodeJS.ProcessEnv {
  const kept = Object.entries(process.env).filter(([name]) => !/^(TAILCAST_|VITEST|NODE_ENV$)/.test(name));
  return { ...Object.fromEntries(kept), ...more };
}
