/**
 * Endpoints for uploaders, for HTTP/1.1 requests and HTTP/2 streams of Node.js.
 *
 * | request           | over | response                                                                              |
 * |-------------------|------|---------------------------------------------------------------------------------------|
 * | `HEAD /v2/record` | h2   | 200 with the supported upgrade                                                        |
 * | `POST /v2/record` | h2   | 200, then acks of durable bytes of lines; last ack and end when the upload is stored  |
 * | `GET /v2/record`  | h1   | 101 to `tailcast-record/1`, then acks of frames, in messages of `length-prefixed.ts` |
 * | `POST /record`    | h1   | `100 Continue`, 200 when the upload is stored                                         |
 * | `HEAD /v2/event`  | both | 200                                                                                   |
 * | `POST /v2/event`  | both | 200 when the event is durable                                                         |
 *
 * The recorder identifies the uploader first. To reject a request, the recorder sends an error status, so that the
 * uploader tries its next recorder. After the 200 or 101 response of `/v2/record`, the recorder reports errors in error
 * frames.
 *
 * The first line of an upload must be an asciicast header of at most 4 MiB. Further lines have at most `maxLineBytes`,
 * and the upload has at most `maxSessionBytes`. For uploads of frames, the limits apply to the lines that the frames
 * produce. Content that breaks these rules ends the upload with an error frame (status 400 or 413 for `POST /record`).
 * Complete lines before the error are kept.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { constants, type IncomingHttpHeaders, type ServerHttp2Stream } from 'node:http2';
import type { Socket } from 'node:net';
import type { Duplex, Readable } from 'node:stream';
import { TailcastError, errorText } from '../../errors.ts';
import { joinSmallChunks } from '../../memory/join-chunks.ts';
import { passedThrough } from '../../memory/stream-garbage.ts';
import type { Logger } from '../../observe/logger.ts';
import { createDeadline } from '../../async/deadline.ts';
import { createKeyedCounter, type KeyedCounter } from '../../keyed-counter.ts';
import {
  decodeUploadFields,
  FROM_START,
  UPGRADE_OFFER,
  type UploadFields,
} from '../../wire/recorder-api/upload-headers.ts';
import { GrowingBytes } from '../../wire/growing-bytes.ts';
import { RECORD_PROTOCOL } from '../../wire/recorder-api/length-prefixed.ts';
import { wrapEvent } from './api-events.ts';
import type { Ingest } from '../intake/ingest.ts';
import type { RecorderMetrics } from '../intake/recorder-metrics.ts';
import type { RecordingKey } from '../store/key.ts';
import { connectionPeer, type ConnectionPeer } from './connection-peer.ts';
import { takeRecording, type UploadTransport } from './upload-handler.ts';
import { drainBody, overHttp2, overUpgrade } from './upload-transports.ts';

/** Identity of an uploader. The identity comes from the tailnet, and never from the upload. */
export type UploaderIdentity =
  | { readonly kind: 'accepted'; readonly nodeId: string; readonly nodeName: string }
  | { readonly kind: 'refused'; readonly reason: string };

/** Identifies the peer of a connection. If the promise rejects, the uploader gets a 503 response. */
export type IdentifyUploader = (from: ConnectionPeer, signal: AbortSignal) => Promise<UploaderIdentity>;

export interface UploadOptions {
  readonly ingest: Ingest;
  /** Stores an event durably. @throws TailcastError `STORE_FAILED` */
  readonly putEvent: (key: RecordingKey, content: string) => Promise<void>;
  /** Returns the free bytes, or undefined if there is no limit. @throws TailcastError if the store is unusable */
  readonly freeBytes: () => Promise<number | undefined>;
  /**
   * Returns the free bytes of the spool. Events need no space in the store, because they stay in the spool while the
   * store is unavailable or full. @throws TailcastError if the spool is unusable
   */
  readonly freeSpoolBytes: () => Promise<number>;
  readonly identify: IdentifyUploader;
  readonly issueTime: () => string;
  readonly log: Logger;
  readonly metrics: RecorderMetrics;
  readonly maxEventBytes: number;
  /**
   * Maximum number of event bytes in memory. Above this number, events are rejected. Each tailnet node may use at most
   * half of the bytes that other nodes leave free.
   */
  readonly maxTotalEventBytes: number;
  /** Minimum free bytes for a new session or an event. */
  readonly minFreeBytes: number;
  readonly identifyTimeoutMs: number;
  /** Maximum time for the body of an event, in milliseconds. */
  readonly eventTimeoutMs: number;
  /** Maximum time between two ack frames, in milliseconds. */
  readonly idleAckMs: number;
}

