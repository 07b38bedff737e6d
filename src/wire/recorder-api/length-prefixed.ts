/**
 * Messages on an upgraded upload connection (`GET /v2/record` with `Upgrade: tailcast-record/1`), in both
 * directions after the 101 response.
 *
 * ```
 *   length of the content (u32, big endian)  content
 *   0                                        nothing follows: the proper end of this direction
 * ```
 *
 * The joined contents of all messages correspond to the bodies of `POST /v2/record`: the gateway sends
 * preamble and frames, the recorder sends acknowledgements. Message boundaries have no meaning. The end
 * message of the recorder confirms that the upload is stored. A connection that closes without an end message
 * counts as broken. A normal close does not prove that the upload is complete, because the kernel also closes the
 * connections of a killed process normally.
 */
import { stopAfterFailure, WireError } from '../wire-error.ts';
import { MAX_ACK_BYTES } from './ack.ts';

/** Name and version of the protocol that a connection is upgraded to. */
export const RECORD_PROTOCOL = 'tailcast-record/1';

/** Maximum content of a message from a gateway, in bytes. */
export const MAX_UPLOAD_RECORD_BYTES = 4 * 1024 * 1024;
/** Maximum content of a message from a recorder, in bytes: the longest acknowledgement and its line break. */
export const MAX_ACK_RECORD_BYTES = MAX_ACK_BYTES + 1;

const LEAD_BYTES = 4;

/**
 * Splits `content` into messages of at most `maxBytes`.
 * @returns headers and views of the content, in order
 */
export function encodeRecords(content: readonly Uint8Array[], maxBytes: number): readonly Uint8Array[] {
  const parts: Uint8Array[] = [];
  let left = content.reduce((sum, { length }) => sum + length, 0);
  let space = 0;
  for (const piece of content) {
    for (let at = 0; at < piece.length;) {
      if (space === 0) {
        space = Math.min(left, maxBytes);
        parts.push(leadOf(space));
      }
      const part = piece.subarray(at, at + space);
      parts.push(part);
      at += part.length;
      space -= part.length;
      left -= part.length;
    }
  }
  return parts;
}

/** Returns the message that ends a direction. */
export function endOfRecords(): Uint8Array {
  return leadOf(0);
}

function leadOf(contentBytes: number): Uint8Array {
  const lead = new Uint8Array(LEAD_BYTES);
  new DataView(lead.buffer).setUint32(0, contentBytes);
  return lead;
}

/**
 * @param maxBytes maximum content of a message
 * @param content receives the content in pieces, as views of the pushed bytes. Content before an error is
 * also passed
 */
export function createRecordReader(maxBytes: number, content: (piece: Uint8Array) => void) {
  /** Number of received bytes of the message header, and the part of the message length in these bytes. */
  let leadBytes = 0;
  let lead = 0;
  let missing = 0;
  let ended = false;

  /** Reads the message header. @returns the offset after it, or the end of the chunk if the header is incomplete */
  function readLead(chunk: Uint8Array, start: number): number {
    let at = start;
    for (; at < chunk.length && leadBytes < LEAD_BYTES; at += 1) {
      lead = lead * 256 + (chunk[at] ?? 0);
      leadBytes += 1;
    }
    if (leadBytes < LEAD_BYTES) return at;
    if (lead > maxBytes) throw new WireError('limit', 'the record is too long');
    if (lead === 0) ended = true;
    missing = lead;
    leadBytes = 0;
    lead = 0;
    return at;
  }

  return {
    /** True after the end message has been parsed. */
    get ended(): boolean {
      return ended;
    },
    /**
     * Parses a chunk, which may begin and end anywhere.
     * @throws WireError `limit` for a message that is too long, `malformed` for bytes after the end message, `dead`
     * after an error; any error that `content` throws
     */
    push: stopAfterFailure((chunk: Uint8Array): void => {
      for (let at = 0; at < chunk.length;) {
        if (ended) throw new WireError('malformed', 'bytes follow the end of the records');
        if (missing === 0) {
          at = readLead(chunk, at);
          continue;
        }
        const end = Math.min(at + missing, chunk.length);
        missing -= end - at;
        content(chunk.subarray(at, end));
        at = end;
      }
    }),
  };
}
