/**
 * Handles upgrade requests: exec, attach, port-forward, and other upgrades.
 *
 * ```
 * gate → event → decision → open recorder → request to API server → 101 or refusal → recorded relay → end
 * └──────── each of these may refuse with a Kubernetes Status ────────┘
 * ```
 *
 * The recorder accepts the session before the API server gets the request. The gateway can therefore still refuse the
 * session with an HTTP response, and no session that must be recorded runs without a recording. The gateway sends
 * nothing of the recording before the 101 response of the API server, so a refused session leaves no recording.
 */
import type { IncomingMessage } from 'node:http';
import type { Duplex } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { TailcastError } from '../../errors.ts';
import { destroyAfter } from '../../async/deadline.ts';
import type { RequestClass } from '../../kube/interactive.ts';
import { cleanResponseHeaders, handshakeForBrowser, headerLines, withoutHeader } from '../../kube/headers.ts';
import { rawStatusResponse } from '../../kube/status.ts';
import { responseWarnings } from '../../kube/warning.ts';
import type { Events } from '../../observe/events.ts';
import type { RecordingLimits } from '../../recording/session.ts';
import { recordableHeaders, SUBPROTOCOL_HEADER } from '../../recording/stream-plan.ts';
import type { Peer } from '../../tailnet/identity.ts';
import type { TranslateExec } from './exec-upstream.ts';
import {
  connectEarly,
  dialUpgrade,
  type ConnectUpstream,
  type UpgradeAnswer,
  type UpgradeDial,
} from './dial.ts';
import type { Account } from '../gate/account.ts';
import type { AccountRefusals } from '../gate/account-refusals.ts';
import type { AdmitCounted, CountedAdmission } from '../gate/user-limits.ts';
import type { Admission, InboundRequest } from '../gate/gate.ts';
import type { Rechecks } from '../gate/recheck.ts';
import type { SessionCounts } from './session-counts.ts';
import {
  abortWhenOpen,
  beginRecording,
  mayHideTerminal,
  openRecorder,
  recordEvent,
  sessionFields,
  waitOf,
  type RecorderDeps,
} from './upgrade-recorder.ts';
import {
  encodeChunks,
  encodeUpgradeHead,
  parseUpgradeRequest,
  prepareSocket,
  warningLines,
  type UpgradeRequest,
} from './upgrade-http.ts';
import type { RefuseHiddenTerminal } from './container-terminal.ts';
import type { HeldDial, HoldSession } from './moderated.ts';
import { checkStream, createTunnel, limitRefusal, refuseUnrecorded, type Tunnel } from './tunnel.ts';
import {
  runSession,
  type SessionRecording,
  type LiveSession,
  type SessionDeps,
  type SessionResult,
} from './upgrade-session.ts';

/** Handles an upgrade request, and owns the socket from then on. The promise must not reject. */
export type UpgradeHandler = (
  request: IncomingMessage,
  socket: Duplex,
  head: Buffer,
  peer: Peer,
) => Promise<void>;

export interface UpgradeDeps
  extends
    Pick<SessionDeps, 'sessions' | 'signal' | 'monotonicMs' | 'maxDurationMs' | 'idleMs' | 'buffers'>,
    Pick<RecorderDeps, 'recorders' | 'findRecorders' | 'recordApiRequest'> {
  /** Admits a request, and counts it for its user until its session ends. */
  readonly admit: AdmitCounted;
  /** Opens the access-log entry and the counters of a request. */
  readonly openAccount: (inbound: InboundRequest) => Account;
  readonly connect: ConnectUpstream;
  /**
   * Path of the API server's URL, which precedes every request target. Has no trailing slash; empty for most
   * API servers.
   */
  readonly basePath: string;
  /**
   * Translates recorded WebSocket sessions to SPDY. If absent, the gateway uses the protocol of the client.
   */
  readonly translateExec?: TranslateExec;
  /** True if users of terminal sessions must type a reason. */
  readonly asksReason?: boolean;
  /**
   * Delays sessions that need a reason from the user, a moderator, or both. If absent, the gateway refuses such
   * sessions.
   */
  readonly holdSession?: HoldSession;
  /** Refuses a session with a terminal that the request does not mention. If absent, such sessions are allowed. */
  readonly refuseHiddenTerminal?: RefuseHiddenTerminal;
  /** Limits on the number of sessions. */
  readonly counts?: SessionCounts;
  readonly rechecks?: Pick<Rechecks, 'watch'>;
  /**
   * Distinguishes a 403 for the gateway's own account from a 403 for the caller. Without this check, every 403 counts
   * as a refusal of the caller.
   */
  readonly accountRefusals?: AccountRefusals;
  /** Limits of port-forwards. Default: none. */
  readonly portForwards?: Parameters<typeof createTunnel>[3];
  readonly events: SessionDeps['events'] & RecorderDeps['events'] & Pick<Events, 'upstreamFailed'>;
  /** True if the client may get cookies of the API server; false in `auth` mode. */
  readonly keepCookies: boolean;
  /** Line that the gateway shows at the start of recorded terminal sessions. */
  readonly notice?: string | undefined;
  readonly unixMs: () => number;
  readonly limits?: Partial<UpgradeLimits>;
}

