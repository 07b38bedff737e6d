/**
 * Runs an upgraded connection from its 101 response to its end. If the gateway ends a session, it sends the reason
 * inside the protocol of the session. If this is impossible, it only closes the connection.
 */
import { callAfter, destroyAfter } from '../../async/deadline.ts';
import { errorText, TailcastError, type ErrorCode } from '../../errors.ts';
import type { Events, OutputLimit, SessionFields, SessionOutcome } from '../../observe/events.ts';
import type { RecorderUpload } from '../../recording/recorder-upload.ts';
import type { RecordingSession } from '../../recording/session.ts';
import type { Tap } from '../../recording/tap.ts';
import type { BufferDepth, BufferEvents, ElasticBuffers, SessionBuffer } from './elastic-buffers.ts';
import type { InsertOutput } from './notice.ts';
import type { StartModeration } from './moderated.ts';
import { followOrders } from './orders.ts';
import { startRelay, type Relay, type RelayEnd, type RelayOptions } from './relay.ts';
import type { SessionRegistry } from './session-registry.ts';
import type { Tunnel } from './tunnel.ts';

/** An upgraded connection after its 101 response. */
export interface LiveSession extends Pick<
  RelayOptions,
  'client' | 'clientHead' | 'upstream' | 'upstreamHead'
> {
  readonly fields: SessionFields;
  /** The recorded session, or the unrecorded tunnel. */
  readonly carried: SessionRecording | Tunnel;
  /** True if the end of the stream proves that the output is complete, even if the gateway paused reading. */
  readonly provesEnd: boolean;
  /** Depth of the output buffer. Without a buffer, the API server waits for the client. */
  readonly buffer?: BufferDepth;
}

/** A session with its recording. */
export interface SessionRecording {
  readonly session: RecordingSession;
  readonly tap: Tap;
  readonly upload: RecorderUpload;
  /** True if the session ends when its recorder is lost. */
  readonly enforce: boolean;
  /** Inserts the notice of a terminal session into the output of the API server. */
  readonly insert?: InsertOutput;
  /** Starts the moderation of a moderated session, which is not connected to the API server yet. */
  readonly moderate?: StartModeration | undefined;
}

export interface SessionDeps {
  readonly events: Pick<
    Events,
    | 'sessionStarted'
    | 'sessionEnded'
    | 'sessionViolated'
    | 'recorderLost'
    | 'recordingGap'
    | 'outputHeldUp'
    | 'bufferFileLost'
  >;
  readonly sessions: SessionRegistry;
  readonly buffers?: ElasticBuffers;
  readonly monotonicMs: () => number;
  /** Ends all sessions immediately when it aborts, without sending a reason to the clients. */
  readonly signal: AbortSignal;
  /**
   * Watches the access of the caller, and calls `end` when the caller has lost it. Returns a function that
   * stops watching.
   */
  readonly watch?: (end: (error: TailcastError) => void) => () => void;
  /** Maximum duration of a session. */
  readonly maxDurationMs?: number | undefined;
  /** Maximum time without input or output. */
  readonly idleMs?: number | undefined;
  /** Maximum time for which one connection stays open after the other connection has closed. */
  readonly lingerMs: number;
}

/** Result of a session. */
export interface SessionResult {
  readonly fromClient: number;
  readonly fromUpstream: number;
  /** Error with which the gateway ended the session; absent if the gateway did not end it. */
  readonly error?: ErrorCode;
}

/** End of a session and its reason. The client gets `error`. */
interface End {
  readonly outcome: SessionOutcome;
  readonly reason?: string;
  readonly error?: TailcastError;
}

/**
 * Runs the session until one side closes or the gateway ends it. Resolves when the recorder has acknowledged
 * the recording, or the recording has failed.
 */
export function runSession(live: LiveSession, deps: SessionDeps): Promise<SessionResult> {
  const wanted = Promise.withResolvers<End>();
  const running = run(live, deps, wanted);
  deps.sessions.add((reason) => {
    const error = new TailcastError('SHUTTING_DOWN', reason);
    wanted.resolve({ outcome: 'interrupted', reason: error.message, error });
  }, running);
  return running;
}

