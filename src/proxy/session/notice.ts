/**
 * Adds the notice of a recorded terminal session: one line that the gateway inserts before the output of the
 * program. The tap parses the line like other output, so the recording contains it.
 */
import { parseSubprotocol, CHANNEL, encodeServerMessage } from '../../wire/remotecommand/channel.ts';
import { createTap, type StreamProtocol } from '../../recording/stream-plan.ts';
import type { Tap, TappedSession } from '../../recording/tap.ts';
import { createSpdyStreams, type SpdyStreams } from '../../recording/spdy-server-reader.ts';
import { createSpdyParser, encodeSpdyFrame, type SpdyParser } from '../../wire/spdy/frame.ts';

/**
 * Inserts bytes into the output of the API server. Called for each chunk, but not again after a call that returned
 * bytes. The first call gets the bytes that arrived with the 101 response, which may be empty. Returns undefined if the
 * bytes must be inserted later.
 */
export type InsertOutput = (chunk: Uint8Array) => Uint8Array | undefined;

/**
 * Maximum number of bytes in which the gateway looks for the SYN_REPLY of stdout. If the SYN_REPLY comes later, the
 * gateway inserts no notice.
 */
const MAX_BEFORE = 64 * 1024;

/**
 * Creates the tap of a session, and the function that inserts the notice if there is a notice.
 * @throws TailcastError as `createTap`
 */
export function createNotedTap(
  session: TappedSession,
  protocol: StreamProtocol,
  subprotocol: string,
  notice: string | undefined,
): { readonly tap: Tap; readonly insert?: InsertOutput } {
  if (notice === undefined) return { tap: createTap(session, protocol, subprotocol) };
  const line = Buffer.from(`${notice}\r\n`);
  if (protocol === 'spdy') {
    const streams = createSpdyStreams();
    return { tap: createTap(session, protocol, subprotocol, streams), insert: afterReply(line, streams) };
  }
  const isBase64 = parseSubprotocol(subprotocol)?.base64 === true;
  const message = encodeServerMessage({ channel: CHANNEL.stdout, data: line }, isBase64);
  return {
    tap: createTap(session, protocol, subprotocol),
    insert: (chunk) => Buffer.concat([message, chunk]),
  };
}

/** Inserts the notice after the SYN_REPLY of stdout, because clients drop data that arrives earlier. */
function afterReply(payload: Uint8Array, streams: Pick<SpdyStreams, 'idOf'>): InsertOutput {
  const parser = createSpdyParser();
  let before = 0;
  return (chunk) => {
    const stdout = streams.idOf('stdout');
    for (let at = 0; at < chunk.length && before < MAX_BEFORE; at += 1) {
      before += 1;
      if (!hasReply(parser, chunk.subarray(at, at + 1), stdout)) continue;
      const frame = encodeSpdyFrame({ kind: 'data', streamId: stdout ?? 0, fin: false, payload });
      return Buffer.concat([chunk.subarray(0, at + 1), frame, chunk.subarray(at + 1)]);
    }
    return before < MAX_BEFORE ? undefined : chunk;
  };
}

/**
 * Returns true if the byte completes the SYN_REPLY of the stream. Ignores invalid bytes, because the tap
 * reports them.
 */
function hasReply(parser: SpdyParser, byte: Uint8Array, id: number | undefined): boolean {
  try {
    for (const event of parser.push(byte)) {
      if (event.kind === 'synReply' && event.streamId === id) return true;
    }
  } catch {
    return false;
  }
  return false;
}