export interface UpgradeLimits extends Partial<RecordingLimits> {
  /** Timeout of the API server's response. The API server may have to connect to a kubelet first. */
  readonly responseTimeoutMs: number;
  /** Maximum time for which one connection stays open after the other connection has closed. */
  readonly lingerMs: number;
}

const UPGRADE_LIMITS: UpgradeLimits = { responseTimeoutMs: 60_000, lingerMs: 5_000 };

const SWITCHING = 101;

/**
 * Classes of requests that reach other programs, which may use any upgrade protocol. The API server itself
 * supports only SPDY/3.1 and WebSocket.
 */
const SPOKEN_BY_APPS: ReadonlySet<RequestClass> = new Set(['nodeProxy', 'podProxy', 'serviceProxy']);

/** An upgrade before its 101 response. */
interface Attempt {
  readonly deps: UpgradeDeps;
  readonly limits: UpgradeLimits;
  readonly request: IncomingMessage;
  readonly client: Duplex;
  readonly clientHead: Buffer;
  readonly peer: Peer;
  /** Aborts when the client disconnects or the process exits. */
  readonly signal: AbortSignal;
  readonly account: Account;
  /** The API request event, from the moment when the gateway sends it to a recorder. */
  event?: Promise<void>;
}

/**
 * A session after its 101 response. The promise is inside an object, because an async function that returned
 * the promise itself would wait for the end of the session.
 */
interface Running {
  readonly finished: Promise<SessionResult>;
}

/**
 * Creates the handler. The promise of the handler resolves when connection and recording are complete, and
 * never rejects.
 */
export function createUpgradeHandler(deps: UpgradeDeps): UpgradeHandler {
  const limits: UpgradeLimits = { ...UPGRADE_LIMITS, ...deps.limits };
  return async (request, client, clientHead, peer) => {
    const left = new AbortController();
    const onClose = (): void => left.abort(new Error('the client left'));
    client.once('close', onClose);
    client.on('error', () => {}); // the `close` event follows
    prepareSocket(client);
    const signal = AbortSignal.any([deps.signal, left.signal]);
    const inbound = {
      method: request.method ?? '',
      target: request.url ?? '',
      rawHeaders: request.rawHeaders,
      peer,
      upgrade: true,
    };
    const account = deps.openAccount(inbound);
    const attempt: Attempt = { deps, limits, request, client, clientHead, peer, signal, account };
    let counted: CountedAdmission | undefined;
    let running: Running | undefined;
    let leave: (() => void) | undefined;
    try {
      if (deps.sessions.closing) throw new TailcastError('SHUTTING_DOWN');
      const upgrade = parseUpgradeRequest({ ...inbound, httpVersion: request.httpVersion });
      counted = await deps.admit({ inbound, account, isOver: () => signal.aborted }, signal);
      leave = await deps.counts?.enter(counted.admission.user);
      running = await open(attempt, upgrade, counted.admission);
      if (running !== undefined) counted.place?.becomeSession();
    } catch (error) {
      refuse(attempt, error);
    } finally {
      client.off('close', onClose);
    }
    try {
      const result = await running?.finished;
      if (result !== undefined) account.sessionEnded(result);
    } finally {
      leave?.();
      account.close();
      // The slot of a disconnected client is released only now, so that each user has a limited number of pending
      // events.
      await attempt.event?.catch(() => undefined);
      counted?.place?.leave();
    }
  };
}

