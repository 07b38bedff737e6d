/** What a recorder answers to an upload of v2, whatever it travels over: acknowledgements, until it says that all is kept. */
import { createDeadline } from '../async/deadline.ts';
import { createAckParser } from '../wire/recorder-api/ack.ts';
import { createOutcome, type ConnectionEvents } from './recorder-connection.ts';

export interface UploadAnswer {
  /** Nothing more is told. */
  readonly ended: boolean;
  attach(events: ConnectionEvents): void;
  /** Bytes of acknowledgements. */
  push(chunk: Uint8Array): void;
  /** The upload is whole: the recorder may end as well. */
  finishing(): void;
  /** The recorder said that nothing follows. */
  end(): void;
  fail(error: Error): void;
  silence(): void;
}

export interface UploadAnswerOptions {
  /** Longest time between two acknowledgements. */
  readonly ackWindowMs: number;
  /** What is acknowledged is frames. */
  readonly frames: boolean;
  /** Breaks the connection off. */
  readonly dispose: () => void;
  /** Closes the connection when all is kept. */
  readonly close: () => void;
}

/** One per connection. */
export function createUploadAnswer({
  ackWindowMs,
  frames,
  dispose,
  close,
}: UploadAnswerOptions): UploadAnswer {
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
    get ended() {
      return outcome.ended;
    },
    attach: (events) => outcome.attach(events),
    push(chunk) {
      if (outcome.ended) return;
      ackWindow.extend();
      try {
        for (const frame of acks.push(chunk)) {
          if (frame.error !== undefined) return fail(new Error(`the recorder says: ${frame.error}`));
          if (frames) outcome.acknowledged(frame.frames ?? 0, frame.ack);
          else outcome.acknowledged(frame.ack);
        }
      } catch (error) {
        fail(new Error('the recorder sent acknowledgements that cannot be read', { cause: error }));
      }
    },
    finishing() {
      finishing = true;
    },
    end() {
      if (outcome.ended) return;
      if (!finishing) return fail(new Error('the recorder ended the upload before the session'));
      ackWindow.clear();
      outcome.finished();
      close();
    },
    fail,
    silence() {
      ackWindow.clear();
      outcome.silence();
      dispose();
    },
  };
}
