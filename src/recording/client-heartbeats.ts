/**
 * Input of a tap: recognises heartbeats, terminal sizes, and responses to pings of the gateway.
 *
 * If one more byte of the client arrives after the API server has closed its connection, the kernel of the API server
 * discards unread output. The relay therefore delays a chunk that contains only heartbeats and terminal sizes, and
 * answers heartbeats itself. A SPDY frame of kubectl arrives in up to four pieces. The relay therefore keeps the first
 * bytes of a possible heartbeat or resize message until the frame is complete.
 *
 * A client responds to a ping of the gateway after it has read all earlier output. The responses therefore
 * show how much output the client has read, which the OS does not report.
 */
import { joined, NO_BYTES, type ClientInput, type Probe } from './tap.ts';

/** Maximum number of unanswered pings. */
export const MAX_PROBES = 8;

/** Numbers the pings to one client and tracks their responses. */
export class ProbeLedger {
  readonly #frameOf: (ordinal: number) => Uint8Array;
  #made = 0;
  #answered = 0;

  /** @param frameOf returns the ping frame with this number; numbers start at 1 */
  constructor(frameOf: (ordinal: number) => Uint8Array) {
    this.#frameOf = frameOf;
  }

  get answered(): number {
    return this.#answered;
  }

  next(): Probe | undefined {
    if (this.#made - this.#answered >= MAX_PROBES) return undefined;
    this.#made += 1;
    return { ordinal: this.#made, frame: this.#frameOf(this.#made) };
  }

  /**
   * Records the response to the ping with this number.
   * @returns false if no such ping was waiting for a response
   */
  take(ordinal: number): boolean {
    if (!Number.isInteger(ordinal) || ordinal <= this.#answered || ordinal > this.#made) return false;
    this.#answered = ordinal;
    return true;
  }
}

/** State of the parser that calls the methods of {@link ClientHeartbeats} for each frame. */
interface FrameParser {
  readonly atBoundary: boolean;
  /** Number of bytes after the last complete frame. */
  readonly partialBytes: number;
}

export type ClientHeartbeats = ReturnType<typeof createClientHeartbeats>;

/**
 * @param isBegun returns true if these first bytes of a frame may belong to a heartbeat or a resize message
 * @param maxBytes maximum length of a heartbeat or resize message
 */
export function createClientHeartbeats(
  parser: FrameParser,
  probes: ProbeLedger,
  isBegun: (bytes: Uint8Array) => boolean,
  maxBytes: number,
) {
  let isDelayable = false;
  let hasLeft = false;
  let responses: Uint8Array[] | undefined;
  let hasProbe = false;
  /** Number of kept bytes that may be the start of a heartbeat or resize message. */
  let begunBytes = 0;
  /** Returns the number of bytes at the end of `bytes` that may be the start of a heartbeat or a resize message. */
  const countBegun = (bytes: Uint8Array, chunkBytes: number): number => {
    const { partialBytes } = parser;
    if (partialBytes === 0 || partialBytes >= maxBytes) return 0;
    // A frame whose first bytes arrived in an earlier chunk and were not kept is not a heartbeat.
    const isComplete = partialBytes <= chunkBytes || partialBytes === begunBytes + chunkBytes;
    return isComplete && isBegun(bytes.subarray(bytes.length - partialBytes)) ? partialBytes : 0;
  };
  const delayable = (bytes: Uint8Array): Pick<ClientInput, 'kind' | 'bytes'> => {
    // The server must not get responses to pings of the gateway, because it did not send these pings.
    const hasOnlyProbes = hasProbe && responses?.length === 0;
    if (begunBytes > 0 || hasOnlyProbes) return { kind: 'none', bytes: NO_BYTES };
    return { kind: responses !== undefined && responses.length > 0 ? 'heartbeat' : 'delayable', bytes };
  };
  return {
    /** True if the client has sent its closing frame. */
    get hasLeft(): boolean {
      return hasLeft;
    },
    /** Called for a complete heartbeat. `response` is the response that the server would send. */
    heartbeat: (response: Uint8Array): void => void responses?.push(response),
    /** Called for a frame that is not a heartbeat. The gateway must then forward the chunk to the server. */
    otherFrame(): void {
      responses = undefined;
    },
    /** Called for a frame that must reach the server immediately. */
    urgentFrame(): void {
      isDelayable = false;
    },
    /** Called for the closing frame of the client. */
    closingFrame(): void {
      isDelayable = false;
      hasLeft = true;
    },
    /** Called for the response of the client to a ping that the gateway sent. */
    probeResponse(): void {
      hasProbe = true;
    },
    /** Reads a chunk, see `Tap.input`. @param parse parses the chunk, and calls the other methods for each frame */
    read(
      chunk: Uint8Array,
      kept: Uint8Array,
      parse: (chunk: Uint8Array) => void | Promise<void>,
    ): ClientInput {
      // Kept bytes belong to the first frame of this chunk, so the state of the previous chunk continues.
      if (begunBytes === 0 || !isDelayable) {
        isDelayable = parser.atBoundary || begunBytes > 0;
        responses = [];
        hasProbe = false;
      }
      const recorded = parse(chunk) ?? undefined;
      const bytes = joined(kept, chunk);
      begunBytes = countBegun(bytes, chunk.length);
      if (!parser.atBoundary && begunBytes === 0) isDelayable = false;
      const head = isDelayable ? bytes : bytes.subarray(0, bytes.length - begunBytes);
      const common = {
        kept: begunBytes === 0 ? NO_BYTES : bytes.slice(isDelayable ? 0 : head.length),
        responses: responses ?? [],
        atBoundary: begunBytes > 0 || parser.atBoundary,
        answeredProbe: hasLeft ? Infinity : probes.answered,
        recorded,
      };
      return isDelayable ? { ...delayable(bytes), ...common } : { kind: 'urgent', bytes: head, ...common };
    },
  };
}