/**
 * Handles the request up to the 101 response. Resolves with the running session, or with undefined if the API server
 * refused the request.
 */
async function open(
  attempt: Attempt,
  upgrade: UpgradeRequest,
  admission: Admission,
): Promise<Running | undefined> {
  const { deps } = attempt;
  if (upgrade.protocol === 'other' && !SPOKEN_BY_APPS.has(admission.requestClass)) {
    throw new TailcastError('UPGRADE_REFUSED', 'the protocol is neither SPDY/3.1 nor WebSocket');
  }
  checkStream(admission, upgrade.protocol);
  await checkTerminal(attempt, admission);
  const event = recordEvent(deps.recordApiRequest, attempt.request, admission);
  attempt.event = event;
  if (admission.record) return record(attempt, upgrade, admission, event);
  await event;
  return tunnel(attempt, upgrade, admission);
}

/** @throws TailcastError `POLICY_REFUSED` for a recorded session with a terminal that the request does not mention */
async function checkTerminal({ deps, signal }: Attempt, admission: Admission): Promise<void> {
  if (admission.record && mayHideTerminal(admission, deps))
    await deps.refuseHiddenTerminal?.(admission, admission.cluster?.upstream ?? deps, signal);
}

/** Relays a connection without recording it. */
async function tunnel(
  attempt: Attempt,
  upgrade: UpgradeRequest,
  admission: Admission,
): Promise<Running | undefined> {
  const { deps, limits, request } = attempt;
  const { connect, basePath } = admission.cluster?.upstream ?? deps;
  const answer = await ask(attempt, admission, {
    connect,
    method: request.method ?? '',
    target: `${basePath}${admission.target.raw}`,
    headers: admission.headers,
    protocol: upgrade.value,
    responseTimeoutMs: limits.responseTimeoutMs,
  });
  if (answer.kind === 'refused') return relayRefusal(attempt, admission, answer);
  const carried = createTunnel(admission, upgrade.protocol, answer.rawHeaders, deps.portForwards);
  return start(attempt, admission, answer, { protocol: upgrade.value, carried });
}

/**
 * Relays and records a connection. Refuses a protocol that cannot be recorded. If no recorder is available and
 * recording is not enforced, relays the connection unrecorded.
 */
async function record(
  attempt: Attempt,
  upgrade: UpgradeRequest,
  admission: Admission,
  event: Promise<void>,
): Promise<Running | undefined> {
  const { deps, limits, request } = attempt;
  if (upgrade.protocol === 'other') {
    throw new TailcastError('UPGRADE_REFUSED', 'the protocol is neither SPDY/3.1 nor WebSocket');
  }
  const { headers, offered } = recordableHeaders(upgrade.protocol, admission.headers);
  // The gateway sends the request to the API server only after a recorder has stored the event and accepted the
  // session.
  const { connect, basePath } = admission.cluster?.upstream ?? deps;
  // For a session that can start immediately, the gateway connects to the API server and to the recorder at the same
  // time. Other sessions wait for a moderator or a reason: an unused connection could break unnoticed during this wait.
  const wait = waitOf(admission, deps.asksReason);
  const early = wait === undefined ? connectEarly(connect) : { connect, discard: (): void => {} };
  const opening = openRecorder(deps, admission, sessionFields(admission), attempt.signal);
  const [opened] = await Promise.all([opening, event]).catch((error: unknown) => {
    early.discard();
    abortWhenOpen(opening);
    throw error;
  });
  try {
    const dial: UpgradeDial = {
      connect: early.connect,
      method: request.method ?? '',
      target: `${basePath}${admission.target.raw}`,
      headers,
      protocol: upgrade.value,
      subprotocol: { header: SUBPROTOCOL_HEADER[upgrade.protocol], offered },
      responseTimeoutMs: limits.responseTimeoutMs,
    };
    const { answer, moderate } =
      wait === undefined || opened.upload === undefined
        ? { answer: await askExec(attempt, admission, dial), moderate: undefined }
        : hold(attempt, admission, { ...wait, protocol: upgrade.protocol, dial });
    if (answer.kind === 'refused') {
      opened.upload?.abort();
      return relayRefusal(attempt, admission, answer);
    }
    try {
      const recording = beginRecording(
        { ...deps, limits },
        admission,
        upgrade.protocol,
        answer,
        opened.upload,
      );
      return await start(attempt, admission, answer, {
        protocol: upgrade.value,
        carried:
          (recording && { ...recording, moderate }) ??
          createTunnel(admission, upgrade.protocol, answer.rawHeaders),
        warnings: opened.warnings,
      });
    } catch (error) {
      answer.socket.destroy();
      throw error;
    }
  } catch (error) {
    early.discard();
    opened.upload?.abort();
    throw error;
  }
}

