/**
 * Reads the server side of an exec or attach session over SPDY/3.1: its output, its exit status, and whether
 * the output is complete. Used by the SPDY tap, and by the gateway when the gateway itself is the SPDY
 * client.
 *
 * A Kubernetes server never ends the error stream. Before the server closes the connection, it resets all streams,
 * after all other frames. A stream therefore counts as finished if it was ended or reset.
 */
import { createHeaderInflater, EXEC_HEADER_LIMITS } from '../wire/spdy/headers.ts';
import { SPDY_HEADER_BYTES, type SpdyDataPiece, type SpdyEvent } from '../wire/spdy/frame.ts';
import type { ChannelVersion } from '../wire/remotecommand/channel.ts';
import type { Conclusion } from './conclusion.ts';
import { createStatusCollector } from '../wire/remotecommand/exit-status.ts';
import { STATUS_SINCE, INCOMPLETE, violation, type TappedSession } from './tap.ts';

const ROLES = ['error', 'stdin', 'stdout', 'stderr', 'resize'] as const;
export type SpdyRole = (typeof ROLES)[number];

export interface SpdyStream {
  readonly id: number;
  readonly role: SpdyRole;
  /** True after the server has sent its SYN_REPLY. A client drops data that arrives earlier. */
  replied: boolean;
  /** True if the server has ended or reset its direction. */
  finished: boolean;
  /** True if the end was delivered to the client. */
  endDelivered: boolean;
}

export type SpdyStreams = ReturnType<typeof createSpdyStreams>;

export function createSpdyStreams() {
  const byId = new Map<number, SpdyStream>();
  let lastId = 0;
  return {
    /** Assigns a role to a stream id permanently. */
    open(id: number, name: string | undefined): void {
      const role = ROLES.find((known) => known === name);
      if (role === undefined) throw violation('a SPDY stream has no known type');
      if (id % 2 === 0 || id <= lastId) throw violation('SPDY stream ids of a client are odd and grow');
      lastId = id;
      for (const stream of byId.values()) {
        if (stream.role === role) throw violation(`there are two SPDY streams of type ${role}`);
      }
      byId.set(id, { id, role, replied: false, finished: false, endDelivered: false });
    },
    find(id: number): SpdyStream {
      const stream = byId.get(id);
      if (stream === undefined) throw violation('SPDY data on a stream that was never opened');
      return stream;
    },
    idOf(role: SpdyRole): number | undefined {
      for (const stream of byId.values()) if (stream.role === role) return stream.id;
      return undefined;
    },
    all: (): Iterable<SpdyStream> => byId.values(),
    /** Returns true if the server has finished all output streams. */
    outputEnded(): boolean {
      for (const { role, finished } of byId.values()) {
        if ((role === 'stdout' || role === 'stderr') && !finished) return false;
      }
      return true;
    },
  };
}

export type SpdyServerReader = ReturnType<typeof createSpdyServerReader>;

/**
 * @param version negotiated channel-protocol version (`v4.channel.k8s.io` is version 4)
 * @param conclusion receives the position of the exit status
 */
export function createSpdyServerReader(
  session: Pick<TappedSession, 'output' | 'exit'>,
  streams: SpdyStreams,
  version: ChannelVersion,
  conclusion?: Conclusion,
) {
  const headers = createHeaderInflater(EXEC_HEADER_LIMITS);
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
        // The API server never writes to these streams. The bytes are refused, because a client other than
        // kubectl could show them.
        if (event.payload.length > 0) throw violation(`output on the SPDY stream of ${stream.role}`);
        break;
    }
    if (event.fin) finish(stream, 'ended');
  };
  const finish = (stream: SpdyStream, how: 'ended' | 'reset'): void => {
    // In old channel-protocol versions, an empty error stream means success. In newer versions, a reset of an empty
    // error stream is not an exit status.
    const isComplete = how === 'ended' || status.begun || version < STATUS_SINCE;
    if (stream.role === 'error' && !stream.finished && isComplete) {
      const exit = status.finish();
      exited ||= exit !== undefined;
      if (exit !== undefined) session.exit(exit);
    }
    stream.finished = true;
  };
  return {
    /** True if the server sent GOAWAY. */
    get closing(): boolean {
      return closing;
    },
    /** The exit status received so far. */
    status,
    /** True if the server sent a readable exit status. */
    get exited(): boolean {
      return exited;
    },
    /** Reads one event. @throws TailcastError `SESSION_VIOLATED`, WireError */
    see(event: SpdyEvent): void {
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
    /** Returns the reason why the output is not proved complete, see `Tap.incompleteReason`. */
    incompleteReason(): string | undefined {
      if (version >= STATUS_SINCE && !exited) return INCOMPLETE.status;
      return closing || streams.outputEnded() ? undefined : INCOMPLETE.output;
    },
  };
}
