/**
 * Taps of a WebSocket connection that carries one exec or attach session in the `channel.k8s.io` family.
 *
 * A message consists of a channel byte and data. In the base64 variants, it is a text message that consists of a digit
 * and base64 data. The tap must interpret the bytes exactly as both ends do. Ambiguous messages therefore end the
 * session: compressed frames, server messages of the wrong type, messages on unknown channels, and fragmented client
 * messages. Fragments are ambiguous, because the API server treats each frame of a client as a message. Like the API
 * server, the tap ignores the type of a client message, because the official Python client sends stdin as text.
 *
 * Server messages are recorded piece by piece as they arrive. The payload of stdin is counted, not copied.
 */
import { createClientHeartbeats, ProbeLedger } from './client-heartbeats.ts';
import { decodeBase64 } from '../wire/base64.ts';
import { CHANNEL, encodeServerMessage, type ChannelProtocol } from '../wire/remotecommand/channel.ts';
import { encodeStatus } from '../wire/remotecommand/exit-status.ts';
import {
  CLOSE_NORMAL,
  createWebSocketScanner,
  encodeWebSocketFrame,
  OPCODE,
  unmaskPiece,
  type WebSocketPiece,
  type WebSocketScanner,
} from '../wire/websocket/frame.ts';
import { Conclusion } from './conclusion.ts';
import { createSizeReader } from '../wire/remotecommand/resize.ts';
import { createStatusCollector } from '../wire/remotecommand/exit-status.ts';
import { handOver } from './session.ts';
import { asViolation, INCOMPLETE, STATUS_SINCE, violation, type Tap, type TappedSession } from './tap.ts';

const DIGIT_0 = 0x30;
const EMPTY = new Uint8Array(0);

/** @param protocol protocol that the API server chose; see `parseSubprotocol` */
export function createWebSocketTap(session: TappedSession, protocol: ChannelProtocol): Tap {
  const probes = new ProbeLedger((ordinal) =>
    encodeWebSocketFrame({ opcode: OPCODE.ping, fin: true, payload: probePayload(ordinal) }),
  );
  const server = createServerSide(session, protocol);
  const client = createClientSide(session, protocol, probes);
  return {
    ...server,
    input: client.input,
    nextProbe: () => probes.next(),
    incompleteReason: (backpressured) =>
      client.hasLeft() ? undefined : server.incompleteReason(backpressured),
    hasClientLeft: () => client.hasLeft(),
  };
}

/**
 * First bytes of the payload of the gateway's pings. A pong repeats the payload of its ping (RFC 6455
 * §5.5.3).
 */
const PROBE = 'tailcast ';

function probePayload(ordinal: number): Uint8Array {
  return Buffer.from(`${PROBE}${ordinal}`);
}

/**
 * Returns the number of the gateway's ping that a pong answers. Returns NaN if the pong answers another ping.
 */
function probeOf(payload: Uint8Array): number {
  const text = Buffer.from(payload).toString('latin1');
  return text.startsWith(PROBE) ? Number(text.slice(PROBE.length)) : Number.NaN;
}

interface ClientSide extends Pick<Tap, 'input'> {
  hasLeft(): boolean;
}

