/**
 * Heartbeats of a client, and sizes of its terminal: what is nothing else may wait, because nothing of it may reach a server that
 * may have finished; a heartbeat is answered here. kubectl writes a SPDY frame in up to four pieces, so the beginning of what may be
 * one of these waits for its end.
 */
import type { ProbeLedger } from './client-probes.ts';
import type { Tap } from './tap.ts';

/** The reader of frames whose events come here. */
interface FrameReader {
  readonly atBoundary: boolean;
  /** Bytes since the last end of a frame. */
  readonly partialBytes: number;
}

/** The client's side of a session. */
export interface ClientTap extends Tap {
  /** The client has taken its leave. */
  readonly left: boolean;
}

export interface ClientHeartbeats {
  /** A whole heartbeat, which the server would answer so. */
  beats(answer: Uint8Array): void;
  /** A frame that is no heartbeat: what is answered here would not be all. */
  isMore(): void;
  /** Something that has to reach the server now. */
  isUrgent(): void;
  /** The client takes its leave. */
  leaves(): void;
  /** The answer to a ping of the gateway. */
  answersProbe(): void;
  /** @param read looks at a chunk, and meanwhile calls the others with what it finds */
  tap(read: (chunk: Uint8Array) => ReturnType<Tap['push']>): ClientTap;
}

/**
 * @param probes pings of the gateway to this client
 * @param isBegun whether bytes from the beginning of a frame may be those of a heartbeat or a size
 * @param maxBytes of a whole one; what is longer is none
 */
export function createClientHeartbeats(
  frames: FrameReader,
  probes: ProbeLedger,
  isBegun: (bytes: Uint8Array) => boolean,
  maxBytes: number,
): ClientHeartbeats {
  let mayWait = false;
  let left = false;
  let answers: Uint8Array[] | undefined;
  let sawProbe = false;
  /** What was read last, from the beginning of what may be one. */
  let begun = new Uint8Array(0);
  const keepBegun = (chunk: Uint8Array): void => {
    const { partialBytes } = frames;
    if (partialBytes === 0 || partialBytes >= maxBytes) {
      begun = new Uint8Array(0);
      return;
    }
    // a frame that began before was none of them then, or its beginning is in `begun`
    const isWhole = partialBytes <= chunk.length || partialBytes === begun.length + chunk.length;
    const bytes =
      partialBytes <= chunk.length
        ? chunk.slice(chunk.length - partialBytes)
        : new Uint8Array([...begun, ...chunk]);
    begun = isWhole && isBegun(bytes) ? bytes : new Uint8Array(0);
  };
  return {
    beats: (answer) => void answers?.push(answer),
    isMore() {
      answers = undefined;
    },
    answersProbe() {
      sawProbe = true;
    },
    isUrgent() {
      mayWait = false;
    },
    leaves() {
      mayWait = false;
      left = true;
    },
    tap: (read) => ({
      push(chunk) {
        // what is kept from before is judged together with this
        if (begun.length === 0 || !mayWait) {
          mayWait = frames.atBoundary || begun.length > 0;
          answers = [];
          sawProbe = false;
        }
        const result = read(chunk);
        keepBegun(chunk);
        if (!frames.atBoundary && begun.length === 0) mayWait = false;
        return result;
      },
      delivered() {},
      get standsBetweenFrames() {
        return frames.atBoundary;
      },
      get left() {
        return left;
      },
      get mayWait() {
        return mayWait;
      },
      get begunBytes() {
        return begun.length;
      },
      get answers() {
        return answers ?? [];
      },
      get answeredProbe() {
        return left ? Infinity : probes.answered;
      },
      get onlyProbes() {
        return sawProbe && answers?.length === 0 && mayWait && begun.length === 0;
      },
    }),
  };
}
