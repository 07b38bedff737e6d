/** A recording in the spool, for lists and readers. */
import type { SpoolPaths, SpoolPosition } from '../spool/spool-file.ts';
import type { RecordingKey } from '../store/key.ts';
import type { Recording, ResizeOrder } from '../../wire/recorder-api/recording.ts';
import type { SessionPart } from './session-part.ts';

/** A recording that is not in the store yet. */
export interface LiveRecording {
  readonly key: RecordingKey;
  readonly recording: Recording;
  readonly paths: SpoolPaths;
  readonly resizeOrder: ResizeOrder;
  readonly part: SessionPart;
  /** Returns the durable length. */
  durable(): SpoolPosition;
  /** True while the recording may grow. */
  isOpen(): boolean;
  /**
   * Resolves with the key in the store after the move into the store, or with undefined if there is nothing to store.
   */
  readonly stored: Promise<RecordingKey | undefined>;
  /** Calls `wake` when `durable` or `isOpen` may have changed. @returns a function that stops the calls */
  watch(wake: () => void): () => void;
}
