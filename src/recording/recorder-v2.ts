/**
 * Upload to a recorder of the reference, as asciicast lines over cleartext HTTP/2 with prior knowledge.
 * `HEAD /v2/record` determines whether the recorder supports v2. `POST /v2/record` on the same connection
 * carries the recording, and its response is a stream of acknowledgements (reference recorder protocol,
 * sections 1.4 and 1.5). A header of the HEAD response identifies a tailcast recorder. Such a recorder gets
 * the upload over an upgraded connection instead (`recorder-upgrade.ts`).
 */
import { connect, constants, type ClientHttp2Session, type ClientHttp2Stream } from 'node:http2';
import type { Duplex } from 'node:stream';
import { offersUpgrade, type HeaderFields } from '../wire/recorder-api/upload-headers.ts';
import { withTimeout } from '../async/with-timeout.ts';
import type { RecorderConnection } from './recorder-connection.ts';
import { createUploadAnswer } from './upload-answer.ts';

/** Thrown if the recorder does not support v2. Another protocol may work on a new connection. */
export class NotV2Error extends Error {
  override readonly name = 'NotV2Error';
}

export interface V2Options {
  readonly address: string;
  readonly probeTimeoutMs: number;
  readonly postTimeoutMs: number;
  readonly ackWindowMs: number;
}

/** Open connection to a recorder that supports v2. */
export interface ProbedRecorder {
  /** True if the recorder accepts uploads over an upgraded connection. */
  readonly upgrades: boolean;
  /**
   * Opens the upload. Must be called at most once.
   * @throws Error if the recorder refuses the upload or `signal` aborts
   */
  post(signal: AbortSignal): Promise<RecorderConnection>;
  /** Closes the connection without an upload. */
  close(): void;
}

/**
 * Determines whether the recorder supports v2. Owns `socket` from then on.
 * @throws NotV2Error if the recorder does not support v2; Error if `signal` aborts
 */
export async function probeV2(
  socket: Duplex,
  options: V2Options,
  signal: AbortSignal,
): Promise<ProbedRecorder> {
  const session = connect(`http://${options.address}`, {
    createConnection: () => socket,
    settings: { enablePush: false },
  });
  // The stream reports the same failures. Without this listener, Node.js would throw the error.
  session.on('error', () => {});
  const close = (): void => {
    session.destroy();
    socket.destroy();
  };
  try {
    const probe = await ask(session, 'HEAD', options.probeTimeoutMs, signal).catch((error: unknown) => {
      signal.throwIfAborted();
      throw new NotV2Error('no response to HEAD /v2/record over HTTP/2', { cause: error });
    });
    if (probe.status !== 200) throw new NotV2Error(`HEAD /v2/record answered ${probe.status}`);
    probe.stream.close();
    return {
      upgrades: offersUpgrade(probe.fields),
      close,
      async post(given) {
        try {
          const upload = await ask(session, 'POST', options.postTimeoutMs, given);
          if (upload.status !== 200) throw new Error(`POST /v2/record answered ${upload.status}`);
          return createConnection(session, upload.stream, options);
        } catch (error) {
          close();
          throw error;
        }
      },
    };
  } catch (error) {
    close();
    throw error;
  }
}

interface Answer {
  readonly status: number;
  readonly fields: HeaderFields;
  readonly stream: ClientHttp2Stream;
}

async function ask(
  session: ClientHttp2Session,
  method: 'HEAD' | 'POST',
  timeoutMs: number,
  signal: AbortSignal,
): Promise<Answer> {
  return withTimeout(timeoutMs, `${method} /v2/record`, signal, async () => {
    const answer = Promise.withResolvers<Answer>();
    // `request` throws if the HTTP/2 session is already closed.
    const stream = session.request(
      { ':method': method, ':path': '/v2/record' },
      { endStream: method === 'HEAD' },
    );
    stream.once('response', (response) => {
      answer.resolve({ status: response[':status'] ?? 0, fields: response, stream });
    });
    stream.on('error', answer.reject);
    stream.once('close', () => answer.reject(new Error('the recorder closed the connection')));
    return answer.promise;
  });
}

function createConnection(
  session: ClientHttp2Session,
  stream: ClientHttp2Stream,
  options: V2Options,
): RecorderConnection {
  let unwritten = 0;
  const answer = createUploadAnswer({
    ackWindowMs: options.ackWindowMs,
    frames: false,
    // Destroys the HTTP/2 session without calling `stream.close(CANCEL)` before. Otherwise a recorder that runs on
    // Node.js would see the end of the body before the reset.
    dispose: () => session.destroy(),
    close: () => session.close(),
  });
  stream.on('data', (chunk: Buffer) => answer.push(chunk));
  stream.once('end', () => {
    if (stream.rstCode === constants.NGHTTP2_NO_ERROR) answer.end();
  });
  stream.on('error', (error) => answer.fail(error));
  const lost = (): void => answer.fail(new Error('the connection to the recorder was closed'));
  stream.once('close', lost);
  session.once('close', lost);
  return {
    address: options.address,
    protocol: 'v2',
    annotations: false,
    resumable: false,
    frames: false,
    attach: (events) => answer.attach(events),
    send(bytes) {
      // NOTE: if the last piece of a write is empty, Node.js releases the other pieces before it has sent them.
      if (answer.ended || bytes.length === 0) return;
      unwritten += bytes.length;
      stream.write(bytes, (error) => {
        if (!(error instanceof Error)) unwritten -= bytes.length;
      });
    },
    get unwritten() {
      return unwritten;
    },
    finish() {
      answer.finishing();
      stream.end();
    },
    destroy: () => answer.silence(),
  };
}
