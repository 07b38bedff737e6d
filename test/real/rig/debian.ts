/** Finds programs, and installs their Debian packages if possible; otherwise an error names the missing package. */
import { spawnSync } from 'node:child_process';
import { accessSync, constants } from 'node:fs';
import { delimiter, join } from 'node:path';

const PACKAGES = {
  ip: ['ip'],
  nft: ['nft'],
  iptables: ['iptables'],
  haproxy: ['haproxy'],
  keepalived: ['keepalived'],
  nginx: ['nginx'],
  rpm: ['rpmbuild'],
  runc: ['runc'],
  umoci: ['umoci'],
  vim: ['vim'],
  chromium: ['chromium', 'chromium-browser', 'google-chrome', 'google-chrome-stable'],
} as const;

export type DebianProgram = keyof typeof PACKAGES;

/** Package names that differ from the program name. */
const PACKAGE_NAMES: ReadonlyMap<DebianProgram, string> = new Map([
  ['ip', 'iproute2'],
  ['nft', 'nftables'],
]);

/**
 * Returns the path of a program. If the program is missing and this process is root, installs its Debian package.
 * @throws Error with the package to install
 */
export function ensureDebianProgram(name: DebianProgram): string {
  const found = find(name);
  if (found !== undefined) return found;
  if (process.getuid?.() !== 0 || spawnSync('apt-get', ['--version']).status !== 0) {
    throw new Error(`${name} is not installed, and this user cannot install it: apt-get install ${name}`);
  }
  process.stderr.write(`peers: installing ${name} (apt-get)\n`);
  const install = ['install', '--yes', '--no-install-recommends', '-qq', PACKAGE_NAMES.get(name) ?? name];
  const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive' };
  let result = spawnSync('apt-get', install, { encoding: 'utf8', env });
  if (result.status !== 0) {
    // The package lists may be outdated.
    spawnSync('apt-get', ['update', '-qq'], { env });
    result = spawnSync('apt-get', install, { encoding: 'utf8', env });
  }
  const installed = find(name);
  if (installed === undefined)
    throw new Error(`${name} could not be installed:\n${result.stderr.slice(-2000)}`);
  return installed;
}

function find(name: DebianProgram): string | undefined {
  const folders = [...(process.env['PATH'] ?? '').split(delimiter), '/usr/sbin', '/usr/bin'].filter(Boolean);
  return PACKAGES[name].flatMap((file) => folders.map((folder) => join(folder, file))).find(isExecutable);
}

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}
