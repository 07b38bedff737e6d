/**
 * One function for each business event. Each function writes the log line and updates the metrics of the event, if any,
 * so that callers cannot forget one of the two. Messages are constant, and fields contain the variable data. Labels of
 * counters have low cardinality. No field may contain a header value, a body or terminal content.
 */
import type { ErrorCode } from '../errors.ts';
import type { Logger } from './logger.ts';
import type { Metrics, Protocol } from './metrics.ts';

/** Fields that identify an interactive session in its events. */
export interface SessionFields {
  /** Id of the session. The gateway assigns the id when it admits the request. */
  readonly sessionId: string;
  /** Login name or node name. */
  readonly user: string;
  /** Tailnet node of the client. */
  readonly node: string;
  /** `exec`, `attach`, `portForward`, … */
  readonly kind: string;
  readonly namespace?: string;
  readonly pod?: string;
  readonly container?: string;
  /** Name of the cluster, if the gateway serves several clusters. */
  readonly cluster?: string;
}

/** Name of a limit for the pending output of a session. */
export type OutputLimit = 'session' | 'userMemory' | 'userDisk';

const LIMITS: Readonly<Record<OutputLimit, string>> = {
  session: 'maximum output of one session',
  userMemory: 'share of the user in the memory for the output of all sessions',
  userDisk: 'share of the user in the disk space for the output of all sessions',
};

/** Outcome of a session. */
export type SessionOutcome =
  | 'completed'
  | 'interrupted'
  | 'violated'
  | 'client-disconnected'
  | 'recorder-lost'
  | 'refused';

/**
 * Modes of recording. If no recorder is available, `failOpen` means that the session or request continues without a
 * recording. `failClosed` means that the gateway ends the session or rejects the request.
 */
export type RecordingMode = 'failOpen' | 'failClosed';

export interface Events {
  /**
   * A session started, because the API server responded with 101. `recorder` is the recorder's address, if the session
   * is recorded.
   */
  sessionStarted(event: SessionFields & { readonly recorder?: string }): void;
  /** A session ended. Called exactly once for each call of `sessionStarted`. */
  sessionEnded(
    event: SessionFields & {
      readonly outcome: SessionOutcome;
      readonly reason?: string;
      readonly durationMs: number;
      readonly outputBytes: number;
      readonly inputBytes: number;
      readonly exitCode?: number;
      /** Ports that a port-forward opened. */
      readonly ports?: readonly number[];
    },
  ): void;
  /** A session runs without a recording, because its recording is not enforced and could not start. */
  sessionUnrecorded(event: SessionFields & { readonly reason: string }): void;
  /** Output of a session is missing from its recording. */
  recordingGap(event: SessionFields & { readonly reason: string; readonly bytes?: number }): void;
  /** The recorder of a running session failed. `resumed`: another recorder continued the recording without a gap. */
  recorderLost(
    event: SessionFields & {
      readonly mode: RecordingMode;
      readonly recorder: string;
      readonly reason: string;
      readonly resumed: boolean;
    },
  ): void;
  /**
   * A session ended before a recorder had acknowledged all recorded output. `bytes`: size of the output without an
   * acknowledgement.
   */
  recordingIncomplete(event: SessionFields & { readonly bytes: number }): void;
  /** After the end of a session, a recorder acknowledged the rest of the recording. */
  recordingDelivered(
    event: SessionFields & { readonly bytes: number; readonly recorder: string; readonly waitedMs: number },
  ): void;
  /**
   * Recorded output was discarded. `ofBytes`: size of the pending output. `bytes`: size of the part that is in no
   * recording.
   */
  recordingDropped(
    event: SessionFields & { readonly bytes: number; readonly ofBytes: number; readonly reason: string },
  ): void;
  /**
   * Recorded output stays on disk when this process exits. `ofBytes`: size of the pending output. `bytes`: size of the
   * part that is on disk.
   */
  recordingJournaled(
    event: SessionFields & { readonly bytes: number; readonly ofBytes: number; readonly reason: string },
  ): void;
  /** The output buffer of a session has reached a limit, so the API server must wait until the client reads. */
  outputHeldUp(event: SessionFields & { readonly limit: OutputLimit }): void;
  /**
   * The file for pending output cannot be written. The session continues without the file, so the gateway pauses the
   * API server sooner.
   */
  bufferFileLost(event: SessionFields & { readonly reason: string }): void;
  /** The stream of a recorded session could not be parsed; the gateway ends the session. */
  sessionViolated(event: SessionFields & { readonly reason: string }): void;
  /** The gateway itself responded to a request with an error. */
  requestRefused(event: {
    readonly id?: string;
    readonly code: ErrorCode;
    readonly reason: string;
    readonly protocol: Protocol;
    readonly peer: string;
    readonly method: string;
    /** Path of the request, without the query. */
    readonly path: string;
    readonly user?: string;
  }): void;
  /** No recorder accepted an API request event. With `failClosed` the gateway rejected the request. */
  apiEventFailed(event: {
    readonly id: string;
    readonly mode: RecordingMode;
    readonly reason: string;
    readonly user: string;
  }): void;
  /** A request to the API server failed after admission. */
  upstreamFailed(event: { readonly id: string; readonly code: ErrorCode; readonly reason: string }): void;
  /** The gateway stops accepting requests and waits for in-flight requests. */
  drainStarted(event: {
    readonly requests: number;
    readonly sessions: number;
    readonly limitMs: number;
  }): void;
  /** The drain time is over, and the gateway has closed the remaining requests and sessions. */
  drainEnded(event: { readonly cutRequests: number; readonly cutSessions: number }): void;
}

/** Creates the event functions of a process, which use the metrics and the logger of the process. */
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
    recordingIncomplete(event) {
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
    recordingJournaled(event) {
      metrics.lateWaiting.dec();
      metrics.lateBytesWaiting.dec(event.ofBytes);
      log.info(event, 'end of a recording waits on disk');
    },
    outputHeldUp(event) {
      metrics.outputHeldUp.inc({ limit: event.limit });
      log.warn({ ...event, limit: LIMITS[event.limit] }, 'output of a session waits at the API server');
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
