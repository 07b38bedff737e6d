/**
 * Taps of a SPDY/3.1 connection that carries one exec or attach session.
 *
 * The client opens one stream per role, named by the header `streamtype` of its SYN_STREAM; from then on the stream's id
 * says what its bytes are. A recording is only worth something if nothing can be on a stream that the tap does not know:
 * the first binding of a role and of an id counts for ever, and a second one, an unknown role, or output on an id that was
 * never announced ends the session. All header blocks of a direction go through one inflater, also those nobody asks
 * about, because they share one compression history.
 *
 * Payload of stdin is counted and skipped without being copied.
 */
import { createHeaderInflater } from '../wire/spdy/headers.ts';
import { createSpdyParser, encodeSpdyFrame, SPDY_GOAWAY, type SpdyEvent } from '../wire/spdy/frame.ts';
import type { SpdyDataPiece } from '../wire/spdy/frame.ts';
import { encodeStatus } from '../wire/remotecommand/exit-status.ts';
import type { ChannelVersion } from '../wire/remotecommand/channel.ts';
import { createSizeReader } from './size-reader.ts';
import { inflateSpdyBlock } from './spdy-inflate.ts';
import { createStatusCollector } from './status-collector.ts';
import {
  asViolation,
  HEARTBEAT_PATIENCE_MS,
  STATUS_SINCE,
  violation,
  type SessionTaps,
  type Tap,
  type TappedSession,
} from './tap.ts';

const ROLES = ['error', 'stdin', 'stdout', 'stderr', 'resize'] as const;
type Role = (typeof ROLES)[number];

interface Stream {
  readonly id: number;
  readonly role: Role;
  /** The server has answered the SYN_STREAM; before that a client drops data on it. */
  replied: boolean;
  /** The server has ended its direction. */
  finished: boolean;
}

/** @param version of the stream protocol the API server chose (`X-Stream-Protocol-Version`) */
export function createSpdyTaps(session: TappedSession, version: ChannelVersion): SessionTaps {
  const streams = createStreams();
  const server = createServerSide(session, streams, version);
  const client = createClientSide(session, streams);
  return {
    clientToServer: client,
    serverToClient: server,
    get owesStatus() {
      return version >= STATUS_SINCE && !client.left;
    },
    farewell: (message, httpStatus) => server.farewell(message, httpStatus),
  };
}

interface Streams {
  /** Binds a role to an id, for ever. */
  open(id: number, role: string | undefined): void;
  find(id: number): Stream;
  all(): Iterable<Stream>;
}

function createStreams(): Streams {
  const byId = new Map<number, Stream>();
  let lastId = 0;
  return {
    open(id, name) {
      const role = ROLES.find((known) => known === name);
      if (role === undefined) throw violation('a SPDY stream has no known type');
      if (id % 2 === 0 || id <= lastId) throw violation('SPDY stream ids of a client are odd and grow');
      lastId = id;
      for (const stream of byId.values()) {
        if (stream.role === role) throw violation(`there are two SPDY streams of type ${role}`);
      }
      byId.set(id, { id, role, replied: false, finished: false });
    },
    find(id) {
      const stream = byId.get(id);
      if (stream === undefined) throw violation('SPDY data on a stream that was never opened');
      return stream;
    },
    all: () => byId.values(),
  };
}

function createClientSide(session: TappedSession, streams: Streams): Tap & { readonly left: boolean } {
  const parser = createSpdyParser();
  const headers = createHeaderInflater(inflateSpdyBlock);
  const readSize = createSizeReader(session);
  /** The last push held whole heartbeats and nothing else. */
  let heartbeat = false;
  /** The client has given up a stream, or all of them. */
  let left = false;
  /** As long as somebody may type. */
  let stdinId: number | undefined;
  const seeData = (event: SpdyDataPiece): void => {
    const { role } = streams.find(event.streamId);
    if (role === 'resize') readSize(event.payload);
    else if (role === 'stdin') session.input(event.payload.length);
    if (event.fin && event.streamId === stdinId) stdinId = undefined;
  };
  const see = (event: SpdyEvent): void => {
    if (event.kind !== 'ping') heartbeat = false;
    switch (event.kind) {
      case 'synStream': {
        const role = headers.decode(event.block).get('streamtype');
        streams.open(event.streamId, role);
        if (role === 'stdin') stdinId = event.streamId;
        return;
      }
      case 'headers':
        headers.decode(event.block);
        return;
      case 'synReply':
        throw violation('a SPDY client answered a stream that was not opened');
      case 'data':
        return seeData(event);
      case 'rstStream':
      case 'goaway':
        left = true;
        return;
      case 'settings':
      case 'ping':
      case 'windowUpdate':
        return;
    }
  };
  return {
    push(chunk) {
      heartbeat = parser.atBoundary;
      const wait = seeAll(parser, chunk, see, session);
      if (!parser.atBoundary) heartbeat = false;
      return wait;
    },
    delivered() {},
    get left() {
      return left;
    },
    get patienceMs() {
      if (!heartbeat) return 0;
      return stdinId === undefined ? HEARTBEAT_PATIENCE_MS.spdy : HEARTBEAT_PATIENCE_MS.interactive;
    },
  };
}

