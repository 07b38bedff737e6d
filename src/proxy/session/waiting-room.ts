/**
 * The API server's end of a moderated session before the API server gets the request: it answers the client's streams
 * and pings, shows a line of text, and keeps the input. Then it becomes the connection to the API server.
 *
 * ```
 *   client bytes ──► side.read ──► kept, at most MAX_KEPT_BYTES ──┐ enter
 *   client ◄── replies, text                                      ├──────► API server
 *          ◄── side.filter, without the replies that it sent ◄────┘
 * ```
 *
 * The command starts when the API server gets the streams, so they must not reach it earlier. If the kept input is at
 * its limit, the client waits.
 */
import { Duplex } from 'node:stream';
import { asError } from '../../errors.ts';
import type { ExecOptions } from '../../kube/exec-options.ts';
import { createSpdyStreams } from '../../recording/spdy-server-reader.ts';
import { inflateSpdyBlock } from '../../recording/spdy-inflate.ts';
import type { StreamProtocol } from '../../recording/stream-plan.ts';
import { CHANNEL, type ChannelVersion } from '../../wire/remotecommand/channel.ts';
import { createSpdyParser, encodeSpdyFrame, type SpdyEvent } from '../../wire/spdy/frame.ts';
import { createHeaderDeflater, createHeaderInflater } from '../../wire/spdy/headers.ts';
import {
  createWebSocketScanner,
  encodeWebSocketFrame,
  OPCODE,
  unmaskPiece,
} from '../../wire/websocket/frame.ts';
import { rolesOf } from './exec-over-spdy.ts';

export interface WaitingRoomOptions {
  readonly protocol: StreamProtocol;
  readonly version: ChannelVersion;
  readonly exec: Pick<ExecOptions, 'stdin' | 'stdout' | 'stderr' | 'tty'>;
  /** Line for the user. It is shown on the terminal, or on stderr. */
  readonly text: string;
  /** Called when the user presses Ctrl-C or Ctrl-D in a terminal, or the client says that it leaves. */
  readonly left: () => void;
}

/** Parsed chunk of the client. */
interface Seen {
  /** Answers for the client. */
  readonly replies: readonly Uint8Array[];
  readonly hasLeft: boolean;
}

/** The parts that depend on the protocol. */
interface Side {
  /** True if the client has opened all streams. */
  readonly isReady: boolean;
  /** @throws WireError, TailcastError `SESSION_VIOLATED` */
  read(chunk: Uint8Array): Seen;
  /** Returns output of the gateway. */
  say(stream: 'stdout' | 'stderr', text: Uint8Array): Uint8Array;
  /** Returns output of the API server for the client. */
  filter(chunk: Uint8Array): Uint8Array;
}

const MAX_KEPT_BYTES = 64 * 1024;
const CTRL_C = 0x03;
const CTRL_D = 0x04;

type Done = (error?: Error | null) => void;

export class WaitingRoom extends Duplex {
  readonly #options: WaitingRoomOptions;
  readonly #side: Side;
  readonly #ready = Promise.withResolvers<void>();
  #kept: Uint8Array[] = [];
  #keptBytes = 0;
  /** Callback of the write that waits for `enter` or for the API server. */
  #writing: Done | undefined;
  #inner: Duplex | undefined;
  #hasSpoken = false;

