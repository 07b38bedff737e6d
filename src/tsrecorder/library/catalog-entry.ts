/** A recording in the catalogue. */
import type { RecordingKey } from '../store/key.ts';
import type { CastPiece } from './cast-pieces.ts';
import type { LiveRecording } from './live-recording.ts';
import type { Recording, ResizeOrder } from '../../wire/recorder-api/recording.ts';

/** A recording and the location of its bytes. */
export interface CatalogEntry {
  readonly recording: Recording;
  /** Key of the first upload. */
  readonly key: RecordingKey;
  readonly resizeOrder: ResizeOrder;
  /** Keys of all uploads in the order of `pieces`. Default: only `key`. */
  readonly parts?: readonly RecordingKey[];
  /** Pieces of the cast, in order. Only the last piece may grow. */
  readonly pieces: readonly CastPiece[];
  /** Session that writes the last piece; undefined if that piece is in the store or at another recorder. */
  readonly live: LiveRecording | undefined;
  /** Reads the notes of all uploads of a finished recording; undefined if there is only one upload. */
  readonly joinedNotes?: () => AsyncIterable<Uint8Array>;
  /**
   * True if some viewers may see only some of the uploads. Different viewers then see different recordings of the
   * session.
   */
  readonly isSeenApart?: true;
  /** Text that identifies the version of the cast; undefined while the cast grows. */
  readonly version: string | undefined;
  /** Identities of the stored casts, see `ObjectStat.identity`. */
  readonly identity?: string;
}
