/** Feeds a stored recording to the process that writes the index. */
import { errorText } from '../../errors.ts';
import type { Logger } from '../../observe/logger.ts';
import type { RuleMatch } from '../../search/match.ts';
import type { Recording } from '../../wire/recorder-api/recording.ts';
import type { CatalogEntry } from '../library/catalog-entry.ts';
import { piecesOf } from './feed-cast.ts';
import type { IndexClient } from './index-client.ts';
import type { ReadingSteps } from './long-recordings.ts';
import type { Effort } from './messages.ts';
import type { SearchMetrics } from './search-metrics.ts';

/** A recording that the process has begun to read. */
export interface BegunReading {
  readonly index: IndexClient;
  readonly id: string;
  readonly key: number;
  readonly entry: CatalogEntry;
  /** Of its cast; 0 if no text is indexed. */
  readonly bytes: number;
  readonly effort: Effort;
  /** Called before the process gets the end of the recording. */
  readonly beforeFinish: () => Promise<void>;
  /** Called with the rules that are true of the session, before it counts as indexed. */
  readonly matched?: (recording: Recording, matches: readonly RuleMatch[]) => Promise<void>;
  readonly metrics: Pick<SearchMetrics, 'unreadable'>;
  readonly log: Logger;
}

/** Feeds the recording to its end. */
export async function* feedRecording(begun: BegunReading): ReadingSteps {
  const { index, id, key, entry, effort, beforeFinish, matched, metrics, log } = begun;
  let isOpen = true;
  /** An error is one of the index, such as a full disk, and not of the recording. */
  let isWriting = false;
  try {
    const last = yield* feed(begun);
    if (last === 'costly') return 'costly';
    isWriting = true;
    await beforeFinish();
    isWriting = false;
    // most recordings are short: each message is work for who writes
    const done = await index.ask('finish', { key, ...(last === undefined ? {} : { bytes: last }) });
    isOpen = false;
    yield done.work;
    if (done.isStopped && effort === 'quick') return 'costly';
    if (done.isStopped) log.warn({ recording: id }, 'a recording costs too much to index completely');
    // durable before the next flush: a process that ends in between reads the recording again
    await matched?.(entry.recording, done.matches);
    return 'read';
  } catch (error) {
    if (index.isGone || !isOpen || isWriting) throw error;
    // the store, not the index: the next comparison brings it again
    metrics.unreadable();
    log.warn(
      { error: errorText(error), recording: id },
      'a recording could not be read for the search index',
    );
    return 'later';
  } finally {
    if (isOpen && !index.isGone) await index.ask('drop', { key });
  }
}

/** Feeds a cast but its last piece. @returns the last piece, or `costly` if a quick reading stopped */
async function* feed({
  index,
  key,
  entry,
  bytes: end,
  effort,
}: BegunReading): AsyncGenerator<number, Uint8Array | 'costly' | undefined> {
  let last: Uint8Array | undefined;
  for await (const bytes of piecesOf(entry, 0, end)) {
    if (last !== undefined) {
      const { work, isStopped } = await index.ask('feed', { key, bytes: last });
      yield work;
      if (isStopped && effort === 'quick') return 'costly';
    }
    last = bytes;
  }
  return last;
}
