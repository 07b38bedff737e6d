/** Describes uploads that are not in the store yet, so that viewers can list and read them. */
import { describeHead } from '../library/describe-head.ts';
import type { LiveRecording } from '../library/live-recording.ts';
import type { RecordingKey } from '../store/key.ts';
import { jsonField, parseJsonObject } from '../../wire/json-value.ts';
import type { Recording } from '../../wire/recorder-api/recording.ts';
import { describePart } from './finisher.ts';
import type { UploadSession } from './upload-session.ts';

/** State of an upload. */
export interface ListedUpload {
  readonly session: UploadSession;
  /** Description of a finished session; undefined for an open session. */
  readonly over: Recording | undefined;
  readonly gone: Pick<PromiseWithResolvers<RecordingKey | undefined>, 'promise'>;
}

/** Returns the live recording, or undefined if no byte is durable yet. */
export function describeEntry(entry: ListedUpload): LiveRecording | undefined {
  const { session } = entry;
  const { started } = session;
  if (started === undefined || session.durable.castBytes === 0) return undefined;
  const bytes = session.durable.castBytes;
  return {
    key: started.meta,
    recording: entry.over ?? { ...describeHead(started.meta, started.head), state: 'running', bytes },
    paths: started.paths,
    resizeOrder: started.head.resizeOrder,
    part: describePart(started.meta),
    orders: session.orders,
    get isModerated() {
      const { session: about = '{}' } = started.facts;
      return jsonField(parseJsonObject(about), 'moderated') === true;
    },
    durable: () => session.durable,
    isOpen: () => entry.over === undefined,
    stored: entry.gone.promise,
    watch: (wake) => session.watch(wake),
  };
}
