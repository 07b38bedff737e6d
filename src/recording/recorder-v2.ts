/**
 * Upload over HTTP/2 cleartext with prior knowledge: `HEAD /v2/record` asks whether the recorder speaks it, `POST
 * /v2/record` on the same connection carries the recording, and its response is a stream of acknowledgements
 * (reference recorder protocol, sections 1.4 and 1.5).
 */
import { connect, constants, type ClientHttp2Session, type ClientHttp2Stream } from 'node:http2';
import type { Duplex } from 'node:stream';
import {
  decodeOffers,
  encodeUploadFields,
  type RecorderOffers,
} from '../wire/recorder-api/upload-headers.ts';
import type { FramePlace } from '../wire/recorder-api/frame-lines.ts';
import { sendAsLines } from './frames-as-lines.ts';
import { within } from '../async/within.ts';
import type { RecorderConnection, UploadIntent } from './recorder-connection.ts';
import { createUploadAnswer } from './upload-answer.ts';

/** The recorder answers, but does not speak v2: another protocol may work on a new connection. */
export class NotV2Error extends Error {
  override readonly name = 'NotV2Error';
}

export interface V2Options {
  readonly address: string;
  readonly probeTimeoutMs: number;
  readonly postTimeoutMs: number;
  readonly ackWindowMs: number;
  /** Somebody waits for each byte to be durable. */
  readonly waits: boolean;
  /** Whether frames may be sent to a recorder that takes them. */
  readonly frames: boolean;
  readonly intent: UploadIntent;
}

/** A recorder that speaks v2, on a connection that can carry an upload. */
export interface ProbedRecorder {
  readonly offers: RecorderOffers;
  /**
   * Opens the upload, once.
   * @throws Error when it is refused or `signal` aborts
   */
  post(signal: AbortSignal): Promise<RecorderConnection>;
  /** No upload comes. */
  close(): void;
}

/**
 * Asks on `socket`, which it owns from now on, what the recorder can do.
 * @throws NotV2Error when it does not speak v2; Error when `signal` aborts
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
  // Every failure also reaches the stream in use; without a listener Node would throw it.
  session.on('error', () => {});
  const close = (): void => {
    session.destroy();
    socket.destroy();
  };
  try {
    const probe = await ask(session, 'HEAD', {}, options.probeTimeoutMs, signal).catch((error: unknown) => {
      signal.throwIfAborted();
      throw new NotV2Error('no answer to HEAD /v2/record over HTTP/2', { cause: error });
    });
    if (probe.status !== 200) throw new NotV2Error(`HEAD /v2/record answered ${probe.status}`);
    probe.stream.close();
    return {
      offers: probe,
      close,
      async post(given) {
        try {
          return await post(session, options, probe, given);
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

async function post(
  session: ClientHttp2Session,
  options: V2Options,
  offers: RecorderOffers,
  signal: AbortSignal,
): Promise<RecorderConnection> {
  const { preamble } = options.intent;
  const { frames, from } = formOf(options, offers);
  const headers = fieldsOf(options, frames);
  const upload = await ask(session, 'POST', headers, options.postTimeoutMs, signal);
  if (upload.status !== 200) throw new Error(`POST /v2/record answered ${upload.status}`);
  if (preamble.length > 0) upload.stream.write(preamble);
  const connection = createConnection(session, upload.stream, options, offers, frames !== undefined);
  return from === undefined ? connection : sendAsLines(connection, from);
}

/** What the upload says of itself, with `frames` where it is sent as such. */
export function fieldsOf(
  { intent, waits }: Pick<V2Options, 'intent' | 'waits'>,
  frames: number | undefined,
): Record<string, string> {
  const { sessionId, offset, part, preamble, neighbours } = intent;
  return encodeUploadFields({
    session: sessionId,
    at: {
      offset,
      number: part,
      preambleBytes: preamble.length,
      ...(frames === undefined ? {} : { frames }),
    },
    waits,
    ...(neighbours === undefined ? {} : { neighbours }),
  });
}

/**
 * What is sent: `frames`, from this byte of them on, or lines, which are made of frames where the session is kept as such: `from` there.
 * @throws Error when the recorder cannot go on with the session
 */
function formOf(
  { frames: allowed, intent }: Pick<V2Options, 'frames' | 'intent'>,
  offers: RecorderOffers,
): { readonly frames?: number; readonly from?: FramePlace } {
  const { offset, part, frames } = intent;
  const isFirst = part === 1;
  if (!isFirst && !offers.resumable) throw new Error('the recorder does not continue sessions of others');
  if (frames === undefined) return {};
  if (allowed && offers.frames && offers.annotations && offers.resumable) return { frames };
  // nothing of it is there yet: it is kept as lines from now on
  if (isFirst) return {};
  if (!offers.annotations) throw new Error('the recorder takes no annotations');
  return { from: { lines: offset, frames } };
}

interface Answer extends RecorderOffers {
  readonly status: number;
  readonly stream: ClientHttp2Stream;
}

async function ask(
  session: ClientHttp2Session,
  method: 'HEAD' | 'POST',
  headers: Readonly<Record<string, string>>,
  timeoutMs: number,
  signal: AbortSignal,
): Promise<Answer> {
  return within(timeoutMs, `${method} /v2/record`, signal, async () => {
    const answer = Promise.withResolvers<Answer>();
    // A session that is already dead throws here.
    const stream = session.request(
      { ':method': method, ':path': '/v2/record', ...headers },
      { endStream: method === 'HEAD' },
    );
    stream.once('response', (response) => {
      answer.resolve({
        status: response[':status'] ?? 0,
        ...decodeOffers(response),
        stream,
      });
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
  { annotations, resumable }: Pick<RecorderOffers, 'annotations' | 'resumable'>,
  frames: boolean,
): RecorderConnection {
  let unwritten = 0;
  const answer = createUploadAnswer({
    ackWindowMs: options.ackWindowMs,
    frames,
    // Not `stream.close(CANCEL)` first: a Node recorder would see the end of the body before it sees the reset.
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
    annotations,
    resumable,
    frames,
    attach: (events) => answer.attach(events),
    send(bytes) {
      // NOTE: Node frees what was written with an empty last piece before it is sent
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