/** Handlers for uploads. Each handler returns false for paths that do not belong to uploads. */
export type Uploads = ReturnType<typeof createUploads>;

/** Endpoints of a listener without uploads: requests to the paths of uploads get a 404 response. */
export const NO_UPLOADS: Uploads = { request: () => false, stream: () => false, upgrade: () => false };

interface UploadState extends UploadOptions {
  /** Number of bytes of events in memory for each stable node ID. */
  readonly eventBytes: KeyedCounter;
}
type Accepted = Extract<UploaderIdentity, { kind: 'accepted' }> & ConnectionPeer;

/** Creates the endpoints of a recorder. */
export function createUploads(given: UploadOptions) {
  const options: UploadState = { ...given, eventBytes: createKeyedCounter() };
  const refusalOf = (error: unknown, path: string): TailcastError => {
    const refusal = asRefusal(error);
    options.metrics.refused.inc({ code: refusal.code });
    options.log.warn({ code: refusal.code, reason: refusal.message, path }, 'request refused');
    return refusal;
  };
  return {
    /** `mustContinue`: true if the uploader waits for `100 Continue`. */
    request(request: IncomingMessage, response: ServerResponse, mustContinue: boolean): boolean {
      const path = pathOf(request.url);
      if (path !== '/record' && path !== '/v2/record' && path !== '/v2/event') return false;
      void answerRequest(options, path, request, response, mustContinue).catch((error: unknown) =>
        refuseRequest(request, response, refusalOf(error, path)),
      );
      return true;
    },
    stream(stream: ServerHttp2Stream, headers: IncomingHttpHeaders): boolean {
      const path = pathOf(headers[':path']);
      if (path !== '/v2/record' && path !== '/v2/event') return false;
      void answerStream(options, path, stream, headers).catch((error: unknown) =>
        refuseStream(stream, refusalOf(error, path), headers[':method'] === 'HEAD'),
      );
      return true;
    },
    /** @param socket must already have a listener for errors */
    upgrade(request: IncomingMessage, socket: Duplex, head: Buffer): boolean {
      const path = pathOf(request.url);
      if (path !== '/v2/record') return false;
      const transport = overUpgrade(socket, head);
      void answerUpgrade(options, request, socket, transport).catch((error: unknown) => {
        const refusal = refusalOf(error, path);
        transport.refuse(refusal, refusalBody(refusal));
      });
      return true;
    },
  };
}

async function answerRequest(
  options: UploadState,
  path: string,
  request: IncomingMessage,
  response: ServerResponse,
  mustContinue: boolean,
): Promise<void> {
  const closed = new AbortController();
  response.once('close', () => closed.abort());
  refuseBrowsers(request.headers);
  const uploader = await identify(options, request.socket, closed.signal);
  if (path === '/v2/event') {
    requireMethod(request.method, 'HEAD', 'POST');
    if (request.method === 'HEAD') {
      response.writeHead(200).end();
      return;
    }
    if (mustContinue) response.writeContinue();
    await takeEvent(options, uploader, request, request.headers);
    // Close the connection, because uploaders open one connection per event and do not close it.
    response.writeHead(200, { connection: 'close', 'content-length': '0' }).end();
    return;
  }
  if (path === '/v2/record')
    throw new TailcastError('UPLOAD_MALFORMED', '/v2/record is served over HTTP/2 or an upgrade');
  requireMethod(request.method, 'POST');
  await requireSpace(options.freeBytes, options);
  await takeV1(options, uploader, request, response, mustContinue);
}

/**
 * Rejects requests of browsers, which are never gateways. Otherwise, any web page could make a browser in this network
 * upload a forged recording.
 *
 * @throws TailcastError `UPLOAD_REFUSED`
 */
function refuseBrowsers({ origin, 'sec-fetch-site': site }: IncomingHttpHeaders): void {
  if (origin !== undefined || site !== undefined)
    throw new TailcastError('UPLOAD_REFUSED', 'the request comes from a browser');
}

