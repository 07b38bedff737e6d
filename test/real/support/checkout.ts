/** Another version of this repository, laid out beside it. */
import { execFileSync } from 'node:child_process';
import { mkdirSync, readFileSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { ROOT, git } from '../../../scripts/release/project.ts';

/** What is upgraded from until there is a release. */
const BEFORE_RELEASES = '29d3765';

/** What `UPGRADE_FROM` names; else the newest tag of a release before this commit. */
export function previousVersion(): string {
  const tag = git('describe', '--tags', '--abbrev=0', '--match=v*', 'HEAD^');
  return process.env['UPGRADE_FROM'] ?? (tag === '' ? BEFORE_RELEASES : tag);
}

/** Why a version cannot be laid out; undefined: it can. A copy of the sources without their history has no other version. */
export function problemOfVersion(version: string): string | undefined {
  if (git('rev-parse', '--verify', '--quiet', `${version}^{commit}`) !== '') return undefined;
  return `this checkout has no ${version}: git fetch --unshallow --tags, or UPGRADE_FROM=<version>`;
}

/**
 * Lays out the sources of a version with the packages they need.
 *
 * @throws Error when this checkout has not got that version
 */
export function layOutVersion(version: string, folder: string): void {
  const problem = problemOfVersion(version);
  if (problem !== undefined) throw new Error(problem);
  mkdirSync(folder);
  const archive = execFileSync(
    'git',
    ['archive', version, 'package.json', 'package-lock.json', '.npmrc', 'src'],
    {
      cwd: ROOT,
      maxBuffer: 1 << 30,
    },
  );
  execFileSync('tar', ['-x', '-C', folder], { input: archive });
  const lock = (root: string): string => readFileSync(join(root, 'package-lock.json'), 'utf8');
  if (lock(folder) === lock(ROOT)) symlinkSync(join(ROOT, 'node_modules'), join(folder, 'node_modules'));
  else execFileSync('npm', ['ci', '--no-audit', '--no-fund', '--omit=dev'], { cwd: folder });
}
