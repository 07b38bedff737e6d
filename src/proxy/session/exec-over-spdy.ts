/**
 * Translates between WebSocket and SPDY for exec and attach (ADR 28). For the relay and the taps, this stream looks
 * like the server end of a WebSocket with a `channel.k8s.io` subprotocol. The API server sends and receives SPDY/3.1.
 *
 * ```
 *   client frames ──► scanner ──► DATA on stdin, resize; FIN for a v5 close signal; PING ──► API server
 *   server frames ◄── messages ◄── DATA on stdout, stderr ◄─────────── parser, reader ◄───── API server
 *                 ◄── status and close frame, once both are proved
 * ```
 *
 * The gateway opens the SPDY streams one after another and waits for each SYN_REPLY. It sends early bytes of the client
 * together with the last SYN_STREAM, because the process starts when that frame arrives. If the gateway sent a terminal
 * size later, a short process could exit before it gets the size. The gateway holds the exit status back until the end
 * of the output is proved (`recording/spdy-server-reader.ts`). Then it sends the exit status and a close frame. Without
 * proof it sends no close frame, and the taps report an unproved end.
 *
 * In addition to the stream buffers, a session holds the output of one turn of the event loop (at most
 * `MAX_TOGETHER_BYTES` plus one chunk) and one chunk of the client. If the client or the API server violates
 * the protocol, the client gets the output before the violation, and then this stream fails.
 */
import { createDeadline, type Deadline } from '../../async/deadline.ts';
import { Duplex } from 'node:stream';
import { asError } from '../../errors.ts';
import { BLOCK_BYTES, lendBlock } from '../../memory/block-pool.ts';
import { copyBytes } from '../../memory/copy-bytes.ts';
import { give, isPooled } from '../../memory/read-buffers.ts';
import { passedThrough } from '../../memory/stream-garbage.ts';
import {
  createSpdyServerReader,
  createSpdyStreams,
  type SpdyRole,
  type SpdyServerReader,
} from '../../recording/spdy-server-reader.ts';
import { asViolation, STATUS_SINCE, violation } from '../../recording/tap.ts';
import { CHANNEL, type ChannelVersion } from '../../wire/remotecommand/channel.ts';
import { translateStatus } from '../../wire/remotecommand/exit-status.ts';
import { createSpdyParser, encodeSpdyFrame, type SpdyEvent } from '../../wire/spdy/frame.ts';
import { createHeaderDeflater } from '../../wire/spdy/headers.ts';
import {
  CLOSE_NORMAL,
  createWebSocketScanner,
  frameBytes,
  OPCODE,
  unmaskPiece,
  writeServerHeader,
  type WebSocketPiece,
} from '../../wire/websocket/frame.ts';
import type { ExecOptions } from '../../kube/exec-options.ts';

export interface ExecOverSpdyOptions extends Pick<ExecOptions, 'stdin' | 'stdout' | 'stderr' | 'tty'> {
  /** The connection after the 101 response. */
  readonly socket: Duplex;
  /** Bytes that arrived with the 101 response. */
  readonly head: Uint8Array;
  /**
   * Channel-protocol version of the client (`v5.channel.k8s.io` is version 5). The API server gets at most version 4,
   * see {@link spdyVersionOf}.
   */
  readonly version: ChannelVersion;
  /** Maximum time until the API server has sent a SYN_REPLY for all streams. */
  readonly openTimeoutMs?: number;
}

/**
 * If the client uses this version of the channel protocol, the gateway rewrites the exit status, as the API server does
 * over WebSocket. With an earlier version, the client gets the exit status exactly as the kubelet sent it.
 */
const TRANSLATED_VERSION = 5;
/** Default of `openTimeoutMs`: the kubelet's own limit (`DefaultStreamCreationTimeout`). */
const OPEN_TIMEOUT_MS = 30_000;
/** First channel-protocol version with a stream for terminal sizes. */
const RESIZE_SINCE = 3;
const MAX_VERSION_OVER_SPDY = 4;
const NO_BYTES = new Uint8Array(0);
/** First channel-protocol version in which the client can close stdin (close signal). */
const CLOSE_SINCE = 5;
/**
 * Maximum number of bytes, including frame headers, that are joined in one turn of the event loop: about one block of
 * memory.
 */
