/**
 * Opens the recording of a session at a recorder before the API server gets the request. Without a recorder,
 * the policy decides whether the session may start.
 */
import type { IncomingMessage } from 'node:http';
import { errorText, TailcastError } from '../../errors.ts';
import type { Events, SessionFields } from '../../observe/events.ts';
import type { LateEvents } from '../../recording/late-end.ts';
import type { NamedRecorders } from '../../recording/find-recorders.ts';
import type { RecorderClient } from '../../recording/recorder-client.ts';
import { headerLines } from '../../kube/headers.ts';
import { castHeaderLine, sessionAnnotation, type SessionBeginning } from '../../recording/cast-header.ts';
import type { RecorderUpload } from '../../recording/recorder-upload.ts';
import { RecordingSession, type RecordingLimits } from '../../recording/session.ts';
import type { StreamProtocol } from '../../recording/stream-plan.ts';
import type { Admission } from '../gate/gate.ts';
import type { UpgradeAnswer } from './dial.ts';
import type { HeldDial } from './moderated.ts';
import { createNotedTap } from './notice.ts';
import type { SessionRecording } from './upgrade-session.ts';
import type { ApiRequest } from '../../recording/request-event.ts';

type LateEvent = 'recordingIncomplete' | 'recordingDelivered' | 'recordingDropped' | 'recordingJournaled';

export interface RecorderDeps {
  readonly recorders: RecorderClient;
  /** Returns the addresses of the recorders for a session. Default: the addresses in the grants. */
  readonly findRecorders?: (recording: NamedRecorders, signal: AbortSignal) => Promise<readonly string[]>;
  /**
   * Sends an API request event to a recorder.
   *
   * @throws an error if no recorder stores the event and the policy requires the event
   */
  recordApiRequest(record: ApiRequest): Promise<void>;
  readonly events: Pick<Events, 'recorderLost' | 'sessionUnrecorded' | LateEvent>;
}

/**
 * Opens an upload at a recorder. If no recorder is available and the policy allows unrecorded sessions, returns a
 * warning instead.
 * @throws TailcastError `RECORDING_REQUIRED` if no recorder is available and recording is enforced
 */
export async function openRecorder(
  deps: RecorderDeps,
  { id, recording }: Pick<Admission, 'id' | 'recording'>,
  fields: SessionFields,
  signal: AbortSignal,
): Promise<{ readonly upload: RecorderUpload | undefined; readonly warnings: readonly string[] }> {
  if (recording.mode === 'off') throw new TailcastError('INTERNAL', 'there is nothing to record');
  const { mode } = recording;
  try {
    const recorders = (await deps.findRecorders?.(recording, signal)) ?? recording.recorders;
    const upload = await deps.recorders.open(
      {
        recorders,
        named: recording,
        find: deps.findRecorders,
        sessionId: id,
        moved: (recorder, reason) =>
          deps.events.recorderLost({ ...fields, mode, recorder, reason: reason.message, resumed: true }),
        late: lateEvents(deps.events, fields),
        about: { ...fields },
      },
      signal,
    );
    return { upload, warnings: [] };
  } catch (error) {
    signal.throwIfAborted();
    if (mode === 'failClosed') {
      const detail = error instanceof TailcastError ? error.detail : errorText(error);
      throw new TailcastError('RECORDING_REQUIRED', detail, { cause: error });
    }
    deps.events.sessionUnrecorded({ ...fields, reason: errorText(error) });
    return { upload: undefined, warnings: [`this session is not recorded: ${errorText(error)}`] };
  }
}

/** Returns callbacks that log and count late deliveries. */
export function lateEvents(events: Pick<Events, LateEvent>, fields: SessionFields): LateEvents {
  return {
    left: (bytes) => events.recordingIncomplete({ ...fields, bytes }),
    delivered: (end) => events.recordingDelivered({ ...fields, ...end }),
    dropped: (end) => events.recordingDropped({ ...fields, ...end }),
    kept: (end) => events.recordingJournaled({ ...fields, ...end }),
  };
}

/**
 * Returns the conditions for the start of a recorded session: a moderator, a reason from the user, or both. Returns
 * undefined if the session can start immediately.
 * @param asksReason true if users of terminal sessions must type a reason
 */
