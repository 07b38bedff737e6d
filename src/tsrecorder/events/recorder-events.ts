/** Events of a recorder: uploaded events, and accesses of viewers. */
import { join } from 'node:path';
import type { Logger } from '../../observe/logger.ts';
import { makeDirectory } from '../files/durable-files.ts';
import type { SessionEvidence } from '../evidence/session-evidence.ts';
import { signBatch } from '../evidence/signed-batch.ts';
import type { PublicKey } from '../evidence/signing-key.ts';
import type { RecordingKey } from '../store/key.ts';
import type { RecordingStore } from '../store/store.ts';
import { openEventBatches } from './event-batches.ts';
import { createEventSearch } from './event-query.ts';

/** Layout of uploaded events. `batch`: signed batches. `reference`: signed batches, and one object per event. */
export type EventLayout = 'batch' | 'reference';

export interface RecorderEventsOptions {
  readonly store: RecordingStore;
  readonly spoolDirectory: string;
  readonly evidence: Pick<SessionEvidence, 'log' | 'key' | 'documented'>;
  /** Public keys of the trusted recorders. Map keys: key id. */
  readonly trusted: ReadonlyMap<string, PublicKey>;
  readonly layout: EventLayout;
  /** Returns the current time. Each call returns a later time than all earlier calls. */
  readonly issueTime: () => string;
  readonly nowMs: () => number;
  readonly periodMs: number;
  readonly retryMs: number;
  readonly log: Logger;
  /** Counters of batches that could not be stored, and of batches and days that are skipped because of their size. */
  readonly metrics: Readonly<Record<'eventBatchFailures' | 'oversized', { inc(): void }>>;
}

export type RecorderEvents = Awaited<ReturnType<typeof openRecorderEvents>>;

const MAX_BATCH_BYTES = 16 * 1024 ** 2;

/** Opens the storage and the search of one recorder's events. */
export async function openRecorderEvents(options: RecorderEventsOptions) {
  const { store, evidence, issueTime, metrics } = options;
  const directory = join(options.spoolDirectory, 'events');
  await makeDirectory(directory);
  const batches = await openEventBatches({
    ...options,
    directory,
    recorder: evidence.log.slice(0, 12),
    maxBatchBytes: MAX_BATCH_BYTES,
    sign: (name, lines) => signBatch(name, lines, evidence.key),
    onStored: (name, content) => evidence.documented(name, content),
    onFailure: () => metrics.eventBatchFailures.inc(),
  });
  const onOversized = (document: string): void => {
    metrics.oversized.inc();
    options.log.error({ document }, 'events are skipped: the batch or day is larger than recorders write');
  };
  return {
    /** Stores an uploaded event. @throws TailcastError `STORE_FAILED` */
    async put(key: RecordingKey, content: string): Promise<void> {
      if (options.layout === 'reference') await store.putEvent(key, content);
      await batches.append(key.time, content);
    },
    /** Stores an event of the recorder itself. @throws TailcastError `STORE_FAILED` */
    record: (event: string): Promise<void> => batches.append(issueTime(), event),
    search: createEventSearch(store, batches, options.trusted, options.nowMs, onOversized),
    close: (): Promise<void> => batches.close(),
  };
}
