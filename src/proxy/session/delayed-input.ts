/**
 * Delays input of the client that is not urgent: heartbeats and terminal sizes.
 *
 * A server that has finished closes its connection while output may still be in flight to the gateway. One more byte
 * from the client makes the kernel of the server discard that output. The gateway therefore forwards a heartbeat only
 * if the server sent nothing since the previous heartbeat and for `silentMs`, and all output is read and delivered;
 * otherwise it answers the heartbeat itself. Other delayable input is sent when all output is delivered, together with
 * the next urgent input, or after a timeout, because a missing terminal size is worse than a late one. The timeout is
 * longer while the server waits for the client, because output is then certainly in flight.
 */
import { setTimeout as delay } from 'node:timers/promises';
import type { ClientInput, Tap } from '../../recording/tap.ts';
import type { Direction } from './relay-direction.ts';

/**
 * Silence after which a server has no output in flight. On a busy machine a server may pause for seconds; proxies close
 * idle connections after a minute.
 */
export const SILENT_MS = 20_000;
const MAX_WAIT_MS = 5_000;
const MAX_PAUSED_WAIT_MS = 20_000;
/** Interval in which the delivery of the output is checked. */
const CHECK_MS = 25;
const MAX_DELAYED_BYTES = 64 * 1024;
const NO_BYTES = new Uint8Array(0);

export interface DelayedInputOptions {
  readonly tap: Pick<Tap, 'input'>;
  /** Direction from the client to the API server. */
  readonly inbound: () => Direction;
  /** Direction from the API server to the client. */
  readonly outbound: () => Direction;
  /** See {@link SILENT_MS}. */
  readonly silentMs: number;
}

export class DelayedInput {
  readonly #options: DelayedInputOptions;
  #delayed: Uint8Array[] = [];
  #delayedBytes = 0;
  /** Start of an incomplete heartbeat or resize message. Clients may send a message in several pieces. */
  #kept: Uint8Array = NO_BYTES;
  /** The last parsed input. */
  #input: ClientInput | undefined;
  /** Number of server bytes at the last heartbeat. */
  #bytesAtHeartbeat = 0;
  /** Number of urgent inputs. */
  #urgentCount = 0;
  /** True if the last urgent input ended at a frame boundary. */
  #atBoundary = true;
  #stopped = false;
  /** Set while the session is paused. */
  #pause: PromiseWithResolvers<void> | undefined;

  constructor(options: DelayedInputOptions) {
    this.#options = options;
  }

  stop(): void {
    this.#stopped = true;
    this.#delayed = [];
    this.#kept = NO_BYTES;
  }

  /** Parses a chunk; `route` follows when its promise has resolved. @throws TailcastError as `Tap.input` */
  parse(chunk: Uint8Array): Promise<void> | undefined {
    const input = this.#options.tap.input(chunk, this.#kept);
    this.#input = input;
    this.#kept = input.kept;
    // A heartbeat is answered, and takes no space.
    const kept = input.kind === 'heartbeat' ? 0 : input.bytes.length;
    if (this.#pause === undefined || this.#delayedBytes + kept <= MAX_DELAYED_BYTES) return input.recorded;
    return Promise.all([input.recorded, this.#pause.promise]).then(() => undefined);
  }

  /** Keeps all input during a pause, except heartbeats. Those are answered, so that the client stays connected. */
  setPaused(isPaused: boolean): void {
    const pause = this.#pause;
    this.#pause = isPaused ? (pause ?? Promise.withResolvers()) : undefined;
    if (isPaused) return;
    if (!this.#stopped) this.#flush();
    pause?.resolve();
  }

  /** Forwards, delays or answers the input that was parsed last. */
  route(): void {
    const input = this.#input;
    if (input === undefined) return;
    this.#input = undefined;
    this.#options.outbound().probeAnswered(input.answeredProbe);
    switch (input.kind) {
      case 'urgent':
        this.#urgentCount += 1;
        if (this.#pause !== undefined) return this.#keep(input);
        this.#flush();
        this.#atBoundary = input.atBoundary;
        if (input.bytes.length > 0) this.#options.inbound().forward(input.bytes);
        return;
      case 'heartbeat':
        return void this.#answer(input);
      case 'delayable':
        return this.#pause === undefined ? void this.#delay(input.bytes) : this.#keep(input);
      case 'none':
        return;
    }
  }

  async #answer({ bytes, responses }: ClientInput): Promise<void> {
    const inbound = this.#options.inbound();
    const outbound = this.#options.outbound();
    const silent =
      this.#pause === undefined &&
      outbound.bytes === this.#bytesAtHeartbeat &&
      outbound.silentMs >= this.#options.silentMs &&
      (await outbound.isIdle());
    this.#bytesAtHeartbeat = outbound.bytes;
    if (this.#stopped) return;
    if (silent && this.#atBoundary && this.#pause === undefined) inbound.forward(bytes);
    else outbound.answer(responses);
  }

  /** Keeps input during a pause. */
  #keep({ bytes, atBoundary }: ClientInput): void {
    this.#delayed.push(bytes);
    this.#delayedBytes += bytes.length;
    this.#atBoundary = atBoundary;
  }

  async #delay(bytes: Uint8Array): Promise<void> {
    this.#delayed.push(bytes);
    this.#delayedBytes += bytes.length;
    if (this.#delayed.length > 1) {
      if (this.#delayedBytes > MAX_DELAYED_BYTES) this.#flush();
      return;
    }
    const count = this.#urgentCount;
    const outbound = this.#options.outbound();
    const sinceMs = performance.now();
    const maxMs = (): number => (outbound.pausedRecently ? MAX_PAUSED_WAIT_MS : MAX_WAIT_MS);
    while (!this.#stopped && this.#urgentCount === count && performance.now() - sinceMs < maxMs()) {
      if (await outbound.isIdle()) break;
      await delay(CHECK_MS);
    }
    if (!this.#stopped && this.#urgentCount === count) this.#flush();
  }

  #flush(): void {
    if (this.#pause !== undefined) return;
    const delayed = this.#delayed;
    this.#delayed = [];
    this.#delayedBytes = 0;
    for (const bytes of delayed) this.#options.inbound().forward(bytes);
  }
}
