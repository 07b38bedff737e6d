/** One connection of an upload. The connection passes data between a transport and a session. */
import { createDeadline } from '../../async/deadline.ts';
import { errorText, TailcastError } from '../../errors.ts';
import type { Ack } from '../../wire/recorder-api/ack.ts';
import type { Continuation } from '../../wire/recorder-api/upload-headers.ts';
import { createUploadBody, type UploadBody } from './upload-body.ts';
import type { AttachmentEvents, UploadOrigin, UploadSession } from './upload-session.ts';

/** Callbacks to the transport of an upload. */
export interface UploadEvents extends Omit<AttachmentEvents, 'durable' | 'released'> {
  /** Called when more bytes of the session are durable. */
  durable(acknowledged: Ack): void;
}

/** One connection of an upload. */
export interface Upload {
  /** Durable body bytes of the complete session. */
  readonly durableBytes: number;
  /** Acknowledged bytes. For uploads of frames, this is the end of a frame, see `upload-body.ts`. */
  readonly acknowledged: Ack;
  /** Accepts body bytes. @returns false if the caller must wait for `drain`. After `failed`, bytes are dropped */
  push(chunk: Uint8Array): boolean;
  /**
   * Called at the end of the body. Resolves with true when all bytes are durable and the first attempt to store the
   * recording is over. Resolves with false after a failure, which `failed` has reported.
   */
  end(): Promise<boolean>;
  /**
   * Called when the connection is closed or the transport gives up. If `end` was called before, the uploader might not
   * have received the confirmation.
   */
  cut(reason: string): void;
}

/**
 * Passes a chunk of the body to the session. @returns false if the caller must wait for `drain`. @throws TailcastError
 */
export function pushInto(session: UploadSession, body: UploadBody, chunk: Uint8Array): boolean {
  const isContinued = session.push(body.lines(chunk));
  session.hold(body.heldBytes);
  // Acknowledge bytes of this chunk that are already durable, because an earlier connection sent them.
  body.durable(session.durable.bodyBytes);
  return isContinued;
}

/**
 * Returns an upload for an ended session whose last acknowledgement did not reach the uploader. The returned upload
 * only repeats the acknowledgement.
 */
export function knownUpload(bodyBytes: number, at: Continuation, events: UploadEvents): Upload {
  const body = createUploadBody(at, bodyBytes, (acknowledged) => events.durable(acknowledged));
  let refused = false;
  return {
    durableBytes: bodyBytes,
    get acknowledged() {
      return body.acknowledged(bodyBytes);
    },
    push(chunk) {
      if (refused) return true;
      try {
        body.lines(chunk);
        body.durable(bodyBytes);
      } catch (error) {
        refused = true;
        events.failed(asUploadFailure(error));
      }
      return true;
    },
    end: async () => !refused,
    cut: () => undefined,
  };
}

/** Calls `fail` if the header line of a session is not complete within `timeoutMs`. */
export function expectHeader(
  session: Pick<UploadSession, 'started'>,
  timeoutMs: number,
  fail: (error: TailcastError) => void,
): void {
  createDeadline(timeoutMs, () => {
    if (session.started !== undefined) return;
    const limit = timeoutMs < 1000 ? `${timeoutMs} ms` : `${timeoutMs / 1000} s`;
    fail(new TailcastError('UPLOAD_MALFORMED', `it sent no complete header line within ${limit}`));
  });
}

/** Converts an error. Unknown errors become `STORE_FAILED`. */
export function asUploadFailure(error: unknown): TailcastError {
  return error instanceof TailcastError
    ? error
    : new TailcastError('STORE_FAILED', errorText(error), { cause: error });
}

/**
 * Returns a key that identifies a session among the sessions of all uploading nodes. Sessions of different nodes have
 * different keys, even if the sessions have the same name.
 */
export function tokenOf({ nodeId, token }: UploadOrigin): string | undefined {
  return token === undefined ? undefined : JSON.stringify([nodeId, token]);
}