function createClientSide(
  session: TappedSession,
  protocol: ChannelProtocol,
  probes: ProbeLedger,
): ClientSide {
  const scanner = createWebSocketScanner({ expectMask: true });
  const readSize = createSizeReader((size) => session.resize(size));
  const message = new Message(protocol);
  let closeSignal: Uint8Array = EMPTY;
  let ping: Uint8Array = EMPTY;
  let pong: Uint8Array = EMPTY;
  const heartbeats = createClientHeartbeats(scanner, probes, mayWaitFrom, MAX_SMALL_BYTES);
  const see = (piece: WebSocketPiece): void => {
    if (piece.opcode === OPCODE.ping) return seePing(piece);
    if (piece.opcode === OPCODE.pong) return seePong(piece);
    heartbeats.otherFrame();
    if (piece.opcode === OPCODE.close) heartbeats.closingFrame();
    if (isControl(piece)) return;
    if (!piece.fin || piece.opcode === OPCODE.continuation) throw violation('a client message is fragmented');
    // The payload of stdin is not unmasked, because unmasking would copy the payload.
    const taken = piece.first && piece.length > 0 ? message.open(unmaskedFirst(piece), false) : 0;
    if (message.channel !== CHANNEL.resize) heartbeats.urgentFrame();
    const { length } = piece.bytesFrom(taken);
    if (message.channel === CHANNEL.stdin) session.input(length);
    else if (length > 0 || piece.last) seeControlData(unmaskPiece(piece).subarray(taken), piece.last);
    if (!piece.last) return;
    message.end();
    closeSignal = EMPTY;
  };
  const seeControlData = (bytes: Uint8Array, last: boolean): void => {
    message.open(undefined, last);
    const part = message.decode(bytes, last);
    if (message.channel === CHANNEL.resize) readSize(part);
    if (message.channel !== CHANNEL.close) return;
    closeSignal = Buffer.concat([closeSignal, part]);
    if (closeSignal.length > 1 || (last && closeSignal.length !== 1)) {
      throw violation('a close signal names one channel');
    }
  };
  const seePing = (piece: WebSocketPiece): void => {
    const bytes = unmaskPiece(piece);
    ping = piece.first ? bytes : Buffer.concat([ping, bytes]);
    if (piece.last)
      heartbeats.heartbeat(encodeWebSocketFrame({ opcode: OPCODE.pong, fin: true, payload: ping }));
  };
  const seePong = (piece: WebSocketPiece): void => {
    const bytes = unmaskPiece(piece);
    pong = piece.first ? bytes : Buffer.concat([pong, bytes]);
    if (!piece.last) return;
    if (probes.take(probeOf(pong))) heartbeats.probeResponse();
    else heartbeats.otherFrame();
  };
  return {
    input: (chunk, kept) => heartbeats.read(chunk, kept, (bytes) => seeAll(scanner, bytes, see, session)),
    hasLeft: () => heartbeats.hasLeft,
  };
}

/**
 * Maximum size of a control frame and of any frame with a one-byte length: header, mask and payload (RFC 6455
 * §5.2, §5.5).
 */
const MAX_SMALL_BYTES = 2 + 4 + 125;

/** Returns true if these bytes may be the start of a ping, a pong, or a short message on the resize channel. */
function mayWaitFrom(bytes: Uint8Array): boolean {
  const [first = 0, length = 0, mask = 0] = bytes;
  if (first === (0x80 | OPCODE.ping) || first === (0x80 | OPCODE.pong)) return true;
  const channel = bytes[6];
  return (
    first === (0x80 | OPCODE.binary) &&
    (length & 0x7f) <= 125 &&
    (channel === undefined || (channel ^ mask) === CHANNEL.resize)
  );
}

function unmaskedFirst({ firstByte = 0, mask }: WebSocketPiece): number {
  return firstByte ^ (mask?.[0] ?? 0);
}

