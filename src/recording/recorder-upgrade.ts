/**
 * Upload over HTTP/1.1 that is upgraded for it: `GET /v2/record` on a connection of its own, and after the 101 both directions are
 * records (`wire/recorder-api/upload-record.ts`): frames to the recorder, acknowledgements from it. It costs both sides half of
 * the CPU of HTTP/2. Only recorders of ours know it.
 */
import { request, type IncomingMessage } from 'node:http';
import type { Duplex } from 'node:stream';
import { within } from '../async/within.ts';
import { encodeUploadFields } from '../wire/recorder-api/upload-headers.ts';
import {
  createRecordReader,
  encodeRecords,
  endOfRecords,
  MAX_ACK_RECORD_BYTES,
  MAX_UPLOAD_RECORD_BYTES,
  RECORD_PROTOCOL,
} from '../wire/recorder-api/upload-record.ts';
import type { RecorderConnection, UploadIntent } from './recorder-connection.ts';
import { createUploadAnswer } from './upload-answer.ts';

/** The recorder does not upgrade this connection: another protocol may work on a new one. */
export class NotUpgradedError extends Error {
  override readonly name = 'NotUpgradedError';
}

/** The recorder cannot take the upload now, over whichever protocol. */
export class UploadRefusedError extends Error {
  override readonly name = 'UploadRefusedError';
}

export interface UpgradeOptions {
  readonly address: string;
  /** How long the recorder may take to answer. */
  readonly timeoutMs: number;
  readonly ackWindowMs: number;
  /** Somebody waits for each byte to be durable. */
  readonly waits: boolean;
  readonly intent: UploadIntent;
}

/**
 * What a recorder answers that cannot take the upload now. Other statuses may come from one that does not know the upgrade, or from what
 * stands in front of it.
 */
const REFUSALS: ReadonlySet<number> = new Set([409, 429, 500, 503, 507]);

/**
 * Opens an upload on `socket`, which it owns from now on.
 * @throws NotUpgradedError when there is no such upgrade, or no answer; UploadRefusedError; Error when `signal` aborts
 */
export async function openUpgraded(
  socket: Duplex,
  options: UpgradeOptions,
  signal: AbortSignal,
): Promise<RecorderConnection> {
  try {
    const { response, head } = await upgrade(socket, options, signal).catch((error: unknown) => {
      signal.throwIfAborted();
      throw new NotUpgradedError('no answer to GET /v2/record', { cause: error });
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

/** Header fields of the upload. */
function fieldsOf({ intent, waits }: UpgradeOptions): Record<string, string> {
  const { sessionId: session, offset, frames, part: number, preamble, neighbours } = intent;
  return encodeUploadFields({
    session,
    at: { offset, frames, number, preambleBytes: preamble.length },
    waits,
    ...(neighbours === undefined ? {} : { neighbours }),
  });
}

interface UpgradeAnswer {
  readonly response: IncomingMessage;
  /** What came behind it. */
  readonly head: Buffer;
}

async function upgrade(socket: Duplex, options: UpgradeOptions, signal: AbortSignal): Promise<UpgradeAnswer> {
  return within(options.timeoutMs, 'GET /v2/record', signal, async () => {
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
  // an event that came before this function listened
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

interface RecordWriter {
  /** Bytes that have not left this process. */
  readonly unwritten: number;
  write(bytes: Uint8Array): void;
  /** The proper end. */
  end(): void;
  /** What waits is dropped. */
  stop(): void;
}

/** What is written in one turn of the event loop leaves together, as one record unless it is too long. Nothing is copied. */
function createRecordWriter(socket: Duplex): RecordWriter {
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
    get unwritten() {
      return unwritten;
    },
    write(bytes) {
      // NOTE: Node frees what was written with an empty last piece before it is sent
      if (bytes.length === 0) return;
      if (turnBytes === 0) process.nextTick(flush);
      turn.push(bytes);
      turnBytes += bytes.length;
      unwritten += bytes.length;
    },
    end() {
      flush();
      if (!socket.destroyed) socket.write(endOfRecords());
    },
    stop() {
      turn = [];
      turnBytes = 0;
    },
  };
}
