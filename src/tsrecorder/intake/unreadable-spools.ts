/**
 * Handles spools that are unreadable because of a failing disk or a damaged file. Unreadable spools may contain
 * acknowledged bytes, so they are never removed. Listings show unreadable spools as damaged, and the recorder tries
 * forever to read them again.
 */
import { createBackoff, type Backoff } from '../../async/backoff.ts';
import { errorText } from '../../errors.ts';
import { describeDamaged } from '../library/describe-stored.ts';
import type { LiveRecording } from '../library/live-recording.ts';
import { spoolPaths } from '../spool/spool-file.ts';
import { recordingId, type RecordingKey } from '../store/key.ts';
import type { IngestOptions } from './ingest-options.ts';

export interface UnreadableSpoolsOptions extends Pick<
  IngestOptions,
  'spoolDirectory' | 'retryMs' | 'maxRetryMs' | 'log'
> {
  /** Reads and adopts a spool. Rejects if the spool is unreadable. */
  readonly recover: (key: RecordingKey) => Promise<void>;
}

/** Unreadable spools of one spool directory. */
export class UnreadableSpools {
  readonly #options: UnreadableSpoolsOptions;
  readonly #known = new Map<string, LiveRecording>();
  #timer: NodeJS.Timeout | undefined;
  readonly #backoff: Backoff;
  #closed = false;

  constructor(options: UnreadableSpoolsOptions) {
    this.#options = options;
    this.#backoff = createBackoff({ baseMs: options.retryMs, maxMs: options.maxRetryMs });
  }

  get count(): number {
    return this.#known.size;
  }

  /** Returns descriptions of the unreadable spools for listings. Their content cannot be opened. */
  live(): readonly LiveRecording[] {
    return [...this.#known.values()];
  }

  /** Recovers the readable spools, and retries the unreadable spools later. */
  async recover(keys: readonly RecordingKey[]): Promise<void> {
    for (const key of keys) {
      try {
        await this.#options.recover(key);
        this.#known.delete(recordingId(key));
      } catch (error) {
        this.add(key, error);
      }
    }
  }

  /** Adds a spool. @param error reason why it is unreadable */
  add(key: RecordingKey, error: unknown): void {
    const recording = recordingId(key);
    this.#options.log.error(
      { recording, error: errorText(error) },
      'spool cannot be read; it stays and is tried again',
    );
    this.#known.set(recording, describeUnreadable(this.#options.spoolDirectory, key, error));
    this.#schedule();
  }

  close(): void {
    this.#closed = true;
    clearTimeout(this.#timer);
  }

  #schedule(): void {
    if (this.#closed || this.#timer !== undefined) return;
    this.#timer = setTimeout(() => {
      void this.recover([...this.#known.values()].map(({ key }) => key)).then(() => {
        this.#timer = undefined;
        if (this.#known.size > 0) this.#schedule();
        else this.#backoff.reset();
      });
    }, this.#backoff.next());
  }
}

function describeUnreadable(directory: string, key: RecordingKey, error: unknown): LiveRecording {
  const problem = `its spool cannot be read: ${systemCode(error)}`;
  return {
    key,
    recording: describeDamaged(key, 0, problem),
    paths: spoolPaths(directory, key),
    resizeOrder: 'columnsFirst',
    part: { session: recordingId(key), number: 1, offset: 0, headerBytes: 0, headerEnd: 0 },
    durable: () => ({ castBytes: 0, notesBytes: 0, bodyBytes: 0 }),
    isOpen: () => false,
    // This promise never resolves, because an unreadable spool is never stored. After a repair, another entry replaces
    // this entry.
    stored: new Promise(() => undefined),
    watch: () => () => undefined,
  };
}

/** Returns the error code, because the message of a system error contains local paths. */
function systemCode(error: unknown): string {
  return error instanceof Error && 'errno' in error && 'code' in error
    ? String(error.code)
    : errorText(error);
}
