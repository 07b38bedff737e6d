/**
 * A simulated disk that can return EIO and lose power. A library that is preloaded into the recorder simulates the
 * disk.
 */
import { execFileSync } from 'node:child_process';
import {
  existsSync,
  readFileSync,
  readdirSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** Failing operations: writes, syncs, or all. */
export type DiskFault = 'w' | 's' | 'all';

export interface FaultyDisk {
  /** Environment for the process with this disk. */
  readonly environment: Readonly<Record<string, string>>;
  fail(what: DiskFault): void;
  heal(): void;
  /**
   * Removes from every file the bytes after its last sync, as a power failure does. Call this function only while no
   * process writes.
   * @returns the number of removed bytes
   */
  cutPower(): number;
}

/**
 * @param folder folder for the built library and its switches
 * @param below folder that the library treats as the disk
 * @returns undefined when there is no C compiler, or no way to preload.
 */
export function createFaultyDisk(folder: string, below: string): FaultyDisk | undefined {
  const library = join(folder, 'disk.so');
  const source = fileURLToPath(new URL('disk.c', import.meta.url));
  if (process.platform !== 'linux') return undefined;
  try {
    execFileSync('cc', ['-shared', '-fPIC', '-O2', '-o', library, source, '-ldl'], { stdio: 'ignore' });
  } catch {
    return undefined;
  }
  const trigger = join(folder, 'trigger');
  const synced = join(folder, 'synced');
  return {
    environment: {
      LD_PRELOAD: library,
      DISK_BELOW: `${below}/`,
      DISK_TRIGGER: trigger,
      DISK_SYNCED: synced,
    },
    fail: (what) => writeFileSync(trigger, what),
    heal: () => rmSync(trigger, { force: true }),
    cutPower: () => cutPower(below, existsSync(synced) ? readFileSync(synced, 'utf8') : ''),
  };
}

/** @param synced file with one line for each sync: inode and length of the file. */
function cutPower(below: string, synced: string): number {
  const lengths = new Map<number, number>();
  for (const line of synced.trim().split('\n')) {
    const [inode = 0, length = 0] = line.split(' ').map(Number);
    lengths.set(inode, length);
  }
  let lost = 0;
  for (const entry of readdirSync(below, { recursive: true, withFileTypes: true })) {
    if (!entry.isFile()) continue;
    const path = join(entry.parentPath, entry.name);
    const { ino, size } = statSync(path);
    const kept = Math.min(size, lengths.get(ino) ?? 0);
    lost += size - kept;
    truncateSync(path, kept);
  }
  return lost;
}
