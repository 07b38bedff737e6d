/**
 * Taps of a SPDY/3.1 connection that carries one exec or attach session.
 *
 * The client opens one stream per role. The header `streamtype` of the SYN_STREAM names the role. To record all output,
 * the tap must know the role of each stream. The tap therefore ends the session if a role or an id is assigned twice,
 * if a role is unknown, or if output arrives on an unknown id. One inflater decodes all header blocks of a direction,
 * because each block is compressed with the history of the earlier blocks.
 *
 * The payload of stdin is counted and skipped without a copy.
 *
 * The relay holds the exit status back until it is proved (`spdy-server-reader.ts`), because truncated output
 * must not end with a successful exit status.
 */
import { createClientHeartbeats, ProbeLedger, type ClientHeartbeats } from './client-heartbeats.ts';
import { createHeaderInflater, EXEC_HEADER_LIMITS } from '../wire/spdy/headers.ts';
import {
  createSpdyParser,
  encodeSpdyFrame,
  SPDY_GOAWAY,
  SPDY_HEADER_BYTES,
  type SpdyDataPiece,
  type SpdyEvent,
} from '../wire/spdy/frame.ts';
import { encodeStatus } from '../wire/remotecommand/exit-status.ts';
import type { ChannelVersion } from '../wire/remotecommand/channel.ts';
import { Conclusion } from './conclusion.ts';
import { createSizeReader } from '../wire/remotecommand/resize.ts';
import {
  createSpdyServerReader,
  createSpdyStreams,
  type SpdyServerReader,
  type SpdyStreams,
} from './spdy-server-reader.ts';
import { handOver } from './session.ts';
import { asViolation, violation, type Tap, type TappedSession } from './tap.ts';

/** @param version channel-protocol version that the API server chose (`X-Stream-Protocol-Version`) */
export function createSpdyTap(
  session: TappedSession,
  version: ChannelVersion,
  streams: SpdyStreams = createSpdyStreams(),
): Tap {
  const probes = new ProbeLedger((ordinal) => encodeSpdyFrame({ kind: 'ping', id: probeId(ordinal) }));
  const server = createServerSide(session, streams, version);
  const client = createClientSide(session, streams, probes);
  return {
    ...server,
    input: client.input,
    nextProbe: () => probes.next(),
    incompleteReason: () => (client.hasLeft() ? undefined : server.incompleteReason()),
    hasClientLeft: () => client.hasLeft(),
  };
}

/**
 * Id of the first ping of the gateway. Servers use even ids from 2 upwards. The gateway uses even ids from the largest
 * possible id downwards, so that its ids do not collide with ids of the server.
 */
const LAST_PING_ID = 0xffff_fffe;

function probeId(ordinal: number): number {
  return LAST_PING_ID - 2 * (ordinal - 1);
}

/** Returns the number of the gateway's ping that has this even id. */
function probeOf(id: number): number {
  return (LAST_PING_ID - id) / 2 + 1;
}

function createClientSide(session: TappedSession, streams: SpdyStreams, probes: ProbeLedger): ClientSide {
  const parser = createSpdyParser();
  const headers = createHeaderInflater(EXEC_HEADER_LIMITS);
  const readSize = createSizeReader((size) => session.resize(size));
  const isSizeBegun = (bytes: Uint8Array): boolean => {
    const id = streams.idOf('resize');
    return id !== undefined && bytes.length >= 4 && Buffer.from(bytes).readUInt32BE(0) === id;
  };
  const heartbeats: ClientHeartbeats = createClientHeartbeats(
    parser,
    probes,
    (bytes) => isPingBegun(bytes) || isSizeBegun(bytes),
    SPDY_HEADER_BYTES + MAX_SIZE_BYTES,
  );
  const seeData = (event: SpdyDataPiece): void => {
    const { role } = streams.find(event.streamId);
    if (role === 'resize') readSize(event.payload);
    else if (role === 'stdin') session.input(event.payload.length);
    if (role !== 'resize' || event.fin) heartbeats.urgentFrame();
  };
  const see = (event: SpdyEvent): void => {
    // Clients use odd ping ids. A ping with an even id is the response to a ping of the server or of the
    // gateway.
    const isHeartbeat = event.kind === 'ping' && event.id % 2 === 1;
    if (isHeartbeat) heartbeats.heartbeat(encodeSpdyFrame(event));
    else if (event.kind === 'ping' && probes.take(probeOf(event.id))) heartbeats.probeResponse();
    else heartbeats.otherFrame();
    switch (event.kind) {
      case 'synStream':
        heartbeats.urgentFrame();
        streams.open(event.streamId, headers.decode(event.block).get('streamtype'));
        return;
      case 'headers':
        heartbeats.urgentFrame();
        headers.decode(event.block);
        return;
      case 'synReply':
        throw violation('a SPDY client answered a stream that was not opened');
      case 'data':
        return seeData(event);
      case 'rstStream':
      case 'goaway':
        // RST_STREAM or GOAWAY: the client closes a stream or the connection.
        heartbeats.closingFrame();
        return;
      case 'settings':
      case 'ping':
      case 'windowUpdate':
        return;
    }
  };
  return {
    input: (chunk, kept) => heartbeats.read(chunk, kept, (bytes) => seeAll(parser, bytes, see, session)),
    hasLeft: () => heartbeats.hasLeft,
  };
}