const MAX_TOGETHER_BYTES = 48 * 1024;
/** Minimum size of a piece that is written into a pooled block, in bytes. */
const LEAST_LENT_BYTES = 16 * 1024;
/** Largest SPDY ping id of a client: the largest odd number of 32 bits. */
const MAX_PING_ID = 0xffff_ffff;

type Done = (error?: Error | null) => void;

interface Message {
  readonly opcode: number;
  /** Channel of a binary message; undefined for a control frame. */
  readonly channel?: number;
  /** Pieces of the payload, in order. */
  readonly pieces: Uint8Array[];
  length: number;
}

/**
 * Returns the streams that the server expects. The server refuses other streams, and does not start the session until
 * all expected streams are open.
 */
export function rolesOf({
  stdin,
  stdout,
  stderr,
  tty,
  version,
}: Pick<ExecOverSpdyOptions, 'stdin' | 'stdout' | 'stderr' | 'tty' | 'version'>): readonly SpdyRole[] {
  return [
    'error',
    ...(stdin ? (['stdin'] as const) : []),
    ...(stdout ? (['stdout'] as const) : []),
    ...(stderr ? (['stderr'] as const) : []),
    ...(tty && version >= RESIZE_SINCE ? (['resize'] as const) : []),
  ];
}

/**
 * Returns the channel-protocol version to request over SPDY if the WebSocket client uses `version`. Version 5 exists
 * only over WebSocket. It adds only the close signal, which SPDY does not need, because SPDY can close a single stream.
 */
export function spdyVersionOf(version: ChannelVersion): Exclude<ChannelVersion, 5> {
  return version === 5 ? MAX_VERSION_OVER_SPDY : version;
}

/** Duplex stream of WebSocket frames on top of a SPDY connection. */
export class ExecOverSpdy extends Duplex {
  readonly #socket: Duplex;
  readonly #version: ChannelVersion;
  readonly #roles: readonly SpdyRole[];
  readonly #parser = createSpdyParser();
  readonly #deflater = createHeaderDeflater();
  readonly #streams = createSpdyStreams();
  readonly #reader: SpdyServerReader;
  readonly #scanner = createWebSocketScanner({ expectMask: true });
  readonly #late: Deadline;
  /** Number of streams for which a SYN_STREAM was sent. */
  #opened = 0;
  /** True if the API server has sent a SYN_REPLY for all streams. */
  #ready = false;
  /** First chunk of the client, if it arrived before the last stream was requested. */
  #early: { readonly chunk: Uint8Array; readonly done: Done } | undefined;
  /** Callback of the current write; called when the socket to the API server accepts more bytes. */
  #writing: Done | undefined;
  /** Channel of the current client message. */
  #channel: number | undefined;
  /**
   * Payload of the client's last ping. The gateway returns it in a pong when the API server answers the SPDY
   * ping.
   */
  #ping: Uint8Array = NO_BYTES;
  #nextPingId = 1;
  /** Id of the unanswered SPDY ping. */
  #pingId: number | undefined;
  /** Streams that get no more data, because the gateway has closed them or the server has reset them. */
  readonly #silent = new Set<number>();
  #arrivals = 0;
  /** Queued messages for the client, and the number of received bytes that contained them. */
  #messages: Message[] = [];
  #gathered = 0;
  /**
   * Chunks from the API server that contain the queued messages. They return to the pool after the messages are
   * copied.
   */
  readonly #chunks: Uint8Array[] = [];
  /** True if the client got a message in this turn of the event loop. */
  #turnAsked = false;
  /** True after the client has sent its close frame. */
  #left = false;
  /** True if the client will get no more bytes. */
  #over = false;
  #failure: Error | undefined;

