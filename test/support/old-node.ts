/** Finds a Node.js on this machine that is too old for the project. */
import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { delimiter, join } from 'node:path';

/** Returns the first `node` in PATH whose version is at least 20 but below 22.19, or undefined. */
export function findOldNode(): string | undefined {
  const places = (process.env['PATH'] ?? '').split(delimiter).map((directory) => join(directory, 'node'));
  return places.find((path) => {
    if (!existsSync(path)) return false;
    const version = spawnSync(path, ['-p', 'process.versions.node']).stdout?.toString() ?? '';
    const [major = 0, minor = 0] = version.split('.').map(Number);
    return major >= 20 && (major < 22 || (major === 22 && minor < 19));
  });
}
