/**
 * Transports for uploads with acknowledgements: an HTTP/2 stream, or an upgraded HTTP/1.1 connection
 * (`length-prefixed.ts`).
 */
import { STATUS_CODES } from 'node:http';
import { constants, type ServerHttp2Stream } from 'node:http2';
import type { Duplex } from 'node:stream';
import { destroyAfter } from '../../async/deadline.ts';
import { errorText, TailcastError } from '../../errors.ts';
import { joinSmallChunks } from '../../memory/join-chunks.ts';
import { passedThrough } from '../../memory/stream-garbage.ts';
import {
  createRecordReader,
  encodeRecords,
  endOfRecords,
  MAX_ACK_RECORD_BYTES,
  MAX_UPLOAD_RECORD_BYTES,
  RECORD_PROTOCOL,
} from '../../wire/recorder-api/length-prefixed.ts';
import type { UploadReceiver, UploadTransport } from './upload-handler.ts';
import { shareReads } from './shared-reads.ts';

/**
 * Time after the response during which further body bytes are read and dropped, in milliseconds. Some clients discard
 * the response if a reset follows immediately.
 */
const LINGER_MS = 1000;
/** Maximum time that a client has to read a response after the recorder has ended it, in milliseconds. */
const UNREAD_MS = 10_000;

/** `POST /v2/record` over HTTP/2. */
export function overHttp2(stream: ServerHttp2Stream): UploadTransport {
  joinSmallChunks(stream);
  const accept = (fields: Readonly<Record<string, string>>): void => {
    if (!stream.headersSent) {
      stream.respond({ ':status': 200, 'content-type': 'application/json', ...fields });
    }
  };
  return {
    get open() {
      return !stream.destroyed && !stream.writableEnded;
    },
    accept,
    receive(events) {
      const finish = (): void => {
        if (!stream.aborted) events.end();
      };
      stream.on('data', (chunk: Buffer) => {
        passedThrough(chunk.length);
        events.data(chunk);
      });
      // NOTE: the client of Node.js ends the body before it resets a stream. Wait one turn of the event loop, because a
      // reset may follow immediately.
      stream.on('end', () => setImmediate(finish));
      // A request without a body ends before the listener is added, so finish immediately.
      if (stream.readableEnded) finish();
      stream.on('close', () => events.closed());
    },
    pause: () => void stream.pause(),
    resume: () => void stream.resume(),
    write: (acks) => stream.write(acks),
    onDrained: (drained) => void stream.on('drain', drained),
    end(acks) {
      accept({});
      stream.end(acks);
      drainBody(stream);
    },
  };
}

/**
 * Drops the rest of the body for a while after the complete response, and then resets the stream. If the client does
 * not read the response, the reset also discards the response.
 */
export function drainBody(stream: ServerHttp2Stream): void {
  stream.resume();
  const reset = (): void =>
    stream.close(stream.writableFinished ? constants.NGHTTP2_NO_ERROR : constants.NGHTTP2_CANCEL);
  // NOTE: `close` without an error code waits until the client has read the response.
  const linger = setTimeout(() => {
    if (stream.writableFinished) reset();
    else stream.once('finish', reset);
  }, LINGER_MS);
  const unread = setTimeout(reset, UNREAD_MS);
  stream.once('close', () => {
    clearTimeout(linger);
    clearTimeout(unread);
  });
}

/** Transport over an upgraded HTTP/1.1 connection. */
export interface UpgradedTransport extends UploadTransport {
  /** Rejects the upgrade. After the 101 response, this transport can only close the connection. */
  refuse(error: TailcastError, body: string): void;
}

/**
 * `GET /v2/record` with an upgrade to {@link RECORD_PROTOCOL}.
 * @param head bytes that arrived with the request. These bytes, and all further bytes before the 101 response, are part
 *   of the upload.
 */
export function overUpgrade(asked: Duplex, head: Uint8Array): UpgradedTransport {
  let socket = asked;
  let accepted = false;
  let whenDrained = (): void => undefined;
  asked.on('drain', () => whenDrained());
  const accept = (fields: Readonly<Record<string, string>>): void => {
    if (accepted) return;
    accepted = true;
    const upgraded = { connection: 'Upgrade', upgrade: RECORD_PROTOCOL };
    socket.write(answerHead(101, { ...upgraded, ...fields }));
  };
  const endWith = (bytes: Uint8Array | string): void => {
    socket.end(bytes);
    socket.resume();
    destroyAfter(socket, LINGER_MS);
  };
  return {
    get open() {
      return !socket.destroyed && !socket.writableEnded;
    },
    accept,
    receive(events) {
      const read = createReader(events);
      const reads = shareReads(asked, read);
      ({ socket } = reads);
      if (socket !== asked) socket.on('drain', () => whenDrained());
      socket.once('close', () => events.closed());
      // If the client closes the connection before the end of the records, the upload is interrupted. If the client
      // closes it later, the client does not wait for the confirmation.
      socket.once('end', () => socket.destroy());
      // Pass on the bytes that arrived early, in the same way as later chunks.
      for (const early of [head, reads.early]) if (early.length > 0) read(early);
    },
    pause: () => void socket.pause(),
    resume: () => void socket.resume(),
    write: (acks) => socket.write(recordOf(acks)),
    onDrained(drained) {
      whenDrained = drained;
    },
    end(acks, kept) {
      accept({});
      endWith(Buffer.concat([recordOf(acks), ...(kept ? [endOfRecords()] : [])]));
    },
    refuse(error, body) {
      if (accepted || socket.destroyed || socket.writableEnded) {
        socket.destroy();
        return;
      }
      const { status } = error.entry;
      const fields = {
        'content-type': 'application/json',
        'content-length': String(Buffer.byteLength(body)),
        connection: 'close',
      };
      endWith(`${answerHead(status, fields)}${body}`);
    },
  };
}

/** Passes the records in the chunks to `events`. */
function createReader(events: UploadReceiver): (chunk: Uint8Array) => void {
  const reader = createRecordReader(MAX_UPLOAD_RECORD_BYTES, (piece) => events.data(piece));
  let ended = false;
  let broken = false;
  const endRequest = (): void => {
    if (!reader.ended || ended) return;
    ended = true;
    events.end();
  };
  return (chunk) => {
    if (broken) return;
    try {
      reader.push(chunk);
    } catch (error) {
      broken = true;
      endRequest();
      events.broken(new TailcastError('UPLOAD_MALFORMED', errorText(error), { cause: error }));
      return;
    }
    endRequest();
  };
}

function recordOf(acks: string): Buffer {
  return Buffer.concat(encodeRecords([Buffer.from(acks)], MAX_ACK_RECORD_BYTES));
}

function answerHead(status: number, fields: Readonly<Record<string, string>>): string {
  const lines = Object.entries(fields).map(([name, value]) => `${name}: ${value}\r\n`);
  return `HTTP/1.1 ${status} ${STATUS_CODES[status] ?? ''}\r\n${lines.join('')}\r\n`;
}
