/** Sends a stored recording to the index writer process. */
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

/** A recording that the index writer process has started to read. */
export interface ReadingJob {
  readonly index: IndexClient;
  readonly id: string;
  readonly key: number;
  readonly entry: CatalogEntry;
  /** Size of the cast; 0 if no text is indexed. */
  readonly bytes: number;
  readonly effort: Effort;
  /** Called before the process gets the end of the recording. */
  readonly beforeFinish: () => Promise<void>;
  /** Called with the matching alert rules before the session is marked as indexed. */
  readonly matched?: (recording: Recording, matches: readonly RuleMatch[]) => Promise<void>;
  readonly metrics: Pick<SearchMetrics, 'unreadable'>;
  readonly log: Logger;
}

/** Sends the complete recording. */
export async function* feedRecording(job: ReadingJob): ReadingSteps {
  const { index, id, key, entry, effort, beforeFinish, matched, metrics, log } = job;
  let isOpen = true;
  /**
   * If true, an error means that the index failed, for example because of a full disk. If false, an error means that
   * the recording is unreadable.
   */
  let isWriting = false;
  try {
    const last = yield* feed(job);
    if (last === 'costly') return 'costly';
    isWriting = true;
    await beforeFinish();
    isWriting = false;
    // Send the last piece together with `finish`. Most recordings have only one piece, so this saves a message.
    const done = await index.ask('finish', { key, ...(last === undefined ? {} : { bytes: last }) });
    isOpen = false;
    yield done.work;
    if (done.isStopped && effort === 'quick') return 'costly';
    if (done.isStopped) log.warn({ recording: id }, 'a recording costs too much to index completely');
    // Make the matches durable before the next flush. After a crash before the flush, the recording is read again.
    await matched?.(entry.recording, done.matches);
    return 'read';
  } catch (error) {
    if (index.isStopped || !isOpen || isWriting) throw error;
    // The index works, but the store failed or the recording is unreadable. The next comparison of store and index
    // finds the recording again.
    metrics.unreadable();
    log.warn(
      { error: errorText(error), recording: id },
      'a recording could not be read for the search index',
    );
    return 'later';
  } finally {
    if (isOpen && !index.isStopped) await index.ask('drop', { key });
  }
}

/**
 * Sends all pieces of a cast except the last piece. @returns the last piece, or `costly` if a quick reading reached its
 * limit
 */
async function* feed({
  index,
  key,
  entry,
  bytes: end,
  effort,
}: ReadingJob): AsyncGenerator<number, Uint8Array | 'costly' | undefined> {
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
