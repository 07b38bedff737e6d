/**
 * What a client sends that its API server need not hear now: heartbeats and sizes of its terminal.
 *
 * A server that has said everything closes its connection while much of it may still be on the way here. One more byte to
 * such a server makes its system throw the rest away. So a heartbeat is passed on only when the server has said nothing
 * since the one before, and for a while, and nothing of it is unread or undelivered; otherwise the gateway answers it. Other chunks
 * that may wait go when everything is delivered, with the next one that may not, or after a while: a size that
 * does not come is worse than one that comes at a bad moment. It waits longer for a server that has to wait for the client,
 * because the moment is surely bad then.
 */
import { setTimeout as delay } from 'node:timers/promises';
import type { Tap } from '../../recording/tap.ts';
import type { Direction } from './relay-direction.ts';

/**
 * A server that has said nothing for so long is not in the middle of something. On a machine without a processor to spare it may
 * well pause for seconds; what cuts idle connections waits for a minute.
 */
export const SILENT_MS = 20_000;
const MAX_WAIT_MS = 5_000;
const MAX_STRAINED_WAIT_MS = 20_000;
/** How often it is looked whether everything is delivered. */
const LOOK_MS = 25;
const MAX_HELD_BYTES = 64 * 1024;

export interface HeldBackOptions {
  readonly inbound: () => Direction;
  readonly outbound: () => Direction;
  /** See {@link SILENT_MS}. */
  readonly silentMs: number;
}

export class HeldBack {
  readonly #options: HeldBackOptions;
  #held: Uint8Array[] = [];
  #heldBytes = 0;
  /** What the server had said at the last heartbeat. */
  #seen = 0;
  /** Counts the chunks that had to go. */
  #gone = 0;
  /** The last chunk that went ended where a frame ends. */
  #between = true;
  #stopped = false;
  /** Ends inside what may be a heartbeat: clients write one in several pieces. */
  #begun: Uint8Array | undefined;

  constructor(options: HeldBackOptions) {
    this.#options = options;
  }

  stop(): void {
    this.#stopped = true;
    this.#held = [];
    this.#begun = undefined;
  }

  /** @returns whether the chunk is kept, or answered: it must not be delivered now */
  consider(chunk: Uint8Array, tap: Tap): boolean {
    const bytes = this.#begun === undefined ? chunk : Buffer.concat([this.#begun, chunk]);
    const { begunBytes: begun = 0, answers = [] } = tap;
    const waits = tap.mayWait === true;
    this.#options.outbound().reached(tap.answeredProbe ?? 0);
    const head = waits || begun === 0 ? bytes : bytes.subarray(0, bytes.length - begun);
    this.#begun = begun === 0 ? undefined : bytes.slice(waits ? 0 : head.length);
    if (!waits) {
      this.#gone += 1;
      this.#flush();
      this.#between = begun > 0 || tap.standsBetweenFrames === true;
      return this.#go(head, chunk);
    }
    // nobody behind the gateway has asked for it
    if (begun > 0 || tap.onlyProbes === true) return true;
    if (answers.length > 0) void this.#beat(bytes, answers);
    else void this.#keep(bytes);
    return true;
  }

  /** Delivers `bytes` unless they are the chunk, which the caller delivers then. */
  #go(bytes: Uint8Array, chunk: Uint8Array): boolean {
    if (bytes === chunk) return false;
    if (bytes.length > 0) this.#options.inbound().forward(bytes);
    return true;
  }

  async #beat(chunk: Uint8Array, answers: readonly Uint8Array[]): Promise<void> {
    const inbound = this.#options.inbound();
    const outbound = this.#options.outbound();
    const silent =
      outbound.bytes === this.#seen &&
      outbound.silentMs >= this.#options.silentMs &&
      (await outbound.quiet());
    this.#seen = outbound.bytes;
    if (this.#stopped) return;
    if (silent && this.#between) inbound.forward(chunk);
    else outbound.answer(answers);
  }

  async #keep(chunk: Uint8Array): Promise<void> {
    this.#held.push(chunk);
    this.#heldBytes += chunk.length;
    if (this.#held.length > 1) {
      if (this.#heldBytes > MAX_HELD_BYTES) this.#flush();
      return;
    }
    const gone = this.#gone;
    const outbound = this.#options.outbound();
    const sinceMs = performance.now();
    const maxMs = (): number => (outbound.strained ? MAX_STRAINED_WAIT_MS : MAX_WAIT_MS);
    while (!this.#stopped && this.#gone === gone && performance.now() - sinceMs < maxMs()) {
      if (await outbound.quiet()) break;
      await delay(LOOK_MS);
    }
    if (!this.#stopped && this.#gone === gone) this.#flush();
  }

  #flush(): void {
    const held = this.#held;
    this.#held = [];
    this.#heldBytes = 0;
    for (const chunk of held) this.#options.inbound().forward(chunk);
  }
}