export function waitOf(
  admission: Pick<Admission, 'moderation' | 'exec'>,
  asksReason: boolean | undefined,
): Pick<HeldDial, 'rules' | 'asksReason'> | undefined {
  const { moderation: rules = [] } = admission;
  const isAsked = asksReason === true && isTyped(admission.exec);
  return rules.length > 0 || isAsked ? { rules, asksReason: isAsked } : undefined;
}

/**
 * Returns true if a session without a notice and a reason may have a terminal: `attach` uses the terminal of the
 * container.
 */
export function mayHideTerminal(
  { requestClass, exec }: Pick<Admission, 'requestClass' | 'exec'>,
  { asksReason, notice }: { readonly asksReason?: boolean; readonly notice?: string | undefined },
): boolean {
  const isHidden = requestClass === 'attach' && exec.stdin && !exec.tty;
  return isHidden && (asksReason === true || notice !== undefined);
}

function isTyped({ tty, stdin, stdout }: Admission['exec']): boolean {
  return tty && stdin && stdout;
}

export interface RecordingDeps {
  /** Line that the gateway shows at the start of recorded terminal sessions. */
  readonly notice?: string | undefined;
  readonly unixMs: () => number;
  readonly monotonicMs: () => number;
  readonly limits: Partial<RecordingLimits>;
}

/**
 * Starts the recording of an upgraded connection. Returns undefined without an upload.
 * @throws TailcastError `UPSTREAM_BROKEN` if the connection uses a WebSocket extension, `SESSION_VIOLATED` if no tap
 * can parse the connection
 */
export function beginRecording(
  deps: RecordingDeps,
  admission: Admission,
  protocol: StreamProtocol,
  answer: Extract<UpgradeAnswer, { kind: 'switched' }>,
  upload: RecorderUpload | undefined,
): SessionRecording | undefined {
  if (headerLines(answer.rawHeaders, 'sec-websocket-extensions').some((value) => value.trim() !== '')) {
    throw new TailcastError('UPSTREAM_BROKEN', 'it uses a WebSocket extension that was not offered');
  }
  if (upload === undefined) return undefined;
  const { identity, info, exec, impersonation } = admission;
  const facts: SessionBeginning = {
    sessionId: admission.id,
    identity,
    info,
    exec,
    timestamp: Math.floor(deps.unixMs() / 1000),
    user: impersonation?.user,
    auditId: admission.auditId,
    groups: impersonation?.groups ?? [],
    protocol,
    subprotocol: answer.subprotocol,
    cluster: admission.cluster?.name,
    moderated: admission.moderation !== undefined,
  };
  const enforce = admission.recording.mode === 'failClosed';
  const session = new RecordingSession(upload, {
    tty: exec.tty,
    enforce,
    header: (size) => castHeaderLine(facts, size),
    about: sessionAnnotation(facts),
    nowMs: deps.monotonicMs,
    limits: deps.limits,
  });
  const notice = exec.tty && exec.stdout ? deps.notice : undefined;
  return { session, upload, enforce, ...createNotedTap(session, protocol, answer.subprotocol, notice) };
}

/**
 * Sends the API request event of an upgrade to a recorder. Resolves when the event is stored, or immediately if the
 * policy requires no event. A rejection of the promise is handled here, so the caller may await the promise late or
 * never.
 */
export function recordEvent(
  record: RecorderDeps['recordApiRequest'],
  { method = '', rawHeaders }: Pick<IncomingMessage, 'method' | 'rawHeaders'>,
  admission: Admission,
): Promise<void> {
  if (!admission.event) return Promise.resolve();
  const userAgent = headerLines(rawHeaders, 'user-agent')[0] ?? '';
  const event = record({ admission, method, userAgent, body: new Uint8Array(0), bodyTruncated: false });
  event.catch(() => {});
  return event;
}

/** Returns the fields that each log entry about a session contains. Pure. */
export function sessionFields(admission: Admission): SessionFields {
  const { info, identity, user } = admission;
  const { container } = admission.exec;
  return {
    sessionId: admission.id,
    user,
    node: identity.nodeName,
    kind: admission.requestClass,
    ...(info.namespace === '' ? {} : { namespace: info.namespace }),
    ...(info.name === '' ? {} : { pod: info.name }),
    ...(container === undefined ? {} : { container }),
    ...(admission.cluster === undefined ? {} : { cluster: admission.cluster.name }),
  };
}

/** Waits until the upload has opened, and then aborts it. */
export function abortWhenOpen(opening: ReturnType<typeof openRecorder>): void {
  opening.then(
    ({ upload }) => upload?.abort(),
    () => {},
  );
}