async function answerStream(
  options: UploadState,
  path: string,
  stream: ServerHttp2Stream,
  headers: IncomingHttpHeaders,
): Promise<void> {
  const closed = new AbortController();
  stream.once('close', () => closed.abort());
  // Without this listener, an error of the stream would stop the process. The `close` event follows and aborts the
  // work.
  stream.on('error', () => undefined);
  const method = headers[':method'];
  refuseBrowsers(headers);
  requireMethod(method, 'HEAD', 'POST');
  const uploader = await identify(options, stream.session?.socket, closed.signal);
  if (path === '/v2/event') {
    if (method === 'POST') await takeEvent(options, uploader, stream, headers);
    respond(stream, { ':status': 200 }, undefined);
    return;
  }
  await requireSpace(options.freeBytes, options);
  if (method === 'HEAD') respond(stream, { ':status': 200, ...UPGRADE_OFFER }, undefined);
  else await takeRecording(options, uploader, overHttp2(stream));
}

/** Handles an upload on a dedicated connection. */
async function answerUpgrade(
  options: UploadState,
  request: IncomingMessage,
  socket: Duplex,
  transport: UploadTransport,
): Promise<void> {
  const closed = new AbortController();
  socket.once('close', () => closed.abort());
  const uploader = await identify(options, request.socket, closed.signal);
  requireMethod(request.method, 'GET');
  const { headers } = request;
  const protocols = (headers.upgrade ?? '').split(',').map((name) => name.trim());
  if (!protocols.includes(RECORD_PROTOCOL)) {
    throw new TailcastError('UPLOAD_MALFORMED', `this path supports only the upgrade to ${RECORD_PROTOCOL}`);
  }
  if (headers['content-length'] !== undefined || headers['transfer-encoding'] !== undefined) {
    throw new TailcastError('UPLOAD_MALFORMED', 'a request for an upgrade has no body');
  }
  await requireSpace(options.freeBytes, options);
  await takeRecording(options, uploader, transport, readFields(headers));
}

/** Handles an upload over `POST /record`. The uploader gets only one response, at the end. */
async function takeV1(
  options: UploadOptions,
  uploader: Accepted,
  request: IncomingMessage,
  response: ServerResponse,
  mustContinue: boolean,
): Promise<void> {
  const failure = Promise.withResolvers<never>();
  failure.promise.catch(() => undefined);
  joinSmallChunks(request);
  const upload = await options.ingest.begin({ ...uploader, protocol: 'v1', token: undefined }, FROM_START, {
    waits: false,
    durable: () => undefined,
    drain: () => request.resume(),
    failed(error) {
      options.metrics.uploadsFailed.inc({ code: error.code });
      failure.reject(error);
    },
  });
  const kept = Promise.withResolvers<boolean>();
  request.on('data', (chunk: Buffer) => {
    passedThrough(chunk.length);
    options.metrics.receivedBytes.inc(chunk.length);
    if (!upload.push(chunk)) request.pause();
  });
  request.on('end', () => kept.resolve(upload.end()));
  request.on('close', () => {
    if (!request.complete) upload.cut('the connection was lost');
  });
  request.on('error', () => undefined);
  if (mustContinue) response.writeContinue();
  if (!(await Promise.race([kept.promise, failure.promise]))) throw new TailcastError('STORE_FAILED');
  response.writeHead(200, { 'content-length': '0' }).end();
}

/** Reads an event and makes it durable. */
async function takeEvent(
  options: UploadState,
  uploader: Accepted,
  body: Readable,
  headers: IncomingHttpHeaders,
): Promise<void> {
  const { eventBytes, eventTimeoutMs, maxEventBytes, maxTotalEventBytes } = options;
  const tooLong = new TailcastError('UPLOAD_TOO_LARGE', 'the event is too long');
  if (Number(headers['content-length'] ?? 0) > maxEventBytes) throw tooLong;
  // An uploader may send chunks of one byte, so the chunks are copied.
  const content = new GrowingBytes();
  const { nodeId, nodeName } = uploader;
  let release = (): void => undefined;
  const deadline = createDeadline(eventTimeoutMs, () => {
    body.destroy(
      new TailcastError('UPLOAD_MALFORMED', `the event has no end after ${eventTimeoutMs / 1000} s`),
    );
  });
  try {
    for await (const chunk of body) {
      if (!(chunk instanceof Buffer)) continue;
      const bytes = content.length + chunk.length;
      if (bytes > maxEventBytes) throw tooLong;
      if (!eventBytes.hasShare(nodeId, maxTotalEventBytes))
        throw new TailcastError('RECORDER_BUSY', `too many events of ${nodeName} at a time`);
      release();
      release = eventBytes.take(nodeId, bytes);
      content.bytes(chunk);
    }
    deadline.clear();
    await requireSpace(options.freeSpoolBytes, options);
    const key = { nodeId, time: options.issueTime() };
    const node = { node: nodeName, nodeId };
    await options.putEvent(key, wrapEvent(content.all, node, key));
    options.metrics.events.inc();
  } finally {
    deadline.clear();
    release();
  }
}