  constructor(options: ExecOverSpdyOptions) {
    // `autoDestroy` is off, so that the last bytes of the client are still sent; this stream is destroyed
    // after its socket closed.
    super({ allowHalfOpen: false, autoDestroy: false });
    this.#socket = options.socket;
    this.#version = options.version;
    this.#roles = rolesOf(options);
    this.#reader = createSpdyServerReader(
      { output: (role, bytes) => this.#say(CHANNEL[role], bytes), exit: () => {} },
      this.#streams,
      spdyVersionOf(options.version),
    );
    const { openTimeoutMs = OPEN_TIMEOUT_MS } = options;
    this.#late = createDeadline(openTimeoutMs, () =>
      this.#fail(new Error(`the streams were not answered in ${openTimeoutMs} ms`)),
    );
    this.#listen();
    // Over WebSocket, the API server also sends an empty stdout message at the start of a session.
    this.#say(CHANNEL.stdout, NO_BYTES, true);
    this.#openNext();
    if (options.head.length > 0) this.#arrive(options.head);
    else this.#flush();
  }

  override _read(): void {
    this.#socket.resume();
  }

  override _write(chunk: Uint8Array, _encoding: BufferEncoding, done: Done): void {
    if (this.#opened < this.#roles.length) this.#early = { chunk, done };
    else this.#pass(chunk, done);
  }

  override _final(done: Done): void {
    // The callback gets no error, because the listener of the socket handles its errors.
    this.#socket.end(() => done());
  }

  override _destroy(error: Error | null, done: Done): void {
    this.#late.clear();
    this.#socket.destroy();
    done(error);
  }

  #listen(): void {
    const socket = this.#socket;
    socket.on('data', (chunk: Uint8Array) => this.#arrive(chunk));
    socket.on('drain', () => {
      const done = this.#writing;
      this.#writing = undefined;
      done?.();
    });
    socket.on('error', (error: Error) => {
      if (!this.#over) this.#failure = error;
    });
    const end = (): void => {
      this.#serverEnded();
      if (socket.closed && this.readableEnded) this.destroy(this.#failure);
    };
    socket.once('end', end);
    socket.once('close', end);
    // The relay may not have read all output from this stream yet, so the stream is destroyed only after its `end`
    // event.
    this.once('end', end);
  }

  /** Ends the session after a protocol violation of one side. */
  #fail(error: Error): void {
    if (this.#over) return;
    this.#failure = error;
    this.#over = true;
    this.#flush();
    this.push(null);
    this.#socket.destroy();
  }

  /** Reads a chunk of the API server. */
  #arrive(chunk: Uint8Array): void {
    if (this.#over) return;
    this.#arrivals += 1;
    if (!isPooled(chunk)) passedThrough(chunk.length);
    try {
      for (const event of this.#parser.push(chunk)) this.#see(event);
    } catch (error) {
      this.#fail(asError(asViolation(error)));
      return;
    }
    // The queued messages refer to the memory of the chunk, so it cannot be reused yet.
    if (this.#messages.length > 0) this.#chunks.push(chunk);
    else give(chunk);
    if (this.#reader.exited && this.#reader.incompleteReason() === undefined) this.#conclude();
    else this.#flushInTurn(chunk.length);
  }

  /**
   * Delivers the first output in a turn of the event loop immediately, because it may be an echo. Further
   * output of that turn is delivered together at the end of the turn.
   */
  #flushInTurn(arrived: number): void {
    if (this.#messages.length === 0) return;
    this.#gathered += arrived;
    if (!this.#turnAsked || this.#gathered >= MAX_TOGETHER_BYTES) this.#flush();
    if (this.#turnAsked) return;
    this.#turnAsked = true;
    setImmediate(() => {
      this.#turnAsked = false;
      this.#flush();
    });
  }

  #see(event: SpdyEvent): void {
    this.#reader.see(event);
    switch (event.kind) {
      case 'synReply':
        return this.#answered(event.streamId);
      case 'rstStream':
        return this.#wasReset(event.streamId);
      case 'ping':
        // As the SPDY client, the gateway uses odd ids, so a ping with an odd id is the response to a ping of the
        // gateway.
        if (event.id % 2 === 1) this.#wasAnswered(event.id);
        else this.#answerPing(event.id);
        return;
      case 'data':
      case 'goaway':
      case 'headers':
      case 'settings':
      case 'synStream':
      case 'windowUpdate':
        return;
    }
  }

  #openNext(): void {
    const role = this.#roles[this.#opened];
    if (role === undefined) {
      this.#ready = true;
      this.#late.clear();
      return;
    }
    const streamId = this.#opened * 2 + 1;
    this.#opened += 1;
    this.#streams.open(streamId, role);
    const socket = this.#socket;
    socket.cork();
    socket.write(
      encodeSpdyFrame({
        kind: 'synStream',
        streamId,
        associatedTo: 0,
        priority: 0,
        fin: false,
        unidirectional: false,
        block: this.#deflater.encode([['streamtype', role]]),
      }),
    );
    const early = this.#early;
    if (early !== undefined && this.#opened === this.#roles.length) {
      this.#early = undefined;
      this.#pass(early.chunk, early.done);
    }
    socket.uncork();
  }

  #answered(streamId: number): void {
    // Only the newest stream can still wait for a SYN_REPLY, because the gateway opens a stream only after the
    // SYN_REPLY of the previous stream.
    if (this.#ready || streamId !== this.#opened * 2 - 1) throw violation('a SPDY stream was answered twice');
    this.#openNext();
  }

  #wasReset(streamId: number): void {
    this.#silent.add(streamId);
    const refused = !this.#ready && streamId === this.#opened * 2 - 1;
    if (refused) throw violation('the API server refused a SPDY stream');
  }

  #wasAnswered(pingId: number): void {
    if (pingId !== this.#pingId) return;
    this.#pingId = undefined;
    this.#messages.push(controlFrame(OPCODE.pong, this.#ping));
  }

  /**
   * Answers a ping of the server, but only if no output is in flight. If the server has closed its connection, one more
   * byte from the gateway would make the server's kernel discard output that is in flight. Kubernetes servers send no
   * pings.
   */
  #answerPing(id: number): void {
    const before = this.#arrivals;
    setImmediate(() =>
      setImmediate(() => {
        const quiet = this.#arrivals === before && !this.#socket.isPaused();
        if (quiet && this.#mayWrite) this.#socket.write(encodeSpdyFrame({ kind: 'ping', id }));
      }),
    );
  }

  #serverEnded(): void {
    if (this.#over) return;
    // Up to channel-protocol version 3, the reader treats an empty error stream as success.
    const proved = this.#ready && this.#parser.atBoundary && this.#reader.incompleteReason() === undefined;
    if (proved) return this.#conclude();
    this.#over = true;
    this.#flush();
    this.push(null);
  }

  /** Delivers the exit status after the end of the output was proved. */
  #conclude(): void {
    const { bytes } = this.#reader.status;
    const isTranslated = this.#version === TRANSLATED_VERSION && bytes.length > 0;
    const status = isTranslated ? translateStatus(bytes) : bytes;
    if (status.length > 0 || spdyVersionOf(this.#version) >= STATUS_SINCE) this.#say(CHANNEL.error, status);
    this.#leave();
  }

  /** Ends the stream to the client with a close frame. */
  #leave(): void {
    this.#over = true;
    this.#messages.push(controlFrame(OPCODE.close, CLOSE_NORMAL));
    this.#flush();
    this.push(null);
    this.#socket.resume();
  }

  #say(channel: number, bytes: Uint8Array, empty = false): void {
    if (bytes.length === 0 && !empty) return;
    const last = this.#messages.at(-1);
    if (last?.channel !== channel) {
      this.#messages.push({ opcode: OPCODE.binary, channel, pieces: [bytes], length: bytes.length });
      return;
    }
    last.pieces.push(bytes);
    last.length += bytes.length;
  }

  /** Delivers all queued messages in one chunk. */
  #flush(): void {
    const messages = this.#messages;
    if (messages.length === 0) return;
    this.#messages = [];
    this.#gathered = 0;
    const all = encodeMessages(messages);
    for (const chunk of this.#chunks.splice(0)) give(chunk);
    if (!this.push(all) && !this.#over) this.#socket.pause();
  }

  get #mayWrite(): boolean {
    return !this.#over && !this.#socket.destroyed && !this.#socket.writableEnded;
  }

  /** Translates a chunk of the client for the API server. */
  #pass(chunk: Uint8Array, done: Done): void {
    const frames: Uint8Array[] = [];
    try {
      for (const piece of this.#scanner.push(chunk)) this.#seeClient(piece, frames);
    } catch (error) {
      this.#fail(asError(asViolation(error)));
    }
    const room = this.#mayWrite ? this.#write(frames) : true;
    if (this.#left && !this.#over) this.#leave();
    if (room) done();
    else this.#writing = done;
  }

  #write(frames: readonly Uint8Array[]): boolean {
    const socket = this.#socket;
    socket.cork();
    for (const frame of frames) socket.write(frame);
    socket.uncork();
    return !socket.writableNeedDrain;
  }

  #seeClient(piece: WebSocketPiece, frames: Uint8Array[]): void {
    if (this.#left) return;
    if (piece.rsv !== 0) throw violation('a WebSocket frame is compressed or extended');
    if (piece.opcode === OPCODE.ping) return this.#seePing(piece, frames);
    if (piece.opcode === OPCODE.pong) return;
    if (piece.opcode === OPCODE.close) {
      this.#left = piece.last;
      return;
    }
    // Fragments are refused, because the API server treats each frame as a complete message.
    if (!piece.fin || piece.opcode === OPCODE.continuation) throw violation('a client message is fragmented');
    if (piece.length === 0) throw violation('an empty message names no channel');
    let bytes = unmaskPiece(piece);
    if (piece.first) {
      this.#channel = bytes[0];
      bytes = bytes.subarray(1);
    }
    if (bytes.length > 0) this.#hand(bytes, frames);
  }

  /** Translates data of the current message, whose channel is `#channel`. */
  #hand(bytes: Uint8Array, frames: Uint8Array[]): void {
    if (this.#channel === CHANNEL.stdin) return this.#send('stdin', bytes, false, frames);
    if (this.#channel === CHANNEL.resize) return this.#send('resize', bytes, false, frames);
    const isEnd = this.#channel === CHANNEL.close && this.#version >= CLOSE_SINCE;
    if (isEnd && bytes[0] === CHANNEL.stdin) this.#send('stdin', NO_BYTES, true, frames);
  }

  #send(role: 'stdin' | 'resize', payload: Uint8Array, fin: boolean, frames: Uint8Array[]): void {
    const streamId = this.#streams.idOf(role);
    if (streamId === undefined || this.#silent.has(streamId)) return;
    if (fin) this.#silent.add(streamId);
    frames.push(encodeSpdyFrame({ kind: 'data', streamId, fin, payload }));
  }

  /**
   * Translates a ping of the client to a SPDY ping. The relay answers most pings itself, and forwards one
   * only after a long silence of the API server.
   */
  #seePing(piece: WebSocketPiece, frames: Uint8Array[]): void {
    const bytes = unmaskPiece(piece);
    this.#ping = piece.first ? bytes.slice() : Buffer.concat([this.#ping, bytes]);
    if (!piece.last) return;
    this.#pingId = this.#nextPingId;
    this.#nextPingId = this.#pingId >= MAX_PING_ID ? 1 : this.#pingId + 2;
    frames.push(encodeSpdyFrame({ kind: 'ping', id: this.#pingId }));
  }
}

function controlFrame(opcode: number, bytes: Uint8Array): Message {
  return { opcode, pieces: [bytes], length: bytes.length };
}

/**
 * Encodes complete, unmasked server frames into one buffer. This is the only copy of the output that the translation
 * makes.
 */
function encodeMessages(messages: readonly Message[]): Uint8Array {
  const bytesOf = ({ channel, length }: Message): number => length + (channel === undefined ? 0 : 1);
  const bytes = messages.reduce((sum, message) => sum + frameBytes(bytesOf(message)), 0);
  const fitting = bytes >= LEAST_LENT_BYTES && bytes <= BLOCK_BYTES;
  const all = fitting ? lendBlock(bytes) : Buffer.allocUnsafe(bytes);
  let at = 0;
  for (const message of messages) {
    at = writeServerHeader(all, at, { opcode: message.opcode, payloadBytes: bytesOf(message) });
    if (message.channel !== undefined) at = all.writeUInt8(message.channel, at);
    for (const piece of message.pieces) {
      copyBytes(piece, all, at);
      at += piece.length;
    }
  }
  return all;
}