function createServerSide(
  session: TappedSession,
  streams: Streams,
  version: ChannelVersion,
): Tap & Pick<SessionTaps, 'farewell'> {
  const parser = createSpdyParser();
  const headers = createHeaderInflater(inflateSpdyBlock);
  const status = createStatusCollector(version);
  let deliveredToBoundary = true;
  let closing = false;
  const seeData = (event: SpdyDataPiece): void => {
    const stream = streams.find(event.streamId);
    switch (stream.role) {
      case 'stdout':
      case 'stderr':
        session.output(stream.role, event.payload);
        break;
      case 'error':
        status.push(event.payload);
        break;
      case 'stdin':
      case 'resize':
        // The API server never writes there; a client that is no kubectl could show it all the same.
        if (event.payload.length > 0) throw violation(`output on the SPDY stream of ${stream.role}`);
        break;
    }
    if (event.fin) finish(stream, 'ended');
  };
  const finish = (stream: Stream, how: 'ended' | 'reset'): void => {
    // A reset of a stream that has said nothing tells nothing, except where silence means success.
    const told = how === 'ended' || status.begun || version < STATUS_SINCE;
    if (stream.role === 'error' && !stream.finished && told) {
      const exit = status.finish();
      if (exit !== undefined) session.exit(exit);
    }
    stream.finished = true;
  };
  const see = (event: SpdyEvent): void => {
    switch (event.kind) {
      case 'data':
        return seeData(event);
      case 'synReply':
        headers.decode(event.block);
        streams.find(event.streamId).replied = true;
        return;
      case 'headers':
        headers.decode(event.block);
        return;
      case 'synStream':
        throw violation('the server opened a SPDY stream of its own');
      case 'rstStream':
        // Kubernetes' server never ends the error stream: it resets all streams when it closes the connection.
        for (const stream of streams.all()) if (stream.id === event.streamId) finish(stream, 'reset');
        return;
      case 'goaway':
        closing = true;
        return;
      case 'settings':
      case 'ping':
      case 'windowUpdate':
        return;
    }
  };
  return {
    push: (chunk) => seeAll(parser, chunk, see, session),
    delivered() {
      deliveredToBoundary = parser.atBoundary;
    },
    farewell(message, httpStatus) {
      if (!deliveredToBoundary || closing) return undefined;
      return spdyFarewell(
        streams,
        status.begun,
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
): void | Promise<void> {
  try {
    for (const event of parser.push(chunk)) see(event);
  } catch (error) {
    throw asViolation(error);
  }
  return session.flush();
}

/** The Status on the error stream if it is free, an end for every stream the client knows, and a GOAWAY. */
function spdyFarewell(streams: Streams, statusSent: boolean, status: Uint8Array): Uint8Array {
  const frames: Uint8Array[] = [];
  let lastStreamId = 0;
  for (const { id, role, replied, finished } of streams.all()) {
    lastStreamId = id;
    if (!replied || finished) continue;
    const payload = role === 'error' && !statusSent ? status : new Uint8Array(0);
    frames.push(encodeSpdyFrame({ kind: 'data', streamId: id, fin: true, payload }));
  }
  frames.push(encodeSpdyFrame({ kind: 'goaway', lastStreamId, status: SPDY_GOAWAY.ok }));
  return Buffer.concat(frames);
}
