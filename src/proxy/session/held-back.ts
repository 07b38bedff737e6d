/**
 * Delays client messages that are not urgent: heartbeats and terminal sizes.
 *
 * A server that has finished closes its connection while output may still be in flight to the gateway. One more byte
 * from the client makes the kernel of the server discard that output. The gateway therefore forwards a heartbeat only
 * if the server sent nothing since the previous heartbeat and for `silentMs`, and all output is read and delivered;
 * otherwise it answers the heartbeat itself. Other delayed chunks are sent when all output is delivered, together with
 * the next urgent chunk, or after a timeout, because a missing terminal size is worse than a late one. The timeout is
 * longer while the server waits for the client, because output is then certainly in flight.
 */
import { setTimeout as delay } from 'node:timers/promises';
import type { Tap } from '../../recording/tap.ts';
import type { Direction } from './relay-direction.ts';

/**
 * Silence after which a server has no output in flight. On a busy machine a server may pause for seconds; proxies close
 * idle connections after a minute.
 */
export const SILENT_MS = 20_000;
const MAX_WAIT_MS = 5_000;
const MAX_STRAINED_WAIT_MS = 20_000;
/** Interval in which the delivery of the output is checked. */
const LOOK_MS = 25;
const MAX_HELD_BYTES = 64 * 1024;

export interface HeldBackOptions {
  /** Direction from the client to the API server. */
  readonly inbound: () => Direction;
  /** Direction from the API server to the client. */
  readonly outbound: () => Direction;
  /** See {@link SILENT_MS}. */
  readonly silentMs: number;
}

/** Delayed messages of one client. */
export class HeldBack {
  readonly #options: HeldBackOptions;
  #held: Uint8Array[] = [];
  #heldBytes = 0;
  /** Number of server bytes at the last heartbeat. */
  #seen = 0;
  /** Number of urgent chunks. */
  #gone = 0;
  /** True if the last urgent chunk ended at a frame boundary. */
  #between = true;
  #stopped = false;
  /** Chunk that ends inside a possible heartbeat. Clients write a heartbeat in several pieces. */
  #begun: Uint8Array | undefined;

  constructor(options: HeldBackOptions) {
    this.#options = options;
  }

  stop(): void {
    this.#stopped = true;
    this.#held = [];
    this.#begun = undefined;
  }

  /** Decides about a chunk. @returns true if it was delayed or answered and must not be delivered now */
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
    // The server did not send these pings.
    if (begun > 0 || tap.onlyProbes === true) return true;
    if (answers.length > 0) void this.#beat(bytes, answers);
    else void this.#keep(bytes);
    return true;
  }

  /** Delivers `bytes`, unless they are the chunk itself, which the caller delivers. */
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
