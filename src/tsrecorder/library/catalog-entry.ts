/** One recording as the catalogue finds it. */
import type { RecordingKey } from '../store/key.ts';
import type { CastPiece } from './cast-pieces.ts';
import type { LiveRecording } from './live-recording.ts';
import type { Recording, ResizeOrder } from '../../wire/recorder-api/recording.ts';

/** A recording and where its bytes are. */
export interface CatalogEntry {
  readonly recording: Recording;
  /** Of the first of its uploads. */
  readonly key: RecordingKey;
  readonly resizeOrder: ResizeOrder;
  /** Keys of all its uploads in the order of `pieces`, if there are several. */
  readonly parts?: readonly RecordingKey[];
  /** Its cast, in order. Only the last one may grow. */
  readonly pieces: readonly CastPiece[];
  /** The session that the last piece is of; undefined when that is in the store, or with another recorder. */
  readonly live: LiveRecording | undefined;
  /** The notes of all its uploads, once it does not grow any more; undefined when there is one upload. */
  readonly joinedNotes?: () => AsyncIterable<Uint8Array>;
  /** Its uploads may not all be seen by the same people: what it is depends on who looks. */
  readonly isSeenApart?: true;
  /** Changes when the cast does; undefined while it grows. */
  readonly version: string | undefined;
}
