/**
 * Logs, counts and limits HTTP/2 request heads that Node.js does not report or that are expensive to process: rejected,
 * incomplete and long heads.
 */
import { constants, type ServerHttp2Session } from 'node:http2';
import type { Socket } from 'node:net';
import { asTailcastError, errorText, TailcastError } from '../../errors.ts';
import { MAX_PARSED_HEAD_BYTES } from '../gate/gate.ts';
import { USUAL_HEAD_BYTES, type HeadPlace } from '../gate/user-limits.ts';

/** Maximum memory of one connection in nghttp2, in MiB. */
export const MAX_SESSION_MEGABYTES = 32;
/** Maximum number of streams of one connection that Node.js rejects before it closes the connection. */
export const MAX_REJECTED_STREAMS = 100;

/**
 * Detects streams that nghttp2 rejected. nghttp2 resets such a stream or closes its connection, and does not inform the
 * application.
 */
export type UnreadStreams = ReturnType<typeof createUnreadStreams>;

/** @param refused called with the reason of each detected refusal */
export function createUnreadStreams(refused: (error: TailcastError) => void) {
  let last = -1;
  let isReported = false;
  const report = (error: TailcastError): void => {
    isReported = true;
    refused(error);
  };
  return {
    /** Largest id of the reported streams, or -1. */
    get last(): number {
      return last;
    },
    /** Logs and counts the refusal, and ends the HTTP/2 session. */
    end(session: ServerHttp2Session, error: TailcastError): void {
      report(error);
      session.destroy(undefined, constants.NGHTTP2_ENHANCE_YOUR_CALM);
    },
    /**
     * Called for each new stream. Clients number their streams 1, 3, 5, …, so a missing number is a stream that nghttp2
     * reset.
     */
    arrived(id: number): void {
      const skipped = (id - last) / 2 - 1;
      last = id;
      if (skipped > 0) {
        const detail = `${skipped} HTTP/2 streams were reset: malformed or too large headers, too many streams, or over ${MAX_SESSION_MEGABYTES} MiB in memory`;
        report(new TailcastError('REQUEST_MALFORMED', detail));
      }
    },
    /** Called when an HTTP/2 session fails. Reports the failure, unless the client disconnected. */
    failed(error: Error): void {
      const code = 'code' in error ? String(error.code) : '';
      // other errors mean that the client disconnected
      if (code !== 'ERR_HTTP2_ERROR' && code !== 'ERR_HTTP2_TOO_MANY_INVALID_FRAMES') return;
      if (error.message === REJECTED_STREAMS) return report(TOO_MANY_REJECTED);
      const isLong = error.message.includes('CONTINUATION');
      report(
        new TailcastError(
          isLong ? 'HEADERS_TOO_LARGE' : 'REQUEST_MALFORMED',
          `the HTTP/2 connection failed: ${errorText(error)}`,
        ),
      );
    },
    /**
     * Called when an HTTP/2 session ends. Reports a session without a readable request. `bytes` is the number of bytes
     * that were received on its connection.
     */
    ended(bytes: number): void {
      if (last !== -1 || isReported || bytes < MIN_REQUEST_BYTES) return;
      report(
        new TailcastError('REQUEST_MALFORMED', 'the HTTP/2 connection ended without a readable request'),
      );
    },
  };
}

/** Error message of nghttp2 after a callback of Node.js failed. The callback fails after too many rejected streams. */
const REJECTED_STREAMS = 'The user callback function failed';
const TOO_MANY_REJECTED = new TailcastError(
  'OVERLOADED',
  `the HTTP/2 connection was closed: over ${MAX_REJECTED_STREAMS} streams were rejected because the connection has too many streams or over ${MAX_SESSION_MEGABYTES} MiB in memory`,
);

/** Interval at which HTTP/2 sessions are checked for incomplete heads, in milliseconds. */
export const HEAD_CHECK_MS = 250;

/** Detects request heads that stay incomplete. */
export type HeadWatch = ReturnType<typeof createHeadWatch>;

/**
 * Watches for incomplete heads. Node.js reports a stream only when its head is complete. If the last stream id of the
 * HTTP/2 session is larger than the last reported id, the head is incomplete, or nghttp2 has reset the stream. To
 * distinguish these cases, the gateway sends a PING. A client cannot send any other frame before it has completed its
 * head (RFC 9113 §6.10). If the client responds to the PING and the stream is still unreported, nghttp2 has reset the
 * stream.
 */
export function createHeadWatch(
  session: ServerHttp2Session,
  socket: Socket,
  parts: {
    readonly unread: UnreadStreams;
    readonly head: HeadPlace | undefined;
    /** Maximum time for which a head may be incomplete, in milliseconds. */
    readonly headersTimeoutMs: number;
    readonly now: () => number;
  },
) {
  const { unread, head, headersTimeoutMs, now } = parts;
  let checkedBytes = 0;
  let settled = 0;
  let begun: { readonly id: number; readonly ms: number } | undefined;
  return {
    /** Counts the bytes of an incomplete head. Ends the HTTP/2 session if the head is too long or too slow. */
    check(): void {
      const bytes = socket.bytesRead;
      if (session.destroyed || (begun === undefined && bytes === checkedBytes)) return;
      const id = session.state.lastProcStreamID ?? 0;
      if (id <= Math.max(unread.last, settled)) {
        begun = undefined;
        checkedBytes = bytes;
        head?.leave();
        return;
      }
      if (begun?.id !== id) {
        begun = { id, ms: now() };
        session.ping((error) => {
          if (error === null) settled = id;
        });
      }
      if (now() - begun.ms > headersTimeoutMs)
        return unread.end(session, new TailcastError('REQUEST_TIMEOUT', 'its HTTP/2 headers are incomplete'));
      try {
        head?.hold(Math.min(bytes - checkedBytes, MAX_PARSED_HEAD_BYTES));
      } catch (error) {
        unread.end(session, asTailcastError(error));
      }
    },
    stop: (): void => head?.leave(),
  };
}

/**
 * Maximum number of bytes of long heads that a connection may send in one burst, and after the burst in each second.
 * The bytes are counted after decompression. The compressed heads can be a thousand times smaller.
 */
const HEAD_BYTES_PER_SECOND = 4 * 1024 * 1024;
export const TOO_MANY_LONG_HEADS = new TailcastError(
  'OVERLOADED',
  'the connection sends over 4 MiB of long request heads per second',
);

/** Limits the CPU time for decompressing the heads of one connection. */
export function createHeadRate(now: () => number) {
  let used = 0;
  let atMs = now();
  return {
    /** Counts a head of this size. Returns the error if its request must be rejected. */
    take(bytes: number): TailcastError | undefined {
      if (bytes <= USUAL_HEAD_BYTES) return undefined;
      const nowMs = now();
      used = Math.max(0, used - ((nowMs - atMs) / 1000) * HEAD_BYTES_PER_SECOND) + bytes;
      atMs = nowMs;
      return used > HEAD_BYTES_PER_SECOND ? TOO_MANY_LONG_HEADS : undefined;
    },
    /** True if the client continues although its requests are refused. */
    get isExcessive(): boolean {
      return used > 2 * HEAD_BYTES_PER_SECOND;
    },
  };
}

/**
 * Minimum received bytes of a connection that sent a request. With fewer bytes, the client sent only preface
 * and settings.
 */
const MIN_REQUEST_BYTES = 1024;
