/**
 * Acts in place of the API server while a session cannot start, because it needs a reason from the user, a moderator,
 * or both. Accepts the client's streams, answers pings, shows a line of text, and keeps the input. After the wait, it
 * relays between the client and the API server.
 *
 * ```
 *   client bytes ──► side.read ──► kept, at most MAX_KEPT_BYTES ──┐ enter
 *   client ◄── replies, text                                      ├──────► API server
 *          ◄── side.filter, without the replies that it sent ◄────┘
 * ```
 *
 * The streams must not reach the API server during the wait, because the API server would start the command. When the
 * kept input reaches its limit, the gateway stops reading from the client.
 */
import { Duplex } from 'node:stream';
import { asError } from '../../errors.ts';
import type { ExecOptions } from '../../kube/exec-options.ts';
import { createSpdyStreams } from '../../recording/spdy-server-reader.ts';
import type { StreamProtocol } from '../../recording/stream-plan.ts';
import { NO_BYTES } from '../../recording/tap.ts';
import { CHANNEL, encodeServerMessage, type ChannelVersion } from '../../wire/remotecommand/channel.ts';
import { createSpdyParser, encodeSpdyFrame, type SpdyEvent } from '../../wire/spdy/frame.ts';
import { createHeaderDeflater, createHeaderInflater, EXEC_HEADER_LIMITS } from '../../wire/spdy/headers.ts';
import {
  createWebSocketScanner,
  encodeWebSocketFrame,
  OPCODE,
  unmaskPiece,
} from '../../wire/websocket/frame.ts';
import { rolesOf } from './exec-over-spdy.ts';
import { ReasonPrompt } from './reason-prompt.ts';

export interface WaitingRoomOptions {
  readonly protocol: StreamProtocol;
  readonly version: ChannelVersion;
  readonly exec: Pick<ExecOptions, 'stdin' | 'stdout' | 'stderr' | 'tty'>;
  /** Line for the user, shown on the terminal, or on stderr without a terminal. */
  readonly text?: string | undefined;
  /** Question that the user of a terminal must answer first. */
  readonly question?: { readonly text: string; readonly answered: (line: string) => void } | undefined;
  /**
   * Called when the user presses Ctrl-C or Ctrl-D in a terminal, or the client sends a close frame or GOAWAY.
   */
  readonly left: () => void;
}

/** Parsed content of one chunk from the client. */
interface Seen {
  /** Replies to the client. */
  readonly replies: readonly Uint8Array[];
  /** Input for the program, one item per frame. */
  readonly typed: readonly Uint8Array[];
  /** Other complete frames for the API server. */
  readonly frames: readonly Uint8Array[];
  readonly hasLeft: boolean;
}

type Frames = Record<'replies' | 'typed' | 'frames', Uint8Array[]>;

/** The functions that depend on the protocol. */
interface Side {
  /** True if the client has opened all streams. */
  readonly isReady: boolean;
  /** @throws WireError, TailcastError `SESSION_VIOLATED` */
  read(chunk: Uint8Array): Seen;
  /** True if the client's bytes end at a frame boundary. */
  readonly atBoundary: boolean;
  /** Returns a frame with input for the program. */
  input(bytes: Uint8Array): Uint8Array;
  /** Returns a frame that shows text of the gateway to the client. */
  say(stream: 'stdout' | 'stderr', text: Uint8Array): Uint8Array;
  /** Returns the bytes of the API server without the replies that the client already got. */
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
  /** Callback of the current write; called by `enter`, or when the API server accepts more bytes. */
  #writing: Done | undefined;
  #inner: Duplex | undefined;
  #state: 'opening' | 'asking' | 'answered' | 'waiting' = 'opening';
  readonly #prompt = new ReasonPrompt();

  constructor(options: WaitingRoomOptions) {
    super({ allowHalfOpen: false, autoDestroy: false });
    this.#options = options;
    const { protocol, exec } = options;
    this.#side = protocol === 'spdy' ? createSpdySide(options) : createWebSocketSide(exec);
    this.#advance();
  }

  /** Resolves when the client has opened all streams, and the user answered the question. */
  get ready(): Promise<void> {
    return this.#ready.promise;
  }

