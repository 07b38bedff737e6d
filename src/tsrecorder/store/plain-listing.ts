/**
 * The list of an archive store. The store below it lists compressed sizes; the uncompressed size of a recording is
 * added once it was read. Unchanged recordings and lists keep their object identity.
 */
import { compareLists, createLoopTurns, type LoopTurns } from '../../async/loop-turns.ts';
import { createSequence, createSharedStep } from '../../async/sequence.ts';
import type { RecordingKey } from './key.ts';
import { isSameObject, type ObjectStat, type StoredRecording } from './store.ts';

/** Lister of an archive store. */
export interface PlainListing {
  list(): Promise<readonly StoredRecording[]>;
  /** Reports that the known size of a recording changed. */
  changed(key: RecordingKey): void;
}

export interface PlainListingOptions {
  readonly list: () => Promise<readonly StoredRecording[]>;
  /** Returns the uncompressed size of a stored recording; undefined if it is not known yet. */
  readonly known: (key: RecordingKey, stored: ObjectStat) => ObjectStat | undefined;
}

export function createPlainListing({ list, known }: PlainListingOptions): PlainListing {
  let stored: readonly StoredRecording[] = [];
  let plain: readonly StoredRecording[] = [];
  /** Times of recordings whose size changed since the last list. */
  let changed = new Set<string>();

  function plainOf(recording: StoredRecording): StoredRecording {
    if (recording.stat === undefined) return recording;
    const { stat, ...rest } = recording;
    const found = known(recording.key, stat);
    return found === undefined ? rest : { ...rest, stat: found };
  }

  function again(recording: StoredRecording, before: StoredRecording | undefined): StoredRecording {
    const now = plainOf(recording);
    return before !== undefined && isSameObject(before.stat, now.stat) ? before : now;
  }

  async function listAgain(): Promise<readonly StoredRecording[]> {
    const listed = await list();
    if (listed === stored && changed.size === 0) return plain;
    const turns = createLoopTurns();
    // NOTE: later changes belong to the next list.
    const isChanged = changed;
    changed = new Set();
    plain = (await hasSizes(listed, turns)) ? await plainList(listed, isChanged, turns) : listed;
    stored = listed;
    return plain;
  }

  async function plainList(
    listed: readonly StoredRecording[],
    isChanged: ReadonlySet<string>,
    turns: LoopTurns,
  ): Promise<readonly StoredRecording[]> {
    const gone = new Set((await compareLists(stored, listed, turns)).removed);
    const all: StoredRecording[] = [];
    let isSame = stored === listed;
    let at = 0;
    for (const recording of listed) {
      if (turns.isDue()) await turns.turn();
      at = skip(stored, gone, at);
      const known = stored[at] === recording ? plain[at] : undefined;
      if (known !== undefined) at += 1;
      const isKept = known !== undefined && !isChanged.has(recording.key.time);
      const now = isKept ? known : again(recording, known);
      isSame &&= now === known;
      all.push(now);
    }
    return isSame ? plain : all;
  }

  return {
    list: createSharedStep(createSequence(), listAgain),
    changed: (key) => void changed.add(key.time),
  };
}

/** Returns the index of the first recording from `at` on that still exists. */
function skip(list: readonly StoredRecording[], gone: ReadonlySet<StoredRecording>, at: number): number {
  let next = at;
  if (gone.size > 0)
    for (let item = list[next]; item !== undefined && gone.has(item); item = list[next]) next += 1;
  return next;
}

async function hasSizes(listed: readonly StoredRecording[], turns: LoopTurns): Promise<boolean> {
  for (const { stat } of listed) {
    if (stat !== undefined) return true;
    if (turns.isDue()) await turns.turn();
  }
  return false;
}