function createServerReader(session: TappedSession, protocol: ChannelProtocol, conclusion: Conclusion) {
  const status = createStatusCollector(protocol.version);
  const message = new Message(protocol);
  let inMessage = false;
  let closed = false;
  let exited = false;
  const seeStatus = (piece: WebSocketPiece, part: Uint8Array, last: boolean): void => {
    if (part.length > 0) conclusion.begins(piece.bytes, piece.headerLength + piece.offset);
    status.push(part);
    if (!last || !status.begun) return;
    const exit = status.finish();
    exited ||= exit !== undefined;
    if (exit !== undefined) session.exit(exit);
  };
  const seePart = (piece: WebSocketPiece, part: Uint8Array, last: boolean): void => {
    switch (message.channel) {
      case CHANNEL.stdout:
        session.output('stdout', part);
        break;
      case CHANNEL.stderr:
        session.output('stderr', part);
        break;
      case CHANNEL.error:
        seeStatus(piece, part, last);
        break;
      case CHANNEL.stdin:
      case CHANNEL.resize:
        // The API server never writes to these channels. The bytes are refused, because a client other than
        // kubectl could show them.
        if (part.length > 0) throw violation('output on a channel of the client');
        break;
      case undefined:
      default:
        break;
    }
  };
  const isIgnored = (channel: number | undefined): boolean =>
    session.ignoresOutput === true && (channel === CHANNEL.stdout || channel === CHANNEL.stderr);
  return {
    /** True after the server has sent its close frame. */
    get closed(): boolean {
      return closed;
    },
    /** True if the server sent a readable exit status. */
    get exited(): boolean {
      return exited;
    },
    get statusBegun(): boolean {
      return status.begun;
    },
    /** True if the last complete frame is not the last frame of its message. */
    get inMessage(): boolean {
      return inMessage;
    },
    see(piece: WebSocketPiece): void {
      if (isControl(piece)) {
        closed ||= piece.opcode === OPCODE.close && piece.last;
        return;
      }
      if (closed) throw violation('the server sent data after its close frame');
      checkType(piece, protocol);
      const last = piece.last && piece.fin;
      const taken = message.open(piece.firstByte, last);
      if (!isIgnored(message.channel)) seePart(piece, message.decode(piece.bytesFrom(taken), last), last);
      if (piece.last) inMessage = !piece.fin;
      if (last) message.end();
    },
  };
}

function createServerSide(
  session: TappedSession,
  protocol: ChannelProtocol,
): Pick<Tap, 'output' | 'mark' | 'incompleteReason' | 'farewell'> {
  const scanner = createWebSocketScanner({ expectMask: false });
  const conclusion = new Conclusion();
  const reader = createServerReader(session, protocol, conclusion);
  // State after the last delivered byte.
  let betweenFrames = true;
  let betweenMessages = true;
  let statusBegun = false;
  let closed = false;
  return {
    output(chunk, more) {
      conclusion.reading(chunk);
      const wait = seeAll(scanner, chunk, (piece) => reader.see(piece), session, more);
      conclusion.read();
      return wait;
    },
    mark() {
      const statusBytes = conclusion.bytes;
      const isBoundary = scanner.atBoundary;
      const { partialBytes } = scanner;
      const { inMessage, statusBegun: isStatusBegun, closed: isClosed } = reader;
      return {
        heldBytes: Math.max(isClosed ? 0 : statusBytes, partialBytes),
        heldBytesBackpressured: Math.max(statusBytes, partialBytes),
        delivered(heldBytes) {
          betweenFrames = heldBytes > 0 || isBoundary;
          if (conclusion.delivered(heldBytes, statusBytes)) {
            betweenMessages = betweenFrames && !inMessage;
            statusBegun = isStatusBegun;
            closed = isClosed;
          }
          return betweenFrames && !closed;
        },
      };
    },
    incompleteReason(backpressured) {
      if (protocol.version >= STATUS_SINCE && !reader.exited) return INCOMPLETE.status;
      if (!reader.closed) return INCOMPLETE.output;
      return backpressured ? INCOMPLETE.backpressured : undefined;
    },
    farewell(message, httpStatus) {
      if (!betweenFrames || !betweenMessages || closed) return undefined;
      const payload = encodeStatus({ kind: 'failure', message, httpStatus }, protocol.version);
      const frames = statusBegun
        ? []
        : [encodeServerMessage({ channel: CHANNEL.error, data: payload }, protocol.base64)];
      frames.push(encodeWebSocketFrame({ opcode: OPCODE.close, fin: true, payload: CLOSE_NORMAL }));
      return Buffer.concat(frames);
    },
  };
}