async function run(
  live: LiveSession,
  deps: SessionDeps,
  wanted: PromiseWithResolvers<End>,
): Promise<SessionResult> {
  const { fields } = live;
  const recording = recordingOf(live);
  const startedMs = deps.monotonicMs();
  deps.events.sessionStarted({
    ...fields,
    ...(recording === undefined ? {} : { recorder: recording.upload.address }),
  });
  const relay = startRelay({
    ...live,
    insert: recording?.insert,
    tap: live.carried.tap,
    mayReadAhead: recording === undefined ? undefined : () => recording.session.acceptsMore,
    isPaced: live.buffer === 'brief',
    lingerMs: deps.lingerMs,
    signal: deps.signal,
    ...bufferOf(live, deps),
    lastWords: (backpressured) => lastWordsOf(live, backpressured),
  });
  void relay.done.then((end) => wanted.resolve(judgeRelay(end, live, relay.backpressured)));
  if (recording !== undefined) watchRecorder(recording, live, deps, wanted);
  const endWith = (error: TailcastError): void => wanted.resolve(interrupted(error));
  const moderation = recording?.moderate?.(recording.session, endWith);
  const stopOrders = recording && followOrders({ ...recording, moderation }, relay, endWith);
  const stopWatching = deps.watch?.(endWith);
  const stopClocks = limitTime(live, relay, deps, endWith);
  const end = await wanted.promise;
  stopWatching?.();
  moderation?.stop();
  stopOrders?.();
  stopClocks();
  relay.stop();
  if (end.error === undefined) {
    live.client.destroy();
    live.upstream.destroy();
  } else {
    sayFarewell(live, end.error, deps.lingerMs);
  }
  await finishRecording(live, end, deps);
  report(live, end, relay, deps.monotonicMs() - startedMs, deps);
  return { ...relay.totals, ...(end.error === undefined ? {} : { error: end.error.code }) };
}

function recordingOf({ carried }: Pick<LiveSession, 'carried'>): SessionRecording | undefined {
  return 'session' in carried ? carried : undefined;
}

function incompleteReasonOf({ carried, provesEnd }: LiveSession, backpressured: boolean): string | undefined {
  return carried.tap.incompleteReason(backpressured && !provesEnd);
}

/**
 * Outcome of the session for each error of a tap. All other errors mean that the tap could not parse the
 * bytes.
 */
const REFUSALS: ReadonlyMap<ErrorCode, SessionOutcome> = new Map([
  ['RECORDER_LOST', 'recorder-lost'],
  ['POLICY_REFUSED', 'refused'],
  ['OUTPUT_LOST', 'interrupted'],
  ['SESSION_LIMIT', 'interrupted'],
]);

const BAD_GATEWAY = 502;

/**
 * Returns an error status for the client if the end of the output is unproved. kubectl would treat a
 * connection that closes without a status as success.
 */
function lastWordsOf(live: LiveSession, backpressured: boolean): Uint8Array | undefined {
  const reason = incompleteReasonOf(live, backpressured);
  return reason === undefined ? undefined : live.carried.tap.farewell(`tailcast: ${reason}`, BAD_GATEWAY);
}

/** Returns the relay options for the output buffer of a session. */
function bufferOf(
  { buffer, fields }: LiveSession,
  { buffers, events }: SessionDeps,
): Pick<RelayOptions, 'openBuffer' | 'bufferFull'> {
  if (buffer === undefined || buffers === undefined) return {};
  const reported = new Set<OutputLimit>();
  return {
    openBuffer: (ends: BufferEvents): SessionBuffer =>
      buffers.open(buffer, fields.user, {
        ...ends,
        fileLost: (error) => events.bufferFileLost({ ...fields, reason: errorText(error) }),
        failed: (error) => ends.failed(new TailcastError('OUTPUT_LOST', errorText(error), { cause: error })),
      }),
    bufferFull: (limit) => {
      if (!reported.has(limit)) events.outputHeldUp({ ...fields, limit });
      reported.add(limit);
    },
  };
}

const CLIENT_LEFT = 'the client closed its connection before the command ended';

function judgeRelay(end: RelayEnd, live: LiveSession, backpressured: boolean): End {
  const incomplete = incompleteReasonOf(live, backpressured);
  switch (end.kind) {
    case 'closed':
      return judgeClosed(end.first, live, incomplete);
    case 'broken':
      return judgeBroken(end, live, incomplete);
    case 'refused': {
      const error = end.error instanceof TailcastError ? end.error : new TailcastError('INTERNAL');
      const outcome = REFUSALS.get(error.code) ?? 'violated';
      return { outcome, reason: errorText(end.error), error };
    }
    case 'stopped':
      return { outcome: 'interrupted', reason: 'the gateway stopped' };
  }
}

function judgeClosed(first: 'client' | 'upstream', live: LiveSession, incomplete: string | undefined): End {
  if (first === 'upstream' && incomplete !== undefined) return { outcome: 'interrupted', reason: incomplete };
  // only the exit status proves that the command ended, because a killed client also closes its connection
  const clientLeft = first === 'client' || live.carried.tap.hasClientLeft();
  if (clientLeft && recordingOf(live) !== undefined && !hasExited(live))
    return { outcome: 'client-disconnected', reason: CLIENT_LEFT };
  return { outcome: 'completed' };
}

function judgeBroken(
  { side, error }: Extract<RelayEnd, { readonly kind: 'broken' }>,
  live: LiveSession,
  incomplete: string | undefined,
): End {
  // After the exit status, a broken client connection is normal: kubectl may close its connection
  // immediately.
  if (hasExited(live) && (side === 'client' || incomplete === undefined)) return { outcome: 'completed' };
  const reason = `the connection of the ${side} broke: ${error.message}`;
  return { outcome: side === 'client' ? 'client-disconnected' : 'interrupted', reason };
}

