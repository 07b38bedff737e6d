/**
 * Recorder processes that share a store and a machine: each has a spool of its own, with its own evidence log, exactly
 * like a recorder on another machine; only the signing key is one.
 *
 * ```
 * <spool>/…            of the first process, and of one that is alone
 * <spool>/worker-1/…   of the second, and so on
 * ```
 *
 * What the others have open is read from their spools, so that any of them can list and show it.
 */
import { readdir, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { spooledFiles } from '../library/cast-pieces.ts';
import type { RemoteRecording } from '../library/catalog.ts';
import { describeHead } from '../library/describe-head.ts';
import { describePart } from './finisher.ts';
import { readHead } from './found-upload.ts';
import type { LiveRecording } from '../library/live-recording.ts';
import { sessionMark } from '../library/session-part.ts';
import {
  listSpools,
  readSpool,
  spoolPaths,
  type SpoolPaths,
  type SpoolPosition,
} from '../spool/spool-file.ts';
import { recordingId, type RecordingKey } from '../store/key.ts';
import type { RecordingStore } from '../store/store.ts';
import { createGatekeeper } from '../../async/gatekeeper.ts';

/** Which of several processes with the same spool this one is. */
export interface SpoolSlot {
  /** From 0. */
  readonly number: number;
  /** How many there are. */
  readonly of: number;
}

const FOLDER = /^worker-([1-9]\d{0,2})$/;
/** How often a session of another process is looked at while somebody watches it. */
const WATCH_MS = 250;
const CONCURRENCY = 8;

/** The spool of one process. */
export function slotDirectory(spool: string, { number }: Pick<SpoolSlot, 'number'>): string {
  return number === 0 ? spool : join(spool, `worker-${number}`);
}

/** Spools of processes there were more of once, and with `count` 0 of all but the first. */
export async function leftSpools(spool: string, count: number): Promise<readonly string[]> {
  const numbers = await workerFolders(spool);
  return numbers.filter((number) => number >= count).map((number) => slotDirectory(spool, { number }));
}

/** Everything in a spool is in the store: removes it. @throws Error when something is left in it */
export async function removeLeftSpool(directory: string): Promise<void> {
  const files = await readdir(directory, { recursive: true });
  const left = files.filter((name) => /\.(cast|notes|ndjson)$/.test(name));
  if (left.length > 0) throw new Error(`it holds ${left.length} files that are not in the store`);
  await rm(directory, { recursive: true, force: true });
}

/**
 * @param own slot of this process
 * @returns what the other processes have open, as their files say
 */
export function createSiblings(
  spool: string,
  own: number,
  store: RecordingStore,
): () => Promise<readonly RemoteRecording[]> {
  let known = new Map<string, SiblingSession>();

  return async () => {
    const numbers = (await workerFolders(spool)).filter((number) => number !== own);
    const folders = [...(own === 0 ? [] : [0]), ...numbers].map((number) => slotDirectory(spool, { number }));
    const gatekeeper = createGatekeeper({ maxActive: CONCURRENCY });
    const fresh = new Map<string, SiblingSession>();
    for (const folder of folders) {
      const keys = await listSpools(folder).catch(() => []);
      await Promise.all(
        keys.map((key) =>
          gatekeeper.run(async () => {
            const { cast } = spoolPaths(folder, key);
            const session = known.get(cast) ?? new SiblingSession(key, spoolPaths(folder, key));
            // one that moves into the store while it is read
            if (await session.refresh().catch(() => false)) fresh.set(cast, session);
          }),
        ),
      );
    }
    known = fresh;
    return [...fresh.values()].map((session) => session.describe(store)).filter((live) => live !== undefined);
  };
}

interface SiblingState extends SpoolPosition {
  readonly live: Omit<LiveRecording, 'durable' | 'isOpen' | 'stored' | 'watch'>;
}

/** One session that another process writes. */
class SiblingSession {
  readonly #key: RecordingKey;
  readonly #paths: SpoolPaths;
  #state: SiblingState | undefined;
  /** Sizes of the files when they were read. */
  #seen = '';
  #open = true;

  constructor(key: RecordingKey, paths: SpoolPaths) {
    this.#key = key;
    this.#paths = paths;
  }

  /** Reads what was added. @returns false when there is nothing to show */
  async refresh(): Promise<boolean> {
    const { cast, notes } = this.#paths;
    const sizes = await Promise.all([stat(cast), stat(notes)]).catch(() => undefined);
    if (sizes === undefined) {
      this.#open = false;
      return false;
    }
    const seen = sizes.map(({ size }) => size).join(' ');
    if (seen === this.#seen) return this.#state !== undefined;
    // the end of the files may be a moment from being durable: good enough to be looked at
    const spool = await readSpool(this.#paths, () => undefined);
    const head = spool === undefined ? undefined : await readHead(spool);
    if (spool === undefined || head === undefined) return false;
    const { meta, castBytes, notesBytes, bodyBytes } = spool;
    this.#seen = seen;
    this.#state = {
      castBytes,
      notesBytes,
      bodyBytes,
      live: {
        key: this.#key,
        recording: { ...describeHead(this.#key, head), state: 'open', bytes: castBytes },
        paths: this.#paths,
        resizeOrder: head.resizeOrder,
        part: describePart(meta),
      },
    };
    return true;
  }

  describe(store: RecordingStore): RemoteRecording | undefined {
    const state = this.#state;
    if (state === undefined) return undefined;
    const live: LiveRecording = {
      ...state.live,
      durable: () => this.#state ?? state,
      isOpen: () => this.#open,
      // what is not open any more has left the spool
      stored: Promise.resolve(),
      watch: (wake) => this.#watch(wake),
    };
    const { key, recording, resizeOrder, part } = live;
    const files = spooledFiles(store, live);
    const entry = {
      recording,
      key,
      resizeOrder,
      pieces: [{ ...files.cast, start: 0 }],
      live,
      version: undefined,
    };
    return {
      key,
      sessionMark: sessionMark(key.nodeId, part.session),
      describe: async () => ({ entry, part, files, bodyEnd: live.durable().bodyBytes, gapCount: 0 }),
    };
  }

  #watch(wake: () => void): () => void {
    const timer = setInterval(() => {
      const before = this.#seen;
      void this.refresh()
        .catch(() => false)
        .then(() => {
          if (!this.#open || this.#seen !== before) wake();
        });
    }, WATCH_MS);
    return () => clearInterval(timer);
  }
}

/** What several sources know of; the first one that has a session is believed. */
export function mergeRemotes(
  sources: readonly (() => Promise<readonly RemoteRecording[]>)[],
): () => Promise<readonly RemoteRecording[]> {
  return async () => {
    const merged = new Map<string, RemoteRecording>();
    for (const found of await Promise.all(sources.map((list) => list()))) {
      for (const recording of found) {
        const id = recordingId(recording.key);
        if (!merged.has(id)) merged.set(id, recording);
      }
    }
    return [...merged.values()];
  };
}

async function workerFolders(spool: string): Promise<readonly number[]> {
  const names = await readdir(spool).catch(() => []);
  return names.flatMap((name) => {
    const number = FOLDER.exec(name)?.[1];
    return number === undefined ? [] : [Number(number)];
  });
}