function seeAll(
  scanner: WebSocketScanner,
  chunk: Uint8Array,
  see: (piece: WebSocketPiece) => void,
  session: TappedSession,
  more = false,
): void | Promise<void> {
  try {
    for (const piece of scanner.push(chunk)) {
      // Extensions cannot be in use, because the gateway removes the client's offer of extensions from the handshake.
      if (piece.rsv !== 0) throw violation('a WebSocket frame is compressed or extended');
      see(piece);
    }
  } catch (error) {
    handOver(session);
    throw asViolation(error);
  }
  return more ? undefined : session.flush();
}

function isControl(piece: WebSocketPiece): boolean {
  return piece.opcode >= OPCODE.close;
}

function checkType(piece: WebSocketPiece, { base64 }: ChannelProtocol): void {
  if (piece.opcode === OPCODE.continuation) return;
  if ((piece.opcode === OPCODE.text) !== base64) throw violation('a WebSocket message of the wrong type');
}

/**
 * State of the current message of a direction. One object is reused for all messages, because long output may
 * have one message per line.
 */
class Message {
  readonly #protocol: ChannelProtocol;
  #channel: number | undefined;
  #decode: (bytes: Uint8Array, last: boolean) => Uint8Array;

  constructor(protocol: ChannelProtocol) {
    this.#protocol = protocol;
    this.#decode = decoderOf(protocol);
  }

  /** Channel of the message; undefined before its first byte. */
  get channel(): number | undefined {
    return this.#channel;
  }

  /**
   * Reads the channel of the message.
   * @param first next byte of the payload, unmasked, if there is one
   * @param last true if the message ends with this piece
   * @returns number of payload bytes that the channel needed: 1, or 0 if the channel was already known
   */
  open(first: number | undefined, last: boolean): number {
    if (this.#channel !== undefined) return 0;
    if (first === undefined) {
      if (last) throw violation('an empty message names no channel');
      return 0;
    }
    const channel = this.#protocol.base64 ? first - DIGIT_0 : first;
    if (!isKnownChannel(channel, this.#protocol)) throw violation('a message on an unknown channel');
    this.#channel = channel;
    return 1;
  }

  /** Decodes the data after the channel byte. */
  decode(bytes: Uint8Array, last: boolean): Uint8Array {
    return this.#channel === undefined ? EMPTY : this.#decode(bytes, last);
  }

  /** Ends the message. */
  end(): void {
    this.#channel = undefined;
    if (this.#protocol.base64) this.#decode = decoderOf(this.#protocol);
  }
}

function decoderOf({ base64 }: ChannelProtocol): (bytes: Uint8Array, last: boolean) => Uint8Array {
  return base64 ? createBase64Decoder() : (bytes) => bytes;
}

function isKnownChannel(channel: number, { version, base64 }: ChannelProtocol): boolean {
  if (channel === CHANNEL.close) return version >= 5 && !base64;
  return channel >= CHANNEL.stdin && channel <= CHANNEL.resize;
}

/**
 * Returns a decoder for base64 that arrives in pieces. The decoder decodes complete groups of four characters, and
 * keeps the other characters for the next piece.
 */
function createBase64Decoder(): (text: Uint8Array, last: boolean) => Uint8Array {
  let rest: Uint8Array = EMPTY;
  let padded = false;
  return (text, last) => {
    const all = rest.length === 0 ? text : Buffer.concat([rest, text]);
    const whole = last ? all.length : all.length - (all.length % 4);
    rest = whole === all.length ? EMPTY : new Uint8Array(all.subarray(whole));
    if (whole === 0) return EMPTY;
    if (padded) throw violation('base64 has data after its padding');
    const data = decodeBase64(Buffer.from(all.buffer, all.byteOffset, whole).toString('latin1'));
    padded = data.length < (whole / 4) * 3;
    return data;
  };
}
