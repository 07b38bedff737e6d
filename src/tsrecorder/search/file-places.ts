/** The places of the embedded index: folders beside each other. */
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

/** What SQLite says of files whose pages are not what it has written. */
export function isDamaged(error: unknown): boolean {
  return (
    error instanceof Error &&
    /damaged|malformed|not a database|corrupt|vtable constructor failed/.test(error.message)
  );
}

/** The files cannot be written, whatever is tried: they are damaged, or another program has made them. */
function isUnusable(error: unknown): boolean {
  return (
    isDamaged(error) ||
    (error instanceof Error && /no such (?:table|column)|has no column/.test(error.message))
  );
}
