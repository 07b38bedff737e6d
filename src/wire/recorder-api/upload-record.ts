/**
 * Records: what an upload and its acknowledgements are cut into on a connection of HTTP/1.1 that was upgraded for it, with
 * `GET /v2/record` and `Upgrade: tailcast-record/1`. Both directions are records after the 101.
 *
 * ```
 *   length of the content (u32, big endian)  content
 *   0                                        nothing follows: the proper end of this direction
 * ```
 *
 * Contents put together are what `POST /v2/record` has as its body: preamble and frames from the gateway, acknowledgements
 * from the recorder. Where they are cut means nothing. The end of the recorder's direction says that the upload is kept. A connection
 * that is closed without an end was cut: the system of a process that is killed closes it properly, too.
 */
import { fuse } from '../fuse.ts';
import { WireError } from '../wire-error.ts';
import { MAX_ACK_BYTES } from './ack.ts';

/** Name and version of the protocol that a connection is upgraded to. */
export const RECORD_PROTOCOL = 'tailcast-record/1';

/** Longest content of a record from a gateway. */
export const MAX_UPLOAD_RECORD_BYTES = 4 * 1024 * 1024;
/** The same from a recorder: the longest acknowledgement and its line break. */
export const MAX_ACK_RECORD_BYTES = MAX_ACK_BYTES + 1;

const LEAD_BYTES = 4;

/**
 * `content` as records of at most `maxBytes` each, as few as can be.
 * @returns what to send, in order: leads, and views of the content
 */
export function encodeRecords(content: readonly Uint8Array[], maxBytes: number): readonly Uint8Array[] {
  const parts: Uint8Array[] = [];
  let left = content.reduce((sum, { length }) => sum + length, 0);
  let room = 0;
  for (const piece of content) {
    for (let at = 0; at < piece.length;) {
      if (room === 0) {
        room = Math.min(left, maxBytes);
        parts.push(leadOf(room));
      }
      const part = piece.subarray(at, at + room);
      parts.push(part);
      at += part.length;
      room -= part.length;
      left -= part.length;
    }
  }
  return parts;
}

/** What comes behind the last record. */
export function endOfRecords(): Uint8Array {
  return leadOf(0);
}

function leadOf(contentBytes: number): Uint8Array {
  const lead = new Uint8Array(LEAD_BYTES);
  new DataView(lead.buffer).setUint32(0, contentBytes);
  return lead;
}

export interface RecordReader {
  /** The end has come. */
  readonly ended: boolean;
  /**
   * Takes bytes in pieces of any size.
   * @throws WireError `limit` for a record that is too long, `malformed` for bytes behind the end; whatever `content` throws;
   *   afterwards `dead`
   */
  push(chunk: Uint8Array): void;
}

/**
 * @param maxBytes the longest content
 * @param content is called with all of it, in pieces as they come, which are views of what was pushed; also with what came before bytes
 *   that are refused
 */
export function createRecordReader(maxBytes: number, content: (piece: Uint8Array) => void): RecordReader {
  /** Of the lead: bytes that have come, and their value. */
  let leadBytes = 0;
  let lead = 0;
  let missing = 0;
  let ended = false;

  /** @returns where the lead ends in `chunk`, or the chunk */
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
    get ended() {
      return ended;
    },
    push: fuse((chunk: Uint8Array): void => {
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
