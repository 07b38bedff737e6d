/**
 * The body of one upload as lines, whether it comes as lines or as frames. What is durable is known in bytes of lines;
 * in an upload of frames only places where a frame ends are told, in both counts, because there a gateway can go on.
 */
import { isUtf8 } from 'node:buffer';
import { TailcastError } from '../../errors.ts';
import { FrameLines } from '../../wire/recorder-api/frame-lines.ts';
import type { Ack } from '../../wire/recorder-api/ack.ts';
import type { Continuation } from '../../wire/recorder-api/upload-headers.ts';
import { WireError } from '../../wire/wire-error.ts';

export interface UploadBody {
  /**
   * Takes a piece of the body. @returns the lines in it, valid until the next call
   * @throws TailcastError `UPLOAD_MALFORMED`
   */
  lines(chunk: Uint8Array): Uint8Array;
  /** So many bytes of lines are durable: tells it when that is news. */
  durable(bodyBytes: number): void;
  /** What is told of `bodyBytes` durable bytes of lines. */
  acknowledged(bodyBytes: number): Ack;
  /** @throws TailcastError `UPLOAD_MALFORMED` when the body cannot end here */
  end(): void;
}

/**
 * @param at where in its session the upload begins, and what it comes as
 * @param bodyBytes durable when it begins, which its transport knows
 */
export function createUploadBody(
  at: Continuation,
  bodyBytes: number,
  tell: (acknowledged: Ack) => void,
): UploadBody {
  const form = at.frames === undefined ? LINES : createFrames(at, at.frames);
  let { ack: told } = form.acknowledged(bodyBytes);
  return {
    ...form,
    durable(durableBytes) {
      const acknowledged = form.acknowledged(durableBytes);
      if (acknowledged.ack === told) return;
      told = acknowledged.ack;
      tell(acknowledged);
    },
  };
}

type BodyForm = Omit<UploadBody, 'durable'>;

const LINES: BodyForm = {
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
      if (!reader.isWhole) throw new TailcastError('UPLOAD_MALFORMED', 'it ends inside of a frame');
    },
  };
}
