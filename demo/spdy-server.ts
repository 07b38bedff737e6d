import { Readable, Writable, type Duplex } from 'node:stream';
import { createSpdyParser, encodeSpdyFrame, SPDY_GOAWAY, SPDY_RESET } from '../src/wire/spdy/frame.ts';
import type { SpdyDataPiece, SpdyEvent, SpdyFrame } from '../src/wire/spdy/frame.ts';
import { createHeaderDeflater, createHeaderInflater } from '../src/wire/spdy/headers.ts';

/** A stream that the client has opened. */
export interface ServedStream {
  readonly id: number;
  /** Headers of the stream, with names in lower case. Kubernetes uses `streamtype`, `port` and `requestid`. */
  readonly headers: ReadonlyMap<string, string>;
  /**
   * Data from the client. Ends when the client sends FIN. Read or resume this stream, because an unread stream blocks
   * the connection.
   */
  readonly input: Readable;
  /** Data for the client. `end()` sends FIN. Writes to a closed connection are ignored. */
  readonly output: Writable;
}

/** The server side of a SPDY/3.1 connection. */
export interface SpdyConnection {
  /** Resolves when the transport is closed. */
  readonly closed: Promise<void>;
  /** Sends pending data and GOAWAY, then closes the transport. */
  close(): void;
}

/** Maximum payload of a DATA frame that the server sends, in bytes. Go uses the same size. */
const MAX_SENT_PAYLOAD_BYTES = 32 * 1024;

/**
 * Serves SPDY/3.1 on `transport`: a socket after its 101 response, or a WebSocket tunnel. `onStream` is called for each
 * accepted stream of the client. Kubernetes uses SPDY without flow control, so an unread stream blocks the connection.
 * If `maxStreams` streams are open, further streams are rejected. A malformed frame closes the connection. Source:
 * draft-mbelshe-httpbis-spdy-00; github.com/moby/spdystream.
 */
export function serveSpdy(
  transport: Duplex,
  options: { readonly maxStreams: number; readonly onStream: (stream: ServedStream) => void },
): SpdyConnection {
  const parser = createSpdyParser();
  const inflater = createHeaderInflater();
  const send: Send = (frame, done = () => undefined) => {
    if (transport.destroyed || transport.writableEnded) done();
    else transport.write(encodeSpdyFrame(frame), done);
  };
  const streams = createStreamTable({ ...options, send, flow: createFlow(transport) });
  const close = (status: number = SPDY_GOAWAY.ok): void => {
    send({ kind: 'goaway', lastStreamId: streams.lastId(), status });
    if (!transport.writableEnded) transport.end();
  };
  const handle = (event: SpdyEvent): void => {
    switch (event.kind) {
      case 'synStream':
        streams.open(event, inflater.decode(event.block));
        return;
      case 'data':
        streams.deliver(event);
        return;
      case 'rstStream':
        streams.drop(event.streamId);
        return;
      case 'ping':
        if (event.id % 2 === 1) send(event);
        return;
      case 'synReply':
      case 'headers':
        inflater.decode(event.block);
        return;
      case 'goaway':
      case 'settings':
      case 'windowUpdate':
        return;
    }
  };

  transport.on('data', (chunk: Uint8Array) => {
    try {
      for (const event of parser.push(chunk)) handle(event);
    } catch {
      close(SPDY_GOAWAY.protocolError);
    }
  });
  // The client closes its side only after it has sent all of its data, so the connection is finished.
  transport.on('end', () => {
    close();
  });
  transport.on('error', () => undefined);
  const closed = new Promise<void>((resolve) => {
    transport.once('close', () => {
      streams.dropAll();
      resolve();
    });
  });
  return {
    closed,
    close: () => {
      close();
    },
  };
}

type Send = (frame: SpdyFrame, done?: () => void) => void;

/** Pauses the connection while the input of any stream is full. */
interface Flow {
  hold(input: Readable): void;
  release(input: Readable): void;
}

