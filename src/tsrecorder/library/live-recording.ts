/** A recording that is still in the spool, as those who list and read see it. */
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
  /** Up to where it is durable. */
  durable(): SpoolPosition;
  /** Whether more may come. */
  isOpen(): boolean;
  /** Resolves with its key in the store when the store has it, and with undefined when there is nothing of it to store. */
  readonly stored: Promise<RecordingKey | undefined>;
  /** Calls `wake` when one of the two above may have changed. @returns how to stop that. */
  watch(wake: () => void): () => void;
}
