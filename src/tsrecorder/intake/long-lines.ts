/**
 * Limits the memory for long lines of all sessions. Short lines do not count, because each session has only a few lines
 * in memory at a time.
 */
import { TailcastError } from '../../errors.ts';
import type { KeyedCounter } from '../../keyed-counter.ts';

/** Length up to which a line or a frame in memory does not count as long, in bytes. */
const SHORT_LINE_BYTES = 64 * 1024;

export interface LongLinesOptions {
  /** Number of bytes of long lines in all sessions of a tailnet node. Keys: stable node ids. */
  readonly counter: KeyedCounter;
  /**
   * Maximum number of bytes of long lines in all sessions. One tailnet node may use at most half of the bytes that
   * other nodes leave free.
   */
  readonly maxBytes: number;
}

/** Long lines of one session. */
export class LongLines {
  readonly #options: LongLinesOptions;
  readonly #node: { readonly nodeId: string; readonly nodeName: string };
  #release = (): void => undefined;

  constructor(options: LongLinesOptions, node: { readonly nodeId: string; readonly nodeName: string }) {
    this.#options = options;
    this.#node = node;
  }

  /** Counts the lines in memory. @returns the number of counted bytes */
  count(lengths: readonly (number | undefined)[]): number {
    const bytes = lengths.reduce<number>(
      (sum, length = 0) => sum + Math.max(0, length - SHORT_LINE_BYTES),
      0,
    );
    this.#release();
    if (bytes > 0) this.#release = this.#options.counter.take(this.#node.nodeId, bytes);
    return bytes;
  }

  /** Counts the lines in memory. @throws TailcastError `RECORDER_BUSY` if the tailnet node has too many long lines */
  admit(lengths: readonly (number | undefined)[]): void {
    const { counter, maxBytes } = this.#options;
    const { nodeId, nodeName } = this.#node;
    if (this.count(lengths) > 0 && !counter.hasShare(nodeId, maxBytes))
      throw new TailcastError('RECORDER_BUSY', `too many long lines of ${nodeName} at a time`);
  }
}
