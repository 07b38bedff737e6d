/** Finds the recorder of a session before the API server gets the request, and applies the policy if there is none. */
import { errorText, TailcastError } from '../../errors.ts';
import type { Events, SessionFields } from '../../observe/events.ts';
import type { LateEvents } from '../../recording/late-end.ts';
import type { RecorderClient } from '../../recording/recorder-client.ts';
import type { RecorderUpload } from '../../recording/recorder-upload.ts';
import { callerName } from '../../tailnet/identity.ts';
import type { Admission } from '../gate/gate.ts';

type LateEvent = 'recordingIncomplete' | 'recordingDelivered' | 'recordingDropped' | 'recordingJournaled';

type Recorded = Exclude<Admission['recording'], { readonly mode: 'off' }>;

export interface RecorderDeps {
  readonly recorders: RecorderClient;
  /** Returns the addresses of the recorders of a grant. Default: the addresses that the grant names. */
  readonly findRecorders?: (recording: Recorded, signal: AbortSignal) => Promise<readonly string[]>;
  readonly events: Pick<Events, 'recorderLost' | 'sessionUnrecorded' | LateEvent>;
}

/**
 * Opens an upload at a recorder. Without a recorder it returns a warning if the policy allows unrecorded sessions.
 * @throws TailcastError `RECORDING_REQUIRED` if the policy does not allow them
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
    const upload = await deps.recorders.open(
      {
        recorders: (await deps.findRecorders?.(recording, signal)) ?? recording.recorders,
        sessionId: id,
        moved: (recorder, reason) =>
          deps.events.recorderLost({ ...fields, mode, recorder, reason: reason.message, resumed: true }),
        late: lateEvents(deps.events, fields),
        recorderTags: recording.recorderTags,
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

/** Returns the fields that each event about a session contains. Pure. */
export function sessionFields(admission: Admission): SessionFields {
  const { info, identity } = admission;
  const { container } = admission.exec;
  return {
    sessionId: admission.id,
    user: callerName(admission.identity),
    node: identity.nodeName,
    kind: admission.requestClass,
    ...(info.namespace === '' ? {} : { namespace: info.namespace }),
    ...(info.name === '' ? {} : { pod: info.name }),
    ...(container === undefined ? {} : { container }),
    ...(admission.cluster === undefined ? {} : { cluster: admission.cluster.name }),
  };
}

/** Aborts the upload as soon as it is open. */
export function abortWhenOpen(opening: ReturnType<typeof openRecorder>): void {
  opening.then(
    ({ upload }) => upload?.abort(),
    () => {},
  );
}