/**
 * Maximum payload of an incomplete resize message that is kept, in bytes. The message of kubectl has about 25 bytes;
 * the payload of a ping has 4.
 */
const MAX_SIZE_BYTES = 128;
/** Frame header of a ping: version, type, flags and length. `undefined` matches any flags. */
const PING_HEAD = [0x80, 0x03, 0x00, 0x06, undefined, 0x00, 0x00, 0x04];

function isPingBegun(bytes: Uint8Array): boolean {
  return PING_HEAD.every((byte, at) => byte === undefined || at >= bytes.length || bytes[at] === byte);
}

interface ClientSide extends Pick<Tap, 'input'> {
  hasLeft(): boolean;
}

function createServerSide(
  session: TappedSession,
  streams: SpdyStreams,
  version: ChannelVersion,
): Pick<Tap, 'output' | 'mark' | 'farewell'> & Pick<SpdyServerReader, 'incompleteReason'> {
  const parser = createSpdyParser();
  const conclusion = new Conclusion();
  const reader = createSpdyServerReader(session, streams, version, conclusion);
  // State after the last delivered byte.
  let atBoundary = true;
  let statusBegun = false;
  let closing = false;
  return {
    output(chunk, more) {
      conclusion.reading(chunk);
      const wait = seeAll(parser, chunk, (event) => reader.see(event), session, more);
      conclusion.read();
      if (reader.incompleteReason() === undefined) conclusion.free();
      return wait;
    },
    mark() {
      const held = Math.max(conclusion.bytes, parser.partialBytes);
      const statusBytes = conclusion.bytes;
      const isBoundary = parser.atBoundary;
      const { closing: isClosing } = reader;
      const { begun: isStatusBegun } = reader.status;
      const finished = new Set([...streams.all()].filter((stream) => stream.finished));
      return {
        heldBytes: held,
        heldBytesBackpressured: held,
        delivered(heldBytes) {
          atBoundary = heldBytes > 0 || isBoundary;
          if (conclusion.delivered(heldBytes, statusBytes)) {
            statusBegun = isStatusBegun;
            closing = isClosing;
            for (const stream of streams.all()) stream.endDelivered = finished.has(stream);
          }
          return atBoundary && !closing;
        },
      };
    },
    incompleteReason: () => reader.incompleteReason(),
    farewell(message, httpStatus) {
      if (!atBoundary || closing) return undefined;
      return spdyFarewell(
        streams,
        statusBegun,
        encodeStatus({ kind: 'failure', message, httpStatus }, version),
      );
    },
  };
}

function seeAll(
  parser: ReturnType<typeof createSpdyParser>,
  chunk: Uint8Array,
  see: (event: SpdyEvent) => void,
  session: TappedSession,
  more = false,
): void | Promise<void> {
  try {
    for (const event of parser.push(chunk)) see(event);
  } catch (error) {
    handOver(session);
    throw asViolation(error);
  }
  return more ? undefined : session.flush();
}

/**
 * Returns frames that end a session: a Status on the error stream if none was sent, the end of each stream
 * that the client knows, and a GOAWAY.
 */
function spdyFarewell(streams: SpdyStreams, statusSent: boolean, status: Uint8Array): Uint8Array {
  const frames: Uint8Array[] = [];
  let lastStreamId = 0;
  for (const { id, role, replied, endDelivered } of streams.all()) {
    lastStreamId = id;
    if (!replied || endDelivered) continue;
    const payload = role === 'error' && !statusSent ? status : new Uint8Array(0);
    frames.push(encodeSpdyFrame({ kind: 'data', streamId: id, fin: true, payload }));
  }
  frames.push(encodeSpdyFrame({ kind: 'goaway', lastStreamId, status: SPDY_GOAWAY.ok }));
  return Buffer.concat(frames);
}
