/**
 * One function per business event: it counts and it logs, so that no place in the code does one without the other.
 * Messages are constant, everything that varies is a field; labels of counters are low-cardinality. No field may carry
 * a header value, a body or terminal content.
 */
import type { ErrorCode } from '../errors.ts';
import type { Logger } from './logger.ts';
import type { Metrics, Protocol } from './metrics.ts';

/** What identifies an interactive session in every event about it. */
export interface SessionFields {
  /** The admission's id. */
  readonly sessionId: string;
  /** Who: login name or node name. */
  readonly user: string;
  /** Tailnet node the session comes from. */
  readonly node: string;
  /** `exec`, `attach`, `portForward`, … */
  readonly kind: string;
  readonly namespace?: string;
  readonly pod?: string;
  readonly container?: string;
}

/** How a session ended. */
export type SessionOutcome =
  | 'completed'
  | 'interrupted'
  | 'violated'
  | 'client-disconnected'
  | 'recorder-lost'
  | 'refused';

/** The recording modes under which something can be missing. */
export type RecordingMode = 'failOpen' | 'failClosed';

export interface Events {
  /** A session runs: upstream has said 101. `recorder` is the address that accepted it, if it is recorded. */
  sessionStarted(event: SessionFields & { readonly recorder?: string }): void;
  /** A started session is over. Called exactly once per `sessionStarted`. */
  sessionEnded(
    event: SessionFields & {
      readonly outcome: SessionOutcome;
      readonly reason?: string;
      readonly durationMs: number;
      readonly outputBytes: number;
      readonly inputBytes: number;
      readonly exitCode?: number;
      /** That a port-forward opened. */
      readonly ports?: readonly number[];
    },
  ): void;
  /** A session that should be recorded if possible runs unrecorded. */
  sessionUnrecorded(event: SessionFields & { readonly reason: string }): void;
  /** Output of a session that went on is missing from its recording. */
  recordingGap(event: SessionFields & { readonly reason: string; readonly bytes?: number }): void;
  /** The recorder of a running session is gone. `resumed`: another one took over without a gap. */
  recorderLost(
    event: SessionFields & {
      readonly mode: RecordingMode;
      readonly recorder: string;
      readonly reason: string;
      readonly resumed: boolean;
    },
  ): void;
  /** The recorder of a session is gone for good, and so many bytes of the recording were not acknowledged. */
  recordingLeft(event: SessionFields & { readonly bytes: number }): void;
  /** A recorder has acknowledged what was left. */
  recordingDelivered(
    event: SessionFields & { readonly bytes: number; readonly recorder: string; readonly waitedMs: number },
  ): void;
  /** `bytes` of the `ofBytes` that were left are in no recording. */
  recordingDropped(
    event: SessionFields & { readonly bytes: number; readonly ofBytes: number; readonly reason: string },
  ): void;
  /** `bytes` of the `ofBytes` that were left wait on disk, and no longer in this process. */
  recordingKept(
    event: SessionFields & { readonly bytes: number; readonly ofBytes: number; readonly reason: string },
  ): void;
  /** The buffer for the output of a session holds all it may: from now on the API server waits for the client. */
  outputHeldUp(event: SessionFields): void;
  /** The file for output that waits cannot be written: the session goes on without, and the API server waits sooner. */
  bufferFileLost(event: SessionFields & { readonly reason: string }): void;
  /** A recorded session's stream could not be understood; the session is ended. */
  sessionViolated(event: SessionFields & { readonly reason: string }): void;
  /** The gateway itself answered a request with an error. */
  requestRefused(event: {
    readonly id?: string;
    readonly code: ErrorCode;
    readonly reason: string;
    readonly protocol: Protocol;
    readonly peer: string;
    readonly method: string;
    /** Path without the query. */
    readonly path: string;
    readonly user?: string;
  }): void;
  /** No recorder took an API request event. Under `failClosed` the request was refused, otherwise it went on. */
  apiEventFailed(event: {
    readonly id: string;
    readonly mode: RecordingMode;
    readonly reason: string;
    readonly user: string;
  }): void;
  /** An exchange with the API server failed after the request was admitted. */
  upstreamFailed(event: { readonly id: string; readonly code: ErrorCode; readonly reason: string }): void;
  /** The gateway stops taking requests and waits for those in flight. */
  drainStarted(event: {
    readonly requests: number;
    readonly sessions: number;
    readonly limitMs: number;
  }): void;
  /** The drain is over; what was still open was cut. */
  drainEnded(event: { readonly cutRequests: number; readonly cutSessions: number }): void;
}

/** Creates the events of one process over its metrics and logger. */
export function createEvents(metrics: Metrics, log: Logger): Events {
  return {
    sessionStarted(event) {
      metrics.sessionsActive.inc();
      log.info(event, 'session started');
    },
    sessionEnded(event) {
      metrics.sessionsActive.dec();
      metrics.sessions.inc({ outcome: event.outcome });
      log.info(event, 'session ended');
    },
    sessionUnrecorded(event) {
      metrics.unrecordedSessions.inc();
      log.warn(event, 'session is not recorded');
    },
    recordingGap(event) {
      metrics.recordingGaps.inc();
      log.warn(event, 'recording has a gap');
    },
    recorderLost(event) {
      metrics.recorderLosses.inc({ mode: event.mode });
      log.warn(event, 'recorder lost');
    },
    recordingLeft(event) {
      metrics.lateWaiting.inc();
      metrics.lateBytesWaiting.inc(event.bytes);
      log.warn(event, 'end of a recording was not acknowledged');
    },
    recordingDelivered(event) {
      metrics.lateWaiting.dec();
      metrics.lateBytesWaiting.dec(event.bytes);
      metrics.late.inc({ outcome: 'delivered' });
      metrics.lateBytes.inc({ outcome: 'delivered' }, event.bytes);
      log.info(event, 'end of a recording was delivered late');
    },
    recordingDropped(event) {
      metrics.lateWaiting.dec();
      metrics.lateBytesWaiting.dec(event.ofBytes);
      metrics.late.inc({ outcome: 'dropped' });
      metrics.lateBytes.inc({ outcome: 'dropped' }, event.bytes);
      log.error(event, 'end of a recording was dropped');
    },
    recordingKept(event) {
      metrics.lateWaiting.dec();
      metrics.lateBytesWaiting.dec(event.ofBytes);
      log.info(event, 'end of a recording waits on disk');
    },
    outputHeldUp(event) {
      metrics.outputHeldUp.inc();
      log.warn(event, 'output of a session waits at the API server');
    },
    bufferFileLost(event) {
      metrics.bufferFileLosses.inc();
      log.warn(event, 'file for waiting output cannot be used');
    },
    sessionViolated(event) {
      metrics.violations.inc();
      log.warn(event, 'session violated its protocol');
    },
    requestRefused(event) {
      metrics.refusals.inc({ code: event.code });
      log.info(event, 'request refused');
    },
    apiEventFailed(event) {
      metrics.apiEventFailures.inc({ mode: event.mode });
      log.warn(event, 'api request event was not recorded');
    },
    upstreamFailed(event) {
      metrics.upstreamFailures.inc({ code: event.code });
      log.warn(event, 'exchange with the api server failed');
    },
    drainStarted(event) {
      log.info(event, 'draining');
    },
    drainEnded(event) {
      log.info(event, 'drained');
    },
  };
}
