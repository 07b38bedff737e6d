/** The events of a recorder: those that are uploaded, and what viewers do. */
import { join } from 'node:path';
import type { Logger } from '../../observe/logger.ts';
import { makeDirectory } from '../files/durable-files.ts';
import type { SessionEvidence } from '../evidence/session-evidence.ts';
import { signBatch } from '../evidence/signed-batch.ts';
import type { PublicKey } from '../evidence/signing-key.ts';
import type { RecordingKey } from '../store/key.ts';
import type { RecordingStore } from '../store/store.ts';
import { openEventBatches } from './event-batches.ts';
import { createEventSearch, type EventSearch } from './event-query.ts';

/** How uploaded events are kept: many to a document, or one object each as the reference does. */
export type EventLayout = 'batch' | 'reference';

export interface RecorderEventsOptions {
  readonly store: RecordingStore;
  readonly spoolDirectory: string;
  readonly evidence: Pick<SessionEvidence, 'log' | 'key' | 'documented'>;
  /** The keys of the recorders that count, by id. */
  readonly trusted: ReadonlyMap<string, PublicKey>;
  readonly layout: EventLayout;
  /** A receive time, later than every one before. */
  readonly issueTime: () => string;
  readonly nowMs: () => number;
  readonly periodMs: number;
  readonly retryMs: number;
  readonly log: Logger;
  /** A batch could not be stored; it will be tried again. */
  readonly onFailure: () => void;
}

export interface RecorderEvents {
  /** Keeps an uploaded event. @throws TailcastError `STORE_FAILED` */
  put(key: RecordingKey, content: string): Promise<void>;
  /** Keeps an event of the recorder's own. @throws TailcastError `STORE_FAILED` */
  record(event: string): Promise<void>;
  readonly search: EventSearch;
  close(): Promise<void>;
}

const MAX_BATCH_BYTES = 16 * 1024 ** 2;

/** One per recorder. */
export async function openRecorderEvents(options: RecorderEventsOptions): Promise<RecorderEvents> {
  const { store, evidence, issueTime } = options;
  const directory = join(options.spoolDirectory, 'events');
  await makeDirectory(directory);
  const batches = await openEventBatches({
    ...options,
    directory,
    recorder: evidence.log.slice(0, 12),
    maxBatchBytes: MAX_BATCH_BYTES,
    sign: (name, lines) => signBatch(name, lines, evidence.key),
    onStored: (name, content) => evidence.documented(name, content),
  });
  return {
    put: (key, content) =>
      options.layout === 'reference' ? store.putEvent(key, content) : batches.append(key.time, content),
    record: (event) => batches.append(issueTime(), event),
    search: createEventSearch(store, batches, options.trusted, options.nowMs),
    close: () => batches.close(),
  };
}