async function identify(
  options: UploadState,
  socket: Socket | undefined,
  closed: AbortSignal,
): Promise<Accepted> {
  const from = connectionPeer(socket ?? {});
  const signal = AbortSignal.any([closed, AbortSignal.timeout(options.identifyTimeoutMs)]);
  let identity: UploaderIdentity;
  try {
    identity = await options.identify(from, signal);
  } catch (error) {
    throw new TailcastError('IDENTITY_UNAVAILABLE', errorText(error), { cause: error });
  }
  if (identity.kind === 'refused') throw new TailcastError('UPLOAD_REFUSED', identity.reason);
  if (identity.nodeId === '') throw new TailcastError('UPLOAD_REFUSED', 'the uploader has no node id');
  return { ...identity, ...from };
}

async function requireSpace(
  freeBytes: UploadOptions['freeBytes'],
  { minFreeBytes }: Pick<UploadOptions, 'minFreeBytes'>,
): Promise<void> {
  const free = await freeBytes();
  if (free !== undefined && free < minFreeBytes) throw new TailcastError('STORE_FULL');
}

function requireMethod(method: string | undefined, ...allowed: readonly string[]): void {
  if (method === undefined || !allowed.includes(method)) throw new TailcastError('METHOD_REFUSED');
}

function readFields(headers: IncomingHttpHeaders): UploadFields {
  try {
    return decodeUploadFields(headers);
  } catch (error) {
    throw new TailcastError('UPLOAD_MALFORMED', errorText(error), { cause: error });
  }
}

function pathOf(target: string | undefined): string {
  const query = target?.indexOf('?') ?? -1;
  return query < 0 ? (target ?? '') : (target ?? '').slice(0, query);
}

function asRefusal(error: unknown): TailcastError {
  return error instanceof TailcastError ? error : new TailcastError('INTERNAL', undefined, { cause: error });
}

function refusalBody(error: TailcastError): string {
  return `${JSON.stringify({ code: error.code, message: error.message })}\n`;
}

function refuseRequest(request: IncomingMessage, response: ServerResponse, error: TailcastError): void {
  if (response.headersSent || response.destroyed) {
    response.destroy();
    return;
  }
  response.writeHead(error.entry.status, { 'content-type': 'application/json', connection: 'close' });
  response.end(request.method === 'HEAD' ? undefined : refusalBody(error));
  // Read and drop the rest of the body, because a reset could discard the response.
  request.resume();
}

function refuseStream(stream: ServerHttp2Stream, error: TailcastError, head: boolean): void {
  if (stream.headersSent) stream.close(constants.NGHTTP2_INTERNAL_ERROR);
  else {
    const headers = { ':status': error.entry.status, 'content-type': 'application/json' };
    respond(stream, headers, head ? undefined : refusalBody(error));
  }
}

/**
 * Rejects HTTP/2 requests that do not belong to uploads. Only uploads support HTTP/2: browsers use HTTP/2 only over
 * TLS, so the page and its API use HTTP/1.1.
 */
export function answerUnserved(stream: ServerHttp2Stream): void {
  stream.on('error', () => undefined);
  refuseStream(stream, new TailcastError('RECORDING_UNKNOWN', 'served over HTTP/1.1 only'), false);
}

/** Sends a complete response. The rest of the request body is dropped. */
function respond(
  stream: ServerHttp2Stream,
  headers: Record<string, string | number>,
  body: string | undefined,
): void {
  if (stream.destroyed) return;
  stream.respond(headers, { endStream: body === undefined });
  if (body !== undefined) stream.end(body);
  drainBody(stream);
}
