/**
 * What the server of an exec or attach session over SPDY/3.1 has said, and whether all of it has come. Read by the tap of such a
 * connection, and where the gateway itself is the client.
 *
 * Kubernetes' server never ends the error stream: when it closes the connection it resets all streams, behind everything
 * else. So a stream counts as finished when it has ended or was reset.
 */
import { createHeaderInflater } from '../wire/spdy/headers.ts';
import { SPDY_HEADER_BYTES, type SpdyDataPiece, type SpdyEvent } from '../wire/spdy/frame.ts';
import type { ChannelVersion } from '../wire/remotecommand/channel.ts';
import type { Conclusion } from './conclusion.ts';
import { inflateSpdyBlock } from './spdy-inflate.ts';
import { createStatusCollector, type StatusCollector } from './status-collector.ts';
import { STATUS_SINCE, UNPROVED, violation, type TappedSession } from './tap.ts';

const ROLES = ['error', 'stdin', 'stdout', 'stderr', 'resize'] as const;
export type SpdyRole = (typeof ROLES)[number];

export interface SpdyStream {
  readonly id: number;
  readonly role: SpdyRole;
  /** The server has answered the SYN_STREAM; before that a client drops data on it. */
  replied: boolean;
  /** The server has ended its direction. */
  finished: boolean;
  /** The client has been told so. */
  told: boolean;
}

export interface SpdyStreams {
  /** Binds a role to an id, for ever. */
  open(id: number, role: string | undefined): void;
  find(id: number): SpdyStream;
  idOf(role: SpdyRole): number | undefined;
  all(): Iterable<SpdyStream>;
  /** The server has ended each stream of output that there is. */
  outputEnded(): boolean;
}

export function createSpdyStreams(): SpdyStreams {
  const byId = new Map<number, SpdyStream>();
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
      byId.set(id, { id, role, replied: false, finished: false, told: false });
    },
    find(id) {
      const stream = byId.get(id);
      if (stream === undefined) throw violation('SPDY data on a stream that was never opened');
      return stream;
    },
    idOf(role) {
      for (const stream of byId.values()) if (stream.role === role) return stream.id;
      return undefined;
    },
    all: () => byId.values(),
    outputEnded() {
      for (const { role, finished } of byId.values()) {
        if ((role === 'stdout' || role === 'stderr') && !finished) return false;
      }
      return true;
    },
  };
}

export interface SpdyServerReader {
  /** The server has taken its leave. */
  readonly closing: boolean;
  /** It has said how the process ended, and that can be read. */
  readonly exited: boolean;
  /** What it has said of that so far. */
  readonly status: Pick<StatusCollector, 'begun' | 'bytes'>;
  /** @throws TailcastError `SESSION_VIOLATED`, WireError */
  see(event: SpdyEvent): void;
  /** Why it is not proved that everything has come; see `SessionTaps`. */
  unproved(): string | undefined;
}

/**
 * @param version of the stream protocol that was agreed
 * @param conclusion is told where the status begins
 */
export function createSpdyServerReader(
  session: Pick<TappedSession, 'output' | 'exit'>,
  streams: SpdyStreams,
  version: ChannelVersion,
  conclusion?: Conclusion,
): SpdyServerReader {
  const headers = createHeaderInflater(inflateSpdyBlock);
  const status = createStatusCollector(version);
  let closing = false;
  let exited = false;
  const seeData = (event: SpdyDataPiece): void => {
    const stream = streams.find(event.streamId);
    switch (stream.role) {
      case 'stdout':
      case 'stderr':
        session.output(stream.role, event.payload);
        break;
      case 'error':
        if (event.payload.length > 0) conclusion?.begins(event.payload, SPDY_HEADER_BYTES);
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
  const finish = (stream: SpdyStream, how: 'ended' | 'reset'): void => {
    // A reset of a stream that has said nothing tells nothing, except where silence means success.
    const told = how === 'ended' || status.begun || version < STATUS_SINCE;
    if (stream.role === 'error' && !stream.finished && told) {
      const exit = status.finish();
      exited ||= exit !== undefined;
      if (exit !== undefined) session.exit(exit);
    }
    stream.finished = true;
  };
  return {
    get closing() {
      return closing;
    },
    status,
    get exited() {
      return exited;
    },
    see(event) {
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
    },
    unproved() {
      if (version >= STATUS_SINCE && !exited) return UNPROVED.status;
      return closing || streams.outputEnded() ? undefined : UNPROVED.output;
    },
  };
}
