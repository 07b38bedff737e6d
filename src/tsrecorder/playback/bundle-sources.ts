/** Reads the contents of a bundle directly from a store. Used by command-line tools that run without a recorder. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { gunzip } from 'node:zlib';
import { TailcastError } from '../../errors.ts';
import type { BundleSources } from '../../bundle/write-bundle.ts';
import type { Logger } from '../../observe/logger.ts';
import type { PlayIndex } from '../../screen/play-index.ts';
import { describeEvidence, type EvidenceStore } from '../evidence/check-evidence.ts';
import { MAX_SIDECAR_BYTES } from '../library/describe-stored.ts';
import type { CatalogEntry } from '../library/catalog-entry.ts';
import { notesOf } from '../library/notes-of.ts';
import { castBytes, readCast } from '../library/replay.ts';
import { openPlayIndexes, type PlayIndexes } from './play-indexes.ts';
import { placesOf } from './spool-indexes.ts';

export interface StoredSources extends Omit<BundleSources, 'recording'> {
  /** Returns the transcript as JSON, or undefined if the recording has no transcript. */
  readonly transcript: () => Promise<Uint8Array | undefined>;
}

export interface StoredSourcesOptions {
  readonly store: EvidenceStore;
  /** Returns the time in milliseconds since the epoch. */
  readonly nowMs: () => number;
  readonly signal: AbortSignal;
  readonly log: Logger;
}

const gunzipped = promisify(gunzip);
const POLL_MS = 100;

/** Calls `use` with the sources, and removes the temporary files afterwards. */
export async function withStoredSources<T>(
  entry: CatalogEntry,
  { store, nowMs, signal, log }: StoredSourcesOptions,
  use: (sources: StoredSources) => Promise<T>,
): Promise<T> {
  const directory = await mkdtemp(join(tmpdir(), 'tailcast-export-'));
  const playIndexes = await openPlayIndexes({
    directory,
    maxBytes: Number.POSITIVE_INFINITY,
    maxBuilding: 1,
    maxWaiting: 1,
    placesOf: (of) => placesOf(of, store),
    log,
  });
  try {
    return await use({
      cast: () => readCast(entry, { start: 0, end: castBytes(entry) }),
      async sidecar() {
        if ((await store.stat(entry.key, 'sidecar')) === undefined) return undefined;
        const range = { start: 0, end: MAX_SIDECAR_BYTES };
        return Buffer.concat(await Array.fromAsync(store.read(entry.key, 'sidecar', range)));
      },
      notes: () => notesOf(entry, store),
      evidence: () => describeEvidence(entry, { store, ownKey: undefined, nowMs, signal }),
      async transcript() {
        if ((await waitForIndex(entry, playIndexes, signal)) === undefined) return undefined;
        const text = await playIndexes.transcript(entry);
        return 'progress' in text ? undefined : gunzipped(text);
      },
    });
  } finally {
    await playIndexes.close();
    await rm(directory, { recursive: true, force: true });
  }
}

async function waitForIndex(
  entry: CatalogEntry,
  playIndexes: PlayIndexes,
  signal: AbortSignal,
): Promise<PlayIndex | undefined> {
  for (;;) {
    try {
      const found = await playIndexes.find(entry);
      if (!('progress' in found)) return found;
    } catch (error) {
      if (error instanceof TailcastError && error.code === 'PLAY_INDEX_UNAVAILABLE') return undefined;
      throw error;
    }
    await sleep(POLL_MS, undefined, { signal });
  }
}
