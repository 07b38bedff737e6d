/** Finds the recorder of a session before the API server hears of it, or says what the policy says without one. */
import { errorText, TailcastError } from '../../errors.ts';
import type { Events, SessionFields } from '../../observe/events.ts';
import type { LateEvents } from '../../recording/late-end.ts';
import type { RecorderClient } from '../../recording/recorder-client.ts';
import type { RecorderUpload } from '../../recording/recorder-upload.ts';
import type { Admission } from '../gate/gate.ts';
import { sessionFields } from './session-fields.ts';

type LateEvent = 'recordingLeft' | 'recordingDelivered' | 'recordingDropped' | 'recordingKept';

export interface RecorderDeps {
  readonly recorders: RecorderClient;
  /** Addresses of the recorders with these tags, for grants in which the control server named none. */
  readonly resolveRecorderTags?: (tags: readonly string[], signal: AbortSignal) => Promise<readonly string[]>;
  readonly events: Pick<Events, 'recorderLost' | 'sessionUnrecorded' | LateEvent>;
}

/**
 * A recorder that has accepted the session, or none with a warning where the policy allows it.
 * @throws TailcastError `RECORDING_REQUIRED`
 */
export async function openRecorder(
  deps: RecorderDeps,
  admission: Admission,
  signal: AbortSignal,
): Promise<{ readonly upload: RecorderUpload | undefined; readonly warnings: readonly string[] }> {
  const { recording } = admission;
  if (recording.mode === 'off') throw new TailcastError('INTERNAL', 'there is nothing to record');
  const fields = sessionFields(admission);
  const { mode } = recording;
  try {
    const recorders = [...recording.recorders, ...(await resolveTags(deps, recording.recorderTags, signal))];
    const upload = await deps.recorders.open(
      {
        recorders: [...new Set(recorders)],
        sessionId: admission.id,
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

async function resolveTags(
  { resolveRecorderTags }: RecorderDeps,
  tags: readonly string[],
  signal: AbortSignal,
): Promise<readonly string[]> {
  return tags.length === 0 ? [] : ((await resolveRecorderTags?.(tags, signal)) ?? []);
}

/** Logs and counts what becomes of the end of a recording. */
export function lateEvents(events: Pick<Events, LateEvent>, fields: SessionFields): LateEvents {
  return {
    left: (bytes) => events.recordingLeft({ ...fields, bytes }),
    delivered: (end) => events.recordingDelivered({ ...fields, ...end }),
    dropped: (end) => events.recordingDropped({ ...fields, ...end }),
    kept: (end) => events.recordingKept({ ...fields, ...end }),
  };
}