/** Prepares a session that cannot start immediately, because it needs a reason from the user, a moderator, or both. */
function hold(
  attempt: Attempt,
  admission: Admission,
  held: Pick<HeldDial, 'rules' | 'asksReason' | 'protocol' | 'dial'>,
): ReturnType<HoldSession> {
  const { holdSession, translateExec } = attempt.deps;
  if (holdSession === undefined) throw new TailcastError('INTERNAL', 'this gateway cannot delay sessions');
  const isTranslated = translateExec?.(admission, held.dial) !== undefined;
  const ask: HeldDial['ask'] = async (later, over) => {
    const during = { ...attempt, signal: AbortSignal.any([attempt.signal, over]) };
    // the pod may have been replaced during the wait
    await checkTerminal(during, admission);
    return askExec(during, admission, later);
  };
  return holdSession({ ...held, admission, isTranslated, ask });
}

/**
 * Sends an exec or attach request to the API server, translated to SPDY if possible. Without the translation, the
 * request itself may start the command, so the gateway waits for the response even if the client has left.
 */
async function askExec(attempt: Attempt, admission: Admission, dial: UpgradeDial): Promise<UpgradeAnswer> {
  const translation = attempt.deps.translateExec?.(admission, dial);
  if (translation === undefined) return ask(attempt, admission, dial, attempt.deps.signal);
  const answer = await ask(attempt, admission, translation.dial);
  if (answer.kind === 'refused') return answer;
  // This check comes before the translation, because the translation opens the streams, which starts the command.
  if (attempt.signal.aborted) answer.socket.destroy();
  attempt.signal.throwIfAborted();
  return translation.answer(answer);
}

/** @param sent see `dialUpgrade` */
async function ask(
  attempt: Attempt,
  admission: Admission,
  dial: UpgradeDial,
  sent: AbortSignal = attempt.signal,
): Promise<UpgradeAnswer> {
  try {
    const answer = await dialUpgrade(dial, attempt.signal, sent);
    if (answer.kind === 'switched') return answer;
    refuseUnrecorded(admission, answer);
    const { accountRefusals } = admission.cluster?.upstream ?? attempt.deps;
    const refusal = await accountRefusals?.find(admission, answer.status, answer.rawHeaders);
    if (refusal === undefined) return answer;
    answer.body.destroy();
    throw refusal;
  } catch (error) {
    if (error instanceof TailcastError) {
      attempt.deps.events.upstreamFailed({ id: admission.id, code: error.code, reason: error.message });
    }
    throw error;
  }
}

