/** The folders of the embedded index: the current index, and the next index while it is built. */
import { existsSync } from 'node:fs';
import { readdir, rename, rm } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import type { IndexPlaces } from './index-places.ts';

export function createFilePlaces(directory: string): IndexPlaces {
  const next = `${directory}.next`;
  return {
    current: { directory },
    next: { directory: next },
    async prepare() {
      if (!existsSync(directory) && existsSync(next)) await rename(next, directory);
      const known = new Set([basename(directory), basename(next)]);
      for (const name of await readdir(dirname(directory)).catch(() => []))
        if (!known.has(name)) await rm(join(dirname(directory), name), { recursive: true, force: true });
      return existsSync(next) ? 'building' : 'ready';
    },
    async swap() {
      const old = `${directory}.old`;
      await rm(old, { recursive: true, force: true });
      await rename(directory, old);
      await rename(next, directory);
      await rm(old, { recursive: true, force: true });
    },
    async discard(place, error) {
      if (!isUnusable(error) || !('directory' in place)) return false;
      await rm(place.directory, { recursive: true, force: true });
      return true;
    },
  };
}

/** Returns true for SQLite errors about damaged files. */
export function isDamaged(error: unknown): boolean {
  return (
    error instanceof Error &&
    /damaged|malformed|not a database|corrupt|vtable constructor failed/.test(error.message)
  );
}

/** Returns true for errors that persist: the files are damaged, or another program created them. */
function isUnusable(error: unknown): boolean {
  return (
    isDamaged(error) ||
    (error instanceof Error && /no such (?:table|column)|has no column/.test(error.message))
  );
}
