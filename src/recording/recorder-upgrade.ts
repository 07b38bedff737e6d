/**
 * Upload over an upgraded HTTP/1.1 connection: `GET /v2/record`. After the 101 response, both directions carry
 * length-prefixed messages (`wire/recorder-api/length-prefixed.ts`): frames to the recorder, acknowledgements from the
 * recorder. Gateway and recorder need half as much CPU time as with HTTP/2. Only tailcast recorders support this
 * protocol.
 */
import { request, type IncomingMessage } from 'node:http';
import type { Duplex } from 'node:stream';
import { withTimeout } from '../async/with-timeout.ts';
import { encodeUploadFields } from '../wire/recorder-api/upload-headers.ts';
import {
  createRecordReader,
  encodeRecords,
  endOfRecords,
  MAX_ACK_RECORD_BYTES,
  MAX_UPLOAD_RECORD_BYTES,
  RECORD_PROTOCOL,
} from '../wire/recorder-api/length-prefixed.ts';
import type { RecorderConnection, UploadIntent } from './recorder-connection.ts';
import { createUploadAnswer } from './upload-answer.ts';

/** Thrown if the recorder does not upgrade the connection. Another protocol may work on a new connection. */
export class NotUpgradedError extends Error {
  override readonly name = 'NotUpgradedError';
}

/** Thrown if the recorder temporarily refuses uploads. It then refuses every upload protocol. */
export class UploadRefusedError extends Error {
  override readonly name = 'UploadRefusedError';
}

export interface UpgradeOptions {
  readonly address: string;
  /** Timeout of the response. */
  readonly timeoutMs: number;
  readonly ackWindowMs: number;
  /** True if the user sees output only after it is durable. */
  readonly waits: boolean;
  readonly intent: UploadIntent;
}

/**
 * Statuses with which a recorder temporarily refuses an upload. Other statuses may come from a recorder that
 * does not support upgrades, or from a proxy in front of it.
 */
const REFUSALS: ReadonlySet<number> = new Set([409, 429, 500, 503, 507]);

/**
 * Opens an upload on `socket`, and owns the socket from then on.
 * @throws NotUpgradedError if the recorder does not upgrade or respond; UploadRefusedError; Error if `signal` aborts
 */
export async function openUpgraded(
  socket: Duplex,
  options: UpgradeOptions,
  signal: AbortSignal,
): Promise<RecorderConnection> {
  try {
    const { response, head } = await upgrade(socket, options, signal).catch((error: unknown) => {
      signal.throwIfAborted();
      throw new NotUpgradedError('no response to GET /v2/record', { cause: error });
    });
    const { statusCode: status = 0, headers } = response;
    if (REFUSALS.has(status)) throw new UploadRefusedError(`GET /v2/record answered ${status}`);
    if (status !== 101 || headers.upgrade !== RECORD_PROTOCOL) {
      throw new NotUpgradedError(`GET /v2/record answered ${status}`);
    }
    if (head.length > 0) socket.unshift(head);
    return createConnection(socket, options);
  } catch (error) {
    socket.destroy();
    throw error;
  }
}

/** Returns the headers of the upload. */
function fieldsOf({ intent, waits }: UpgradeOptions): Record<string, string> {
  const { sessionId: session, offset, frames, part: number, preamble, neighbours, orders } = intent;
  return encodeUploadFields({
    session,
    at: { offset, frames, number, preambleBytes: preamble.length },
    waits,
    ...(orders === undefined ? {} : { orders }),
    ...(neighbours === undefined ? {} : { neighbours }),
  });
}

interface UpgradeAnswer {
  readonly response: IncomingMessage;
  /** Bytes that follow the response head and arrived together with it. */
  readonly head: Buffer;
}

async function upgrade(socket: Duplex, options: UpgradeOptions, signal: AbortSignal): Promise<UpgradeAnswer> {
  return withTimeout(options.timeoutMs, 'GET /v2/record', signal, async () => {
    const answer = Promise.withResolvers<UpgradeAnswer>();
    const asked = request({
      method: 'GET',
      path: '/v2/record',
      headers: {
        host: options.address,
        connection: 'Upgrade',
        upgrade: RECORD_PROTOCOL,
        ...fieldsOf(options),
      },
      createConnection: () => socket,
    });
    asked.once('upgrade', (response, _socket, head) => answer.resolve({ response, head }));
    asked.once('response', (response) => answer.resolve({ response, head: Buffer.alloc(0) }));
    asked.on('error', answer.reject);
    asked.once('close', () => answer.reject(new Error('the recorder closed the connection')));
    asked.end();
    return answer.promise;
  });
}

function createConnection(
  socket: Duplex,
  { address, ackWindowMs, intent }: UpgradeOptions,
): RecorderConnection {
  const writer = createRecordWriter(socket);
  const dispose = (): void => {
    writer.stop();
    socket.destroy();
  };
  const answer = createUploadAnswer({ ackWindowMs, frames: true, dispose, close: dispose });
  const reader = createRecordReader(MAX_ACK_RECORD_BYTES, (piece) => answer.push(piece));
  const lost = (): void => answer.fail(new Error('the connection to the recorder was closed'));
  socket.on('error', (error) => answer.fail(error));
  socket.once('end', lost);
  socket.once('close', lost);
  // The socket may have closed before the listeners were added.
  if (socket.destroyed) lost();
  if (intent.preamble.length > 0) writer.write(intent.preamble);
  return {
    address,
    protocol: 'v2',
    annotations: true,
    resumable: true,
    frames: true,
    attach(events) {
      answer.attach(events);
      socket.on('data', (chunk: Buffer) => {
        if (answer.ended) return;
        try {
          reader.push(chunk);
        } catch (error) {
          answer.fail(new Error('the recorder sent records that cannot be read', { cause: error }));
        }
        if (reader.ended) answer.end();
      });
    },
    send(bytes) {
      if (!answer.ended) writer.write(bytes);
    },
    get unwritten() {
      return writer.unwritten;
    },
    finish() {
      answer.finishing();
      writer.end();
    },
    destroy: () => answer.silence(),
  };
}

/**
 * Joins the writes of one turn of the event loop into one message, or into several messages if the writes exceed the
 * maximum length of a message. Copies nothing.
 */
function createRecordWriter(socket: Duplex) {
  let unwritten = 0;
  let turn: Uint8Array[] = [];
  let turnBytes = 0;
  const flush = (): void => {
    if (turnBytes === 0) return;
    const bytes = turnBytes;
    const parts = encodeRecords(turn, MAX_UPLOAD_RECORD_BYTES);
    turn = [];
    turnBytes = 0;
    socket.cork();
    for (const [at, part] of parts.entries()) {
      if (at < parts.length - 1) socket.write(part);
      else {
        socket.write(part, (error) => {
          if (!(error instanceof Error)) unwritten -= bytes;
        });
      }
    }
    socket.uncork();
  };
  return {
    /** Number of bytes that have not left this process. */
    get unwritten(): number {
      return unwritten;
    },
    write(bytes: Uint8Array): void {
      // NOTE: if the last piece of a write is empty, Node.js releases the other pieces before it has sent them.
      if (bytes.length === 0) return;
      if (turnBytes === 0) process.nextTick(flush);
      turn.push(bytes);
      turnBytes += bytes.length;
      unwritten += bytes.length;
    },
    /** Writes the end message of the upload. */
    end(): void {
      flush();
      if (!socket.destroyed) socket.write(endOfRecords());
    },
    /** Drops the queued bytes. */
    stop(): void {
      turn = [];
      turnBytes = 0;
    },
  };
}