/** Sends the 101 response to the client and starts the session. */
async function start(
  attempt: Attempt,
  admission: Admission,
  answer: Extract<UpgradeAnswer, { kind: 'switched' }>,
  agreed: {
    readonly protocol: string;
    readonly carried: SessionRecording | Tunnel;
    readonly warnings?: readonly string[];
  },
): Promise<Running> {
  const { deps, limits, client } = attempt;
  const { protocol, carried, warnings = [] } = agreed;
  // For a session without a terminal, `flush` sends the asciicast header to the recorder. If the recorder is already
  // lost, the gateway can still refuse the session with an HTTP response. The gateway completes the recording even if
  // the client has left, because the command may already run.
  if ('session' in carried) await carried.session.flush();
  else attempt.signal.throwIfAborted();
  attempt.account.answered(SWITCHING);
  attempt.account.count();
  const clean = cleanResponseHeaders(withoutHeader(answer.rawHeaders, 'content-length'), deps);
  const fields = admission.shown ? handshakeForBrowser(clean) : clean;
  client.write(
    encodeUpgradeHead(`101 ${answer.statusMessage}`, [
      ...fields,
      ...warningLines([...responseWarnings(admission, SWITCHING), ...warnings]),
      'Connection',
      'Upgrade',
      'Upgrade',
      protocol,
    ]),
  );
  const live = {
    fields: sessionFields(admission),
    client,
    clientHead: attempt.clientHead,
    upstream: answer.socket,
    upstreamHead: answer.head,
    carried,
    provesEnd: answer.provesEnd === true,
    ...bufferFor(admission),
  };
  const { rechecks } = deps;
  const watch =
    rechecks === undefined
      ? undefined
      : (end: (error: TailcastError) => void) => rechecks.watch(admission, attempt.peer, end);
  return {
    finished: runSession(live, {
      ...deps,
      lingerMs: limits.lingerMs,
      ...(watch === undefined ? {} : { watch }),
    }),
  };
}

/**
 * Returns the buffer depth of a session. The output of a program gets a deep buffer. When the program exits, the API
 * server may close the connection before the gateway has read all output. A terminal gets a brief buffer, so that it
 * reacts quickly to Ctrl-C. A port-forward gets no buffer, because its client needs the back-pressure.
 */
function bufferFor({ policyClass, exec }: Admission): Pick<LiveSession, 'buffer'> {
  if (policyClass !== 'exec' && policyClass !== 'attach') return {};
  return { buffer: exec.tty ? 'brief' : 'deep' };
}

/**
 * Relays a refusal of the API server. A body without a Content-Length is sent with chunked coding, so that
 * the client recognises its end.
 */
async function relayRefusal(
  attempt: Attempt,
  admission: Admission,
  answer: Extract<UpgradeAnswer, { kind: 'refused' }>,
): Promise<undefined> {
  const { client, deps, account, request, limits } = attempt;
  account.answered(answer.status);
  account.count();
  const clean = cleanResponseHeaders(answer.rawHeaders, deps);
  const fields = admission.shown ? handshakeForBrowser(clean) : clean;
  const bodiless = answer.status === 204 || answer.status === 304 || request.method === 'HEAD';
  const inChunks = !bodiless && headerLines(answer.rawHeaders, 'content-length').length === 0;
  client.write(
    encodeUpgradeHead(`${answer.status} ${answer.statusMessage}`, [
      ...fields,
      ...warningLines(responseWarnings(admission, answer.status)),
      ...(inChunks ? ['Transfer-Encoding', 'chunked'] : []),
      'Connection',
      'close',
    ]),
  );
  client.resume();
  const signal = AbortSignal.timeout(limits.responseTimeoutMs);
  try {
    const limited = limitRefusal(admission);
    if (inChunks) await pipeline(answer.body, limited, encodeChunks, client, { signal });
    else await pipeline(answer.body, limited, client, { signal });
  } catch (error) {
    // If one connection breaks, `pipeline` destroys both, and the client sees an incomplete response.
    if (error instanceof TailcastError) account.failed(error.code);
  } finally {
    answer.body.destroy();
  }
}

/** Sends an error of the gateway as a Status. */
function refuse(attempt: Attempt, error: unknown): void {
  const { client, account, limits, signal } = attempt;
  if (signal.aborted || client.destroyed) {
    client.destroy();
    return;
  }
  const known =
    error instanceof TailcastError ? error : new TailcastError('INTERNAL', undefined, { cause: error });
  account.refused(error, known.entry.status);
  account.count();
  client.end(rawStatusResponse(known));
  client.resume();
  destroyAfter(client, limits.lingerMs);
}