function createFlow(transport: Duplex): Flow {
  const full = new Set<Readable>();
  return {
    hold(input) {
      full.add(input);
      transport.pause();
    },
    release(input) {
      if (full.delete(input) && full.size === 0) transport.resume();
    },
  };
}

interface StreamTable {
  /** Returns the highest stream id of the client. */
  lastId(): number;
  open(event: Extract<SpdyEvent, { kind: 'synStream' }>, headers: ReadonlyMap<string, string>): void;
  deliver(piece: SpdyDataPiece): void;
  /** Handles a stream that the client has reset. */
  drop(streamId: number): void;
  dropAll(): void;
}

function createStreamTable(options: {
  readonly maxStreams: number;
  readonly onStream: (stream: ServedStream) => void;
  readonly send: Send;
  readonly flow: Flow;
}): StreamTable {
  const { send, flow } = options;
  const deflater = createHeaderDeflater();
  const streams = new Map<number, OpenStream>();
  let lastStreamId = 0;
  return {
    lastId: () => lastStreamId,
    open({ streamId, fin }, headers) {
      if (streamId <= lastStreamId || streamId % 2 === 0) {
        send({ kind: 'rstStream', streamId, status: SPDY_RESET.protocolError });
        return;
      }
      lastStreamId = streamId;
      for (const [id, stream] of streams) if (stream.finished()) streams.delete(id);
      if (streams.size >= options.maxStreams) {
        send({ kind: 'rstStream', streamId, status: SPDY_RESET.refusedStream });
        return;
      }
      const stream = createStream(streamId, headers, flow, send);
      streams.set(streamId, stream);
      send({ kind: 'synReply', streamId, fin: false, block: deflater.encode([]) });
      if (fin) stream.deliver({ payload: new Uint8Array(0), fin });
      options.onStream(stream);
    },
    deliver: (piece) => streams.get(piece.streamId)?.deliver(piece),
    drop(streamId) {
      streams.get(streamId)?.drop();
      streams.delete(streamId);
    },
    dropAll() {
      for (const stream of streams.values()) stream.drop();
    },
  };
}

interface OpenStream extends ServedStream {
  deliver(piece: Pick<SpdyDataPiece, 'payload' | 'fin'>): void;
  drop(): void;
  finished(): boolean;
}

function createStream(id: number, headers: ReadonlyMap<string, string>, flow: Flow, send: Send): OpenStream {
  const input = new Readable({
    read() {
      flow.release(input);
    },
  });
  input.once('close', () => {
    flow.release(input);
  });
  const output = new Writable({
    highWaterMark: MAX_SENT_PAYLOAD_BYTES,
    write(chunk: Uint8Array, _encoding, done) {
      sendInParts(
        chunk,
        (payload, sent) => {
          send({ kind: 'data', streamId: id, fin: false, payload }, sent);
        },
        done,
      );
    },
    final(done) {
      finSent = true;
      send({ kind: 'data', streamId: id, fin: true, payload: new Uint8Array(0) }, done);
    },
  });
  let ended = false;
  let finSent = false;
  return {
    id,
    headers,
    input,
    output,
    deliver({ payload, fin }) {
      if (input.destroyed || ended) return;
      if (payload.byteLength > 0 && !input.push(Uint8Array.from(payload))) flow.hold(input);
      if (fin) {
        ended = true;
        input.push(null);
      }
    },
    drop() {
      input.destroy();
      output.destroy();
    },
    finished: () => (ended || input.destroyed) && (finSent || output.destroyed),
  };
}

/** Sends `chunk` in parts of at most 32 KiB. `done` is called after the last part. */
export function sendInParts(
  chunk: Uint8Array,
  send: (part: Uint8Array, sent: () => void) => void,
  done: () => void,
): void {
  for (let offset = 0; offset < chunk.byteLength; offset += MAX_SENT_PAYLOAD_BYTES) {
    const end = offset + MAX_SENT_PAYLOAD_BYTES;
    send(chunk.subarray(offset, end), end >= chunk.byteLength ? done : () => undefined);
  }
  if (chunk.byteLength === 0) done();
}
