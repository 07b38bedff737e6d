/**
 * Directory of journals. Several gateways may share it. Each process has its own folder and regularly writes
 * a *sign of life* there.
 *
 * ```
 *   <directory>/<process>/owner             identity of the process, renewed every few seconds
 *   <directory>/<process>/<name>.000001.journal
 * ```
 *
 * A process takes over the folder of a stopped process by moving that folder into its own folder. If several processes
 * try to take over the same folder, only one succeeds and then delivers the journals. A process of this machine counts
 * as stopped if it has reported its stop, or if its process id does not exist. A process of another machine or
 * container counts as stopped if its folder had no sign of life for {@link LEASE_MS}, by the clock of the file system.
 */
import { randomUUID } from 'node:crypto';
import {
  mkdir,
  readdir,
  readFile,
  readlink,
  rename,
  rm,
  rmdir,
  stat,
  unlink,
  writeFile,
} from 'node:fs/promises';
import { basename, join } from 'node:path';
import { z } from 'zod';
import { makeDirectories } from '../../directories.ts';
import { describeProcess } from '../../process-identity.ts';
import type { JournalKey } from './journal-key.ts';
import { JOURNAL_SUFFIX } from './session-journal.ts';
import { isSystemError } from '../../errors.ts';
import { jsonOrUndefined } from '../../wire/json-value.ts';

const LEASE_MS = 30_000;
/** Interval of the signs of life. */
export const SIGN_MS = 5_000;
/** Suffix that is appended to the name of an unreadable file, so that it is not read again. */
export const DAMAGED_SUFFIX = '.damaged';
const OWNER = 'owner';
const TAKEN = 'taken-';
/** Maximum depth of nested folders. Nested folders remain if a process stops during a takeover. */
const MAX_DEPTH = 8;

const OWNER_SCHEMA = z.object({
  /** Boot id and process-id namespace of the process. Two process ids are comparable only if these values are equal. */
  place: z.string(),
  process: z.string(),
  /** Id of the key, hexadecimal. */
  key: z.string(),
});
type Owner = z.infer<typeof OWNER_SCHEMA>;

/** The folder of this process. */
export type OwnFolder = Awaited<ReturnType<typeof openOwnFolder>>;

/** @throws Error of the OS if `directory` cannot be created or written */
export async function openOwnFolder(directory: string, key: JournalKey) {
  await makeDirectories(directory);
  const path = join(directory, randomUUID());
  await mkdir(path, { mode: 0o700 });
  const owner: Owner = {
    place: await thisPlace(),
    process: await describeProcess(process.pid),
    key: key.id.toString('hex'),
  };
  const sign = async (): Promise<boolean> => {
    try {
      await writeFile(join(path, OWNER), JSON.stringify(owner), { mode: 0o600 });
      return true;
    } catch (error) {
      if (isSystemError(error, 'ENOENT')) return false;
      throw error;
    }
  };
  await sign();
  return {
    path,
    /** Renews the sign of life. @returns false if the folder is gone, because another process has taken it over */
    sign,
    /** Moves files of stopped processes into this folder. @returns the moved files */
    async takeOver(): Promise<readonly string[]> {
      const nowMs = await signedAt(path);
      if (nowMs === undefined) return [];
      for (const name of await others(directory, path)) {
        const folder = join(directory, name);
        if ((await lookAt(folder, owner, nowMs)) !== 'left') continue;
        try {
          await rename(folder, join(path, `${TAKEN}${name}`));
        } catch (error) {
          if (!isSystemError(error, 'ENOENT')) throw error;
        }
      }
      return flatten(path, path, 0);
    },
    /** Returns the folders whose journals are sealed with another key. This process cannot read them. */
    async foreign(): Promise<readonly string[]> {
      const nowMs = (await signedAt(path)) ?? 0;
      const found: string[] = [];
      for (const name of await others(directory, path)) {
        const folder = join(directory, name);
        if ((await lookAt(folder, owner, nowMs)) === 'foreign') found.push(folder);
      }
      return found;
    },
    /** Stops the signs of life, so that other processes may take over the folder. Removes an empty folder. */
    async abandon(): Promise<void> {
      await writeFile(join(path, OWNER), JSON.stringify({ ...owner, process: '' })).catch(() => undefined);
      const names = await readdir(path).catch(() => []);
      if (names.length === 1) await rm(path, { recursive: true, force: true });
    },
  };
}

