/**
 * The body of an upload, as lines or as frames. The recorder converts frames to lines and counts the durable bytes of
 * lines. A gateway can continue an upload of frames only at the end of a frame. The acknowledgements of such an upload
 * therefore refer only to ends of frames. An acknowledgement contains the number of line bytes and the number of frame
 * bytes.
 */
import { isUtf8 } from 'node:buffer';
import { TailcastError } from '../../errors.ts';
import { FrameLines } from '../../wire/recorder-api/frame-lines.ts';
import type { Ack } from '../../wire/recorder-api/ack.ts';
import type { Continuation } from '../../wire/recorder-api/upload-headers.ts';
import { WireError } from '../../wire/wire-error.ts';

export interface UploadBody {
  /** Number of bytes of the incomplete frame that are in memory. */
  readonly heldBytes: number;
  /**
   * Accepts a chunk of the body. @returns the lines of the chunk, valid until the next call
   * @throws TailcastError `UPLOAD_MALFORMED`
   */
  lines(chunk: Uint8Array): Uint8Array;
  /**
   * Called with the number of durable bytes, counted after the conversion to lines. Sends an acknowledgement if its
   * value has changed.
   */
  durable(bodyBytes: number): void;
  /** Returns the acknowledgement for `bodyBytes` durable bytes, counted after the conversion to lines. */
  acknowledged(bodyBytes: number): Ack;
  /** Checks the end of the body. @throws TailcastError `UPLOAD_MALFORMED` if the body is incomplete */
  end(): void;
}

/**
 * Creates the body of an upload.
 *
 * @param at position of the upload in its session, and its format (lines or frames)
 * @param bodyBytes number of durable bytes before this upload. The transport has already acknowledged these bytes
 */
export function createUploadBody(
  at: Continuation,
  bodyBytes: number,
  onAck: (acknowledged: Ack) => void,
): UploadBody {
  const form = at.frames === undefined ? LINES : createFrames(at, at.frames);
  let { ack: told } = form.acknowledged(bodyBytes);
  return {
    ...form,
    get heldBytes() {
      return form.heldBytes;
    },
    durable(durableBytes) {
      const acknowledged = form.acknowledged(durableBytes);
      if (acknowledged.ack === told) return;
      told = acknowledged.ack;
      onAck(acknowledged);
    },
  };
}

type BodyForm = Omit<UploadBody, 'durable'>;

const LINES: BodyForm = {
  heldBytes: 0,
  lines: (chunk) => chunk,
  acknowledged: (bodyBytes) => ({ ack: bodyBytes }),
  end: () => undefined,
};

function createFrames({ offset, preambleBytes }: Continuation, frames: number): BodyForm {
  const reader = new FrameLines({ lines: offset, frames }, isUtf8);
  let preambleLeft = preambleBytes;
  const read = (chunk: Uint8Array): Uint8Array => {
    try {
      return reader.push(chunk);
    } catch (error) {
      if (!(error instanceof WireError)) throw error;
      throw new TailcastError('UPLOAD_MALFORMED', error.message, { cause: error });
    }
  };
  return {
    get heldBytes() {
      return reader.heldBytes;
    },
    lines(chunk) {
      if (preambleLeft === 0) return read(chunk);
      const preamble = chunk.subarray(0, preambleLeft);
      preambleLeft -= preamble.length;
      return Buffer.concat([preamble, read(chunk.subarray(preamble.length))]);
    },
    acknowledged(bodyBytes) {
      const place = reader.reached(bodyBytes);
      return { ack: place.lines, frames: place.frames };
    },
    end() {
      if (!reader.isAtBoundary) throw new TailcastError('UPLOAD_MALFORMED', 'it ends inside of a frame');
    },
  };
}