  constructor(options: WaitingRoomOptions) {
    super({ allowHalfOpen: false, autoDestroy: false });
    this.#options = options;
    const { protocol, exec } = options;
    this.#side = protocol === 'spdy' ? createSpdySide(options) : createWebSocketSide(exec);
    if (this.#side.isReady) this.#speak();
  }

  /** Resolves when the client has opened all streams. */
  get ready(): Promise<void> {
    return this.#ready.promise;
  }

  /** Continues with a connection of the API server, once. @param head bytes that arrived with its 101 response */
  enter(inner: Duplex, head: Uint8Array): void {
    if (this.destroyed) {
      inner.destroy();
      return;
    }
    this.#inner = inner;
    inner.on('data', (chunk: Uint8Array) => this.#arrive(chunk));
    inner.on('drain', () => this.#written());
    inner.on('error', (error: Error) => this.destroy(error));
    inner.once('end', () => this.push(null));
    inner.once('close', () => this.#innerClosed());
    if (head.length > 0) this.#arrive(head);
    const kept = this.#kept.splice(0);
    inner.cork();
    for (const chunk of kept) inner.write(chunk);
    inner.uncork();
    if (!inner.writableNeedDrain) this.#written();
  }

  override _read(): void {
    this.#inner?.resume();
  }

  override _write(chunk: Uint8Array, _encoding: BufferEncoding, done: Done): void {
    const inner = this.#inner;
    if (inner !== undefined) {
      if (inner.destroyed || inner.write(chunk)) done();
      else this.#writing = done;
      return;
    }
    try {
      const { replies, hasLeft } = this.#side.read(chunk);
      for (const reply of replies) this.push(reply);
      if (hasLeft) this.#options.left();
    } catch (error) {
      done(asError(error));
      this.destroy(asError(error));
      return;
    }
    if (this.#side.isReady && !this.#hasSpoken) this.#speak();
    this.#kept.push(chunk.slice());
    this.#keptBytes += chunk.length;
    if (this.#keptBytes <= MAX_KEPT_BYTES) done();
    else this.#writing = done;
  }

  override _final(done: Done): void {
    if (this.#inner === undefined) this.push(null);
    else this.#inner.end();
    done();
  }

  override _destroy(error: Error | null, done: Done): void {
    this.#kept = [];
    this.#inner?.destroy();
    done(error);
  }

  #speak(): void {
    this.#hasSpoken = true;
    const { exec, text } = this.#options;
    // A program may read the stdout of a session without a terminal.
    const stream = exec.tty ? 'stdout' : 'stderr';
    if (exec[stream]) this.push(this.#side.say(stream, Buffer.from(`${text}\r\n`)));
    this.#ready.resolve();
  }

  #arrive(chunk: Uint8Array): void {
    try {
      const bytes = this.#side.filter(chunk);
      if (bytes.length > 0 && !this.push(bytes)) this.#inner?.pause();
    } catch (error) {
      this.destroy(asError(error));
    }
  }

  #written(): void {
    const done = this.#writing;
    this.#writing = undefined;
    done?.();
  }

  #innerClosed(): void {
    if (!this.readableEnded) this.push(null);
    this.#written();
    if (this.readableEnded) this.destroy();
    else this.once('end', () => this.destroy());
  }
}

function createWebSocketSide({ tty }: Pick<ExecOptions, 'tty'>): Side {
  const scanner = createWebSocketScanner({ expectMask: true });
  let channel: number | undefined;
  let ping: Uint8Array = new Uint8Array(0);
  return {
    isReady: true,
    read(chunk) {
      const replies: Uint8Array[] = [];
      let hasLeft = false;
      for (const piece of scanner.push(chunk)) {
        const bytes = unmaskPiece(piece);
        if (piece.opcode === OPCODE.ping) {
          ping = piece.first ? bytes : Buffer.concat([ping, bytes]);
          if (piece.last)
            replies.push(encodeWebSocketFrame({ opcode: OPCODE.pong, fin: true, payload: ping }));
        } else if (piece.opcode === OPCODE.close) {
          hasLeft = true;
        } else if (piece.opcode !== OPCODE.pong) {
          if (piece.first) channel = bytes[0];
          const data = piece.first ? bytes.subarray(1) : bytes;
          hasLeft ||= tty && channel === CHANNEL.stdin && cancels(data);
        }
      }
      return { replies, hasLeft };
    },
    say: (stream, text) =>
      encodeWebSocketFrame({
        opcode: OPCODE.binary,
        fin: true,
        payload: Buffer.concat([Uint8Array.of(CHANNEL[stream]), text]),
      }),
    filter: (chunk) => chunk,
  };
}

function createSpdySide({ exec, version }: Pick<WaitingRoomOptions, 'exec' | 'version'>): Side {
  const parser = createSpdyParser();
  const headers = createHeaderInflater(inflateSpdyBlock);
  const deflater = createHeaderDeflater();
  const streams = createSpdyStreams();
  const expected = rolesOf({ ...exec, version }).length;
  /** Streams that were answered here, whose answers of the API server are dropped. */
  const answered = new Set<number>();
  const server = createSpdyParser();
  return {
    get isReady() {
      return answered.size >= expected;
    },
    read(chunk) {
      const replies: Uint8Array[] = [];
      let hasLeft = false;
      for (const event of parser.push(chunk)) {
        if (event.kind === 'synStream') {
          const { streamId } = event;
          streams.open(streamId, headers.decode(event.block).get('streamtype'));
          answered.add(streamId);
          const block = deflater.encode([]);
          replies.push(encodeSpdyFrame({ kind: 'synReply', streamId, fin: false, block }));
        } else if (event.kind === 'ping' && event.id % 2 === 1) {
          replies.push(encodeSpdyFrame(event));
        } else if (event.kind === 'data') {
          const isTyped = exec.tty && streams.idOf('stdin') === event.streamId;
          hasLeft ||= isTyped && cancels(event.payload);
        } else if (event.kind === 'goaway') hasLeft = true;
      }
      return { replies, hasLeft };
    },
    say: (stream, payload) =>
      encodeSpdyFrame({ kind: 'data', streamId: streams.idOf(stream) ?? 0, fin: false, payload }),
    filter(chunk) {
      if (answered.size === 0 && server.atBoundary) return chunk;
      // a piece of a DATA frame becomes a frame
      const kept = server.push(chunk).filter((event) => !isDropped(event, answered));
      return Buffer.concat(kept.map(encodeSpdyFrame));
    },
  };
}

/** True for the reply of the API server to a stream that was answered already. */
function isDropped(event: SpdyEvent, answered: Set<number>): boolean {
  return event.kind === 'synReply' && answered.delete(event.streamId);
}

function cancels(typed: Uint8Array): boolean {
  return typed.includes(CTRL_C) || typed.includes(CTRL_D);
}