/**
 * Returns the content of a directory of journals, for `tailcast doctor`.
 * @throws Error of the OS
 */
export async function surveyJournals(
  directory: string,
  key: JournalKey | undefined,
  unixMs: () => number = () => Date.now(),
): Promise<Readonly<Record<'live' | 'left' | 'foreign' | 'damaged', JournalCount>>> {
  const none = (): JournalCount => ({ files: 0, bytes: 0 });
  const counts = { live: none(), left: none(), foreign: none(), damaged: none() };
  const me: Owner = { place: await thisPlace(), process: '', key: key?.id.toString('hex') ?? '' };
  for (const name of await others(directory, '')) {
    const folder = join(directory, name);
    const kind = await lookAt(folder, me, unixMs());
    for (const file of await readdir(folder, { recursive: true }).catch(() => [])) {
      const isDamaged = file.endsWith(DAMAGED_SUFFIX);
      if (!isDamaged && !file.endsWith(JOURNAL_SUFFIX)) continue;
      const count = counts[isDamaged ? 'damaged' : kind];
      count.files += 1;
      count.bytes += (await stat(join(folder, file)).catch(() => undefined))?.size ?? 0;
    }
  }
  return counts;
}

export interface JournalCount {
  files: number;
  bytes: number;
}

async function others(directory: string, own: string): Promise<readonly string[]> {
  const entries = await readdir(directory, { withFileTypes: true });
  return entries
    .filter((entry) => entry.isDirectory() && entry.name !== basename(own))
    .map(({ name }) => name);
}

async function lookAt(folder: string, me: Owner, nowMs: number): Promise<'live' | 'left' | 'foreign'> {
  const owner = await readOwner(folder);
  const silent = nowMs - ((await signedAt(folder)) ?? nowMs) > LEASE_MS;
  if (owner === undefined) return silent ? 'left' : 'live';
  const gone =
    owner.process === '' ||
    (owner.place === me.place && owner.place !== ''
      ? (await describeProcess(Number(owner.process.split(' ')[0]))) !== owner.process
      : silent);
  if (!gone) return 'live';
  return owner.key === me.key ? 'left' : 'foreign';
}

/**
 * Reads the sign of life of a folder. Returns undefined if the folder has no valid sign of life, for example because
 * the folder was just created.
 */
async function readOwner(folder: string): Promise<Owner | undefined> {
  const text = await readFile(join(folder, OWNER), 'utf8').catch(() => '');
  return OWNER_SCHEMA.safeParse(jsonOrUndefined(text)).data;
}

async function signedAt(folder: string): Promise<number | undefined> {
  const found =
    (await stat(join(folder, OWNER)).catch(() => undefined)) ?? (await stat(folder).catch(() => undefined));
  return found?.mtimeMs;
}

/** Moves the journals of all folders below `folder` into `target`. */
async function flatten(folder: string, target: string, depth: number): Promise<readonly string[]> {
  const moved: string[] = [];
  const entries = await readdir(folder, { withFileTypes: true });
  for (const entry of entries) {
    const path = join(folder, entry.name);
    if (entry.isDirectory() && depth < MAX_DEPTH) {
      moved.push(...(await flatten(path, target, depth + 1)));
      await unlink(join(path, OWNER)).catch(() => undefined);
      // `rmdir` fails if the folder contains other files
      await rmdir(path).catch(() => undefined);
    } else if (folder !== target && isKept(entry.name)) {
      const place = join(target, entry.name);
      await rename(path, place);
      if (entry.name.endsWith(JOURNAL_SUFFIX)) moved.push(place);
    }
  }
  return moved.toSorted();
}

function isKept(name: string): boolean {
  return name.endsWith(JOURNAL_SUFFIX) || name.endsWith(DAMAGED_SUFFIX);
}

/** Returns the boot id and the process-id namespace; an empty text if the OS does not report them. */
async function thisPlace(): Promise<string> {
  try {
    const boot = await readFile('/proc/sys/kernel/random/boot_id', 'utf8');
    return `${boot.trim()} ${await readlink('/proc/self/ns/pid')}`;
  } catch {
    return '';
  }
}
