/** What of an upload is listed and served before the store has it. */
import { describeHead } from '../library/describe-head.ts';
import type { LiveRecording } from '../library/live-recording.ts';
import type { RecordingKey } from '../store/key.ts';
import type { Recording } from '../../wire/recorder-api/recording.ts';
import { describePart } from './finisher.ts';
import type { UploadSession } from './upload-session.ts';

/** What is known of an upload. */
export interface ListedUpload {
  readonly session: UploadSession;
  /** Set once the session is over: how it will be listed until the store has it. */
  readonly over: Recording | undefined;
  readonly gone: Pick<PromiseWithResolvers<RecordingKey | undefined>, 'promise'>;
}

/** @returns undefined while nothing of it is durable. */
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
    durable: () => session.durable,
    isOpen: () => entry.over === undefined,
    stored: entry.gone.promise,
    watch: (wake) => session.watch(wake),
  };
}