function hasExited(live: LiveSession): boolean {
  return recordingOf(live)?.session.totals.exit !== undefined;
}

function watchRecorder(
  { session, upload, enforce }: SessionRecording,
  { fields }: LiveSession,
  deps: SessionDeps,
  wanted: PromiseWithResolvers<End>,
): void {
  void upload.lost.then((lost) => {
    const mode = enforce ? 'failClosed' : 'failOpen';
    const reason = lost.message;
    deps.events.recorderLost({ ...fields, mode, recorder: upload.address, reason, resumed: false });
    session.abandon(reason);
    if (!enforce) return;
    const error = lost instanceof TailcastError ? lost : new TailcastError('RECORDER_LOST', reason);
    wanted.resolve({ outcome: 'recorder-lost', reason, error });
  });
}

function interrupted(error: TailcastError): End {
  return { outcome: 'interrupted', reason: error.message, error };
}

const MINUTE_MS = 60_000;

/** Ends a session that exceeds its maximum duration or idle time. */
function limitTime(
  live: LiveSession,
  relay: Relay,
  { maxDurationMs, idleMs, monotonicMs }: SessionDeps,
  end: (error: TailcastError) => void,
): () => void {
  const recording = recordingOf(live);
  const stops: (() => void)[] = [];
  const inMinutes = (ms: number): string => `${Math.round((ms / MINUTE_MS) * 10) / 10} minutes`;
  if (maxDurationMs !== undefined) {
    const error = new TailcastError('SESSION_LIMIT', `it may last ${inMinutes(maxDurationMs)}`);
    stops.push(callAfter(maxDurationMs, () => end(error)));
  }
  if (idleMs !== undefined) {
    // A recorded session counts only input and output, so that pings of kubectl do not keep it open.
    const bytes = (): number =>
      recording === undefined
        ? relay.totals.fromClient + relay.totals.fromUpstream
        : recording.session.totals.inputBytes + recording.session.totals.outputBytes;
    let seen = bytes();
    let sinceMs = monotonicMs();
    const look = (): void => {
      const now = bytes();
      if (now !== seen) sinceMs = monotonicMs();
      seen = now;
      if (monotonicMs() - sinceMs < idleMs) return;
      end(new TailcastError('SESSION_LIMIT', `nothing has happened in it for ${inMinutes(idleMs)}`));
    };
    const timer = setInterval(look, Math.min(1000, idleMs / 4));
    stops.push(() => clearInterval(timer));
  }
  return () => {
    for (const stop of stops) stop();
  };
}

/** Closes both connections. The client first gets the reason if its stream is at a frame boundary. */
function sayFarewell(live: LiveSession, error: TailcastError, lingerMs: number): void {
  const { client, upstream, carried } = live;
  upstream.destroy();
  const words = carried.tap.farewell(`tailcast: ${error.message}`, error.entry.status);
  if (words === undefined || client.destroyed || client.writableEnded) {
    client.destroy();
    return;
  }
  client.end(words);
  client.resume();
  destroyAfter(client, lingerMs);
}

async function finishRecording(live: LiveSession, end: End, deps: SessionDeps): Promise<void> {
  const { fields } = live;
  const recording = recordingOf(live);
  if (recording === undefined) return;
  const { session } = recording;
  // If the recorder was lost, `watchRecorder` has already ended the recording.
  if (end.outcome === 'recorder-lost') return;
  try {
    const outcome = end.outcome === 'refused' ? 'interrupted' : end.outcome;
    await session.end(outcome, end.reason);
  } catch (error) {
    const bytes = session.totals.missingBytes;
    deps.events.recordingGap({ ...fields, reason: errorText(error), ...(bytes === 0 ? {} : { bytes }) });
  }
}

function report(live: LiveSession, end: End, relay: Relay, durationMs: number, deps: SessionDeps): void {
  const { fields, carried } = live;
  const recording = recordingOf(live);
  const ports = 'ports' in carried ? carried.ports?.() : undefined;
  const { fromClient, fromUpstream } = relay.totals;
  const totals = recording?.session.totals ?? {
    inputBytes: fromClient,
    outputBytes: fromUpstream,
    exit: undefined,
  };
  const { exit } = totals;
  const exitCode = exit?.kind === 'success' ? 0 : exit?.kind === 'exit' ? exit.code : undefined;
  if (end.outcome === 'violated') deps.events.sessionViolated({ ...fields, reason: end.reason ?? '' });
  deps.events.sessionEnded({
    ...fields,
    outcome: end.outcome,
    ...(end.reason === undefined ? {} : { reason: end.reason }),
    durationMs,
    outputBytes: totals.outputBytes,
    inputBytes: totals.inputBytes,
    ...(exitCode === undefined ? {} : { exitCode }),
    ...(ports === undefined ? {} : { ports }),
  });
}
