/**
 * Lists the recordings of an archive store. The underlying store lists compressed sizes. This list instead contains the
 * uncompressed sizes that are cached from earlier reads, and no other sizes. If nothing changed, the list is the same
 * array as before.
 */
import { createLoopTurns } from '../../async/loop-turns.ts';
import { createSequence, createSharedStep } from '../../async/sequence.ts';
import type { RecordingKey } from './key.ts';
import type { ObjectStat, StoredRecording } from './store.ts';

export interface PlainListingOptions {
  readonly list: () => Promise<readonly StoredRecording[]>;
  /** Returns the uncompressed size of a stored recording; undefined if it is not known yet. */
  readonly known: (key: RecordingKey, stored: ObjectStat) => ObjectStat | undefined;
}

/** Lister of an archive store. */
export function createPlainListing({ list, known }: PlainListingOptions) {
  let stored: readonly StoredRecording[] | undefined;
  let plain: readonly StoredRecording[] = [];
  let isChanged = false;
  let hasSizes = false;

  async function listAgain(): Promise<readonly StoredRecording[]> {
    const listed = await list();
    if (listed === stored && !(isChanged && hasSizes)) return plain;
    const turns = createLoopTurns();
    // NOTE: reset the flag first, so that later changes appear in the next list.
    isChanged = false;
    hasSizes = false;
    const all: StoredRecording[] = [];
    for (const recording of listed) {
      if (turns.isDue()) await turns.turn();
      const { stat, ...rest } = recording;
      hasSizes ||= stat !== undefined;
      const found = stat === undefined ? undefined : known(recording.key, stat);
      all.push(stat === undefined ? recording : found === undefined ? rest : { ...rest, stat: found });
    }
    stored = listed;
    plain = all;
    return plain;
  }

  return {
    list: createSharedStep(createSequence(), listAgain),
    /** Reports that a known size changed. */
    changed(): void {
      isChanged = true;
    },
  };
}
