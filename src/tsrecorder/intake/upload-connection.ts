/** One connection's part of an upload, between its transport and the session that it brings. */
import { createDeadline } from '../../async/deadline.ts';
import { errorText, TailcastError } from '../../errors.ts';
import type { Ack } from '../../wire/recorder-api/ack.ts';
import type { Continuation } from '../../wire/recorder-api/upload-headers.ts';
import { createUploadBody, type UploadBody } from './upload-body.ts';
import type { AttachmentEvents, UploadOrigin, UploadSession } from './upload-session.ts';

/** What the transport of an upload is told. */
export interface UploadEvents extends Omit<AttachmentEvents, 'durable' | 'released'> {
  /** So much of the session is durable now. */
  durable(acknowledged: Ack): void;
}

/** One connection's part of an upload. */
export interface Upload {
  /** Durable body bytes of the whole session. */
  readonly durableBytes: number;
  /** What is acknowledged of them: of frames up to a place that this connection knows in both counts. */
  readonly acknowledged: Ack;
  /** Takes body bytes. False: wait for `drain`. After `failed` it drops them. */
  push(chunk: Uint8Array): boolean;
  /**
   * The body has ended. Resolves with true when all is durable and the store has been tried once, with false when that
   * failed and `failed` has been told why.
   */
  end(): Promise<boolean>;
  /** The connection is gone, or the transport gives up. After `end`: nobody may hear what it resolves with. */
  cut(reason: string): void;
}

/** Brings a piece of the body into its session. @returns false: wait for `drain` @throws TailcastError */
export function pushInto(session: UploadSession, body: UploadBody, chunk: Uint8Array): boolean {
  const goesOn = session.push(body.lines(chunk));
  // it may have been so before the chunk came
  body.durable(session.durable.bodyBytes);
  return goesOn;
}

/** A session that has ended and of which the uploader has not heard: there is nothing more to do than to say so. */
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

/** Calls `fail` if the header line of a session is not complete in `timeoutMs`. */
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

/** Whatever else is thrown is of the store. */
export function asUploadFailure(error: unknown): TailcastError {
  return error instanceof TailcastError
    ? error
    : new TailcastError('STORE_FAILED', errorText(error), { cause: error });
}

/** The name of a session among all nodes: two nodes that name the same session have two sessions. */
export function tokenOf({ nodeId, token }: UploadOrigin): string | undefined {
  return token === undefined ? undefined : JSON.stringify([nodeId, token]);
}
