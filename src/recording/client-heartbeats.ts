/**
 * Heartbeats and resize messages of a client. The relay may delay a chunk that contains nothing else, because an API
 * server that has finished discards unread output as soon as one more byte reaches it. The gateway answers heartbeats
 * itself. kubectl writes a SPDY frame in up to four pieces, so the first bytes of a possible heartbeat or resize
 * message are kept until the frame is complete.
 */
import type { ProbeLedger } from './client-probes.ts';
import type { Tap } from './tap.ts';

/** Position of the frame reader that reports the frames. */
interface FrameReader {
  readonly atBoundary: boolean;
  /** Number of bytes after the last complete frame. */
  readonly partialBytes: number;
}

/** Tap for the bytes that a client sends. */
export interface ClientTap extends Tap {
  /** True after the client sent its closing frame. */
  readonly left: boolean;
}

export interface ClientHeartbeats {
  /** Reports a complete heartbeat. `answer` is the response that the server would send. */
  beats(answer: Uint8Array): void;
  /** Reports a frame that is not a heartbeat. The chunk then cannot be answered by the gateway alone. */
  isMore(): void;
  /** Reports a frame that must reach the server immediately. */
  isUrgent(): void;
  /** Reports the closing frame of the client. */
  leaves(): void;
  /** Reports the response to a ping of the gateway. */
  answersProbe(): void;
  /** @param read parses a chunk, and calls the other methods for each frame */
  tap(read: (chunk: Uint8Array) => ReturnType<Tap['push']>): ClientTap;
}

/**
 * @param probes pings of the gateway to this client
 * @param isBegun true if these first bytes of a frame may belong to a heartbeat or a resize message
 * @param maxBytes maximum length of a heartbeat or resize message
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
  /** First bytes of a possible heartbeat or resize message. */
  let begun = new Uint8Array(0);
  const keepBegun = (chunk: Uint8Array): void => {
    const { partialBytes } = frames;
    if (partialBytes === 0 || partialBytes >= maxBytes) {
      begun = new Uint8Array(0);
      return;
    }
    // The first bytes of a frame that started in an earlier chunk are in `begun`, or they excluded a heartbeat already.
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
        // The kept first bytes are judged together with this chunk.
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
