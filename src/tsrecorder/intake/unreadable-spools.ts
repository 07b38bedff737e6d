/**
 * Spools that cannot be read: a disk that fails, a file that is damaged. What they hold may have been acknowledged, so
 * they are never removed: they are listed as damaged, and tried again for ever.
 */
import { createBackoff, type Backoff } from '../../async/backoff.ts';
import { errorText } from '../../errors.ts';
import type { Logger } from '../../observe/logger.ts';
import { describeDamaged } from '../library/describe-stored.ts';
import type { LiveRecording } from '../library/live-recording.ts';
import { spoolPaths } from '../spool/spool-file.ts';
import { recordingId, type RecordingKey } from '../store/key.ts';

export interface UnreadableSpoolsOptions {
  readonly spoolDirectory: string;
  /** Reads a spool and takes it over. Rejects when it cannot be read. */
  readonly recover: (key: RecordingKey) => Promise<void>;
  /** Pause before the first try; doubles up to `maxRetryMs`. */
  readonly retryMs: number;
  readonly maxRetryMs: number;
  readonly log: Logger;
}

/** One per spool directory. */
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

  /** They are listed, and nothing of them is served. */
  live(): readonly LiveRecording[] {
    return [...this.#known.values()];
  }

  /** Recovers what can be recovered; the rest is tried again later. */
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

  /** @param error why it cannot be read */
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
    // not before somebody has mended it
    stored: new Promise(() => undefined),
    watch: () => () => undefined,
  };
}

/** The message of a system error names paths of this machine. */
function systemCode(error: unknown): string {
  return error instanceof Error && 'errno' in error && 'code' in error
    ? String(error.code)
    : errorText(error);
}
