/**
 * The response of a recorder to a v2 upload, over HTTP/2 or an upgraded connection: acknowledgements and a final
 * confirmation.
 */
import { createDeadline } from '../async/deadline.ts';
import { createAckParser } from '../wire/recorder-api/ack.ts';
import { createOutcome, type ConnectionEvents } from './recorder-connection.ts';

export interface UploadAnswerOptions {
  /** Maximum time between two acknowledgements. */
  readonly ackWindowMs: number;
  /** True if acknowledgements contain the number of bytes of frames. */
  readonly frames: boolean;
  /** Resets the connection. */
  readonly dispose: () => void;
  /** Closes the connection after the confirmation. */
  readonly close: () => void;
}

/** Creates the reader of one response. */
export function createUploadAnswer({ ackWindowMs, frames, dispose, close }: UploadAnswerOptions) {
  const outcome = createOutcome();
  const acks = createAckParser();
  let finishing = false;
  const fail = (error: Error): void => {
    if (outcome.ended) return;
    ackWindow.clear();
    outcome.lost(error);
    dispose();
  };
  const ackWindow = createDeadline(ackWindowMs, () =>
    fail(new Error(`no acknowledgement for ${ackWindowMs} ms`)),
  );
  return {
    /** True after the upload has finished or was lost, or after `silence` was called. */
    get ended(): boolean {
      return outcome.ended;
    },
    attach: (events: ConnectionEvents): void => outcome.attach(events),
    /** Reads bytes of acknowledgements. */
    push(chunk: Uint8Array): void {
      if (outcome.ended) return;
      ackWindow.extend();
      try {
        for (const frame of acks.push(chunk)) {
          if (frame.error !== undefined) return fail(new Error(`the recorder says: ${frame.error}`));
          if (frames) outcome.acknowledged(frame.frames ?? 0, frame.ack);
          else outcome.acknowledged(frame.ack);
          if (frame.order !== undefined) outcome.ordered(frame.order);
        }
      } catch (error) {
        fail(new Error('the recorder sent acknowledgements that cannot be read', { cause: error }));
      }
    },
    /** Called when the upload was sent completely. The recorder must not end its response before this call. */
    finishing(): void {
      finishing = true;
    },
    /** Called when the response has ended. */
    end(): void {
      if (outcome.ended) return;
      if (!finishing) return fail(new Error('the recorder ended the upload before the session'));
      ackWindow.clear();
      outcome.finished();
      close();
    },
    fail,
    silence(): void {
      ackWindow.clear();
      outcome.silence();
      dispose();
    },
  };
}