  /**
   * Ends the wait, and relays between the client and this connection to the API server. Called once.
   * @param head bytes that arrived with the 101 response
   */
  enter(inner: Duplex, head: Uint8Array): void {
    if (this.destroyed || this.writableEnded) {
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
      const seen = this.#side.read(chunk);
      for (const reply of seen.replies) this.push(reply);
      if (seen.hasLeft) this.#options.left();
      if (this.#isAsking) this.#answer(seen);
      else this.#kept.push(Buffer.from(chunk));
    } catch (error) {
      done(asError(error));
      this.destroy(asError(error));
      return;
    }
    this.#advance();
    this.#keptBytes += chunk.length;
    if (this.#keptBytes <= MAX_KEPT_BYTES) done();
    else this.#writing = done;
  }

  /**
   * True until the question is answered. Until then, input belongs to the question and not to the program.
   */
  get #isAsking(): boolean {
    return this.#options.question !== undefined && this.#state !== 'waiting';
  }

  #answer({ typed, frames }: Seen): void {
    this.#kept.push(...frames);
    for (const bytes of typed) {
      let rest = bytes;
      if (this.#state === 'asking') {
        const { echo, reason, rest: after } = this.#prompt.read(bytes);
        if (echo !== '') this.push(this.#side.say('stdout', Buffer.from(echo)));
        rest = after;
        if (reason !== undefined) {
          this.#state = 'answered';
          this.#options.question?.answered(reason);
        }
      }
      if (this.#state === 'answered' && rest.length > 0) this.#kept.push(this.#side.input(rest));
    }
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

  /**
   * Asks the question as soon as all streams are open. Shows the line of text as soon as the question is
   * answered.
   */
  #advance(): void {
    const { exec, text, question } = this.#options;
    if (this.#state === 'opening' && this.#side.isReady) {
      this.#state = question === undefined ? 'answered' : 'asking';
      if (question !== undefined) this.push(this.#side.say('stdout', Buffer.from(question.text)));
    }
    // waits for the end of an incomplete frame, which may contain input that belongs to the question
    if (this.#state !== 'answered' || (question !== undefined && !this.#side.atBoundary)) return;
    this.#state = 'waiting';
    // Without a terminal, the line goes to stderr, because stdout may be piped into another program.
    const stream = exec.tty ? 'stdout' : 'stderr';
    if (text !== undefined && exec[stream]) this.push(this.#side.say(stream, Buffer.from(`${text}\r\n`)));
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
  let payload: Uint8Array[] = [];
  const encode = (opcode: number, bytes: Uint8Array): Uint8Array =>
    encodeWebSocketFrame({ opcode, fin: true, payload: bytes, mask: NO_MASK });
  return {
    isReady: true,
    get atBoundary() {
      return scanner.atBoundary;
    },
    read(chunk) {
      const seen: Frames = { replies: [], typed: [], frames: [] };
      let hasLeft = false;
      for (const piece of scanner.push(chunk)) {
        payload.push(unmaskPiece(piece));
        if (!piece.last) continue;
        const bytes = Buffer.concat(payload);
        payload = [];
        if (piece.opcode === OPCODE.ping)
          seen.replies.push(encodeWebSocketFrame({ opcode: OPCODE.pong, fin: true, payload: bytes }));
        else if (piece.opcode === OPCODE.close) hasLeft = true;
        else if (piece.opcode === OPCODE.pong) continue;
        else if (bytes[0] === CHANNEL.stdin) seen.typed.push(bytes.subarray(1));
        else seen.frames.push(encode(piece.opcode, bytes));
      }
      return { ...seen, hasLeft: hasLeft || (tty && seen.typed.some(cancels)) };
    },
    input: (bytes) => encode(OPCODE.binary, Buffer.concat([Uint8Array.of(CHANNEL.stdin), bytes])),
    say: (stream, data) => encodeServerMessage({ channel: CHANNEL[stream], data }, false),
    filter: (chunk) => chunk,
  };
}

/** Mask of zeros: the masked payload is equal to the unmasked payload. */
const NO_MASK = new Uint8Array(4);

function createSpdySide({ exec, version }: Pick<WaitingRoomOptions, 'exec' | 'version'>): Side {
  const parser = createSpdyParser();
  const headers = createHeaderInflater(EXEC_HEADER_LIMITS);
  const deflater = createHeaderDeflater();
  const streams = createSpdyStreams();
  const expected = rolesOf({ ...exec, version });
  /** Streams for which this module has sent a SYN_REPLY. The later SYN_REPLY of the API server is dropped. */
  const answered = new Set<number>();
  const server = createSpdyParser();
  let payload: Uint8Array[] = [];
  const dataFrame = (streamId: number, bytes: Uint8Array, fin = false): Uint8Array =>
    encodeSpdyFrame({ kind: 'data', streamId, fin, payload: bytes });
  const open = (event: Extract<SpdyEvent, { kind: 'synStream' }>): Uint8Array => {
    const { streamId } = event;
    streams.open(streamId, headers.decode(event.block).get('streamtype'));
    answered.add(streamId);
    return encodeSpdyFrame({ kind: 'synReply', streamId, fin: false, block: deflater.encode([]) });
  };
  return {
    get isReady() {
      return expected.every((role) => streams.idOf(role) !== undefined);
    },
    get atBoundary() {
      return parser.atBoundary;
    },
    read(chunk) {
      const seen: Frames = { replies: [], typed: [], frames: [] };
      let hasLeft = false;
      for (const event of parser.push(chunk)) {
        if (event.kind === 'data') {
          payload.push(event.payload.slice());
          if (!event.last) continue;
          const bytes = Buffer.concat(payload);
          payload = [];
          const isInput = streams.idOf('stdin') === event.streamId;
          if (isInput && bytes.length > 0) seen.typed.push(bytes);
          if (!isInput || event.fin)
            seen.frames.push(dataFrame(event.streamId, isInput ? NO_BYTES : bytes, event.fin));
          continue;
        }
        if (event.kind === 'synStream') seen.replies.push(open(event));
        if (event.kind === 'ping' && event.id % 2 === 1) seen.replies.push(encodeSpdyFrame(event));
        else seen.frames.push(encodeSpdyFrame(event));
        if (event.kind === 'goaway') hasLeft = true;
      }
      return { ...seen, hasLeft: hasLeft || (exec.tty && seen.typed.some(cancels)) };
    },
    input: (bytes) => dataFrame(streams.idOf('stdin') ?? 0, bytes),
    say: (stream, bytes) => dataFrame(streams.idOf(stream) ?? 0, bytes),
    filter(chunk) {
      if (answered.size === 0 && server.atBoundary) return chunk;
      // the parser may split a DATA frame, and each part is sent as a frame of its own
      const kept = server.push(chunk).filter((event) => !isDropped(event, answered));
      return Buffer.concat(kept.map(encodeSpdyFrame));
    },
  };
}

/** True if this is the API server's SYN_REPLY for a stream for which this module has already sent a SYN_REPLY. */
function isDropped(event: SpdyEvent, answered: Set<number>): boolean {
  return event.kind === 'synReply' && answered.delete(event.streamId);
}

function cancels(typed: Uint8Array): boolean {
  return typed.includes(CTRL_C) || typed.includes(CTRL_D);
}
