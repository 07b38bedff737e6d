/**
 * Delays heartbeats and terminal sizes of the client, so that the API server does not lose output.
 *
 * When the command has exited, the API server closes its connection, but output may still be in flight to the gateway.
 * If the server receives one more byte after that, its kernel discards this output. The gateway therefore answers most
 * heartbeats itself. It forwards a heartbeat only after a long silence: all output is delivered, and the server has
 * sent no byte since the previous heartbeat and for at least `silentMs`. The gateway sends a terminal size when all
 * output is delivered, with the next urgent input, or after a timeout. The timeout is longer while the server waits for
 * the client, because output is then certainly in flight.
 */
import { setTimeout as delay } from 'node:timers/promises';
import type { ClientInput, Tap } from '../../recording/tap.ts';
import type { Direction } from './relay-direction.ts';

/**
 * Silence after which the gateway assumes that no output of the server is in flight. The value is longer than
 * the pauses of a server on a busy machine (seconds), and shorter than the idle timeout of proxies (a
 * minute).
 */
export const SILENT_MS = 20_000;
const MAX_WAIT_MS = 5_000;
const MAX_PAUSED_WAIT_MS = 20_000;
/** Interval of the check whether all output is delivered. */
const CHECK_MS = 25;
const MAX_DELAYED_BYTES = 64 * 1024;
const NO_BYTES = new Uint8Array(0);

export interface DelayedInputOptions {
  readonly tap: Pick<Tap, 'input'>;
  /** Direction from the client to the API server. */
  readonly inbound: () => Direction;
  /** Direction from the API server to the client. */
  readonly outbound: () => Direction;
  /** Silence after which a heartbeat is forwarded, see {@link SILENT_MS}. */
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
  /** Number of bytes that the API server had sent until the last heartbeat. */
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

  /** Parses a chunk. The caller calls `route` after the promise has resolved. @throws TailcastError as `Tap.input` */
  parse(chunk: Uint8Array): Promise<void> | undefined {
    const input = this.#options.tap.input(chunk, this.#kept);
    this.#input = input;
    this.#kept = input.kept;
    // A heartbeat is answered at once and not kept, so it needs no space.
    const kept = input.kind === 'heartbeat' ? 0 : input.bytes.length;
    if (this.#pause === undefined || this.#delayedBytes + kept <= MAX_DELAYED_BYTES) return input.recorded;
    return Promise.all([input.recorded, this.#pause.promise]).then(() => undefined);
  }

  /**
   * Keeps all input during a pause, except heartbeats. The gateway answers heartbeats also during a pause, so
   * that the client stays connected.
   */
  setPaused(isPaused: boolean): void {
    const pause = this.#pause;
    this.#pause = isPaused ? (pause ?? Promise.withResolvers()) : undefined;
    if (isPaused) return;
    if (!this.#stopped) this.#flush();
    pause?.resolve();
  }

  /** Forwards, delays or answers the input of the last `parse`. */
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
