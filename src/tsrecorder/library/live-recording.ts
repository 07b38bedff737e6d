/** A recording in the spool, which viewers can list and read. */
import type { SpoolPaths, SpoolPosition } from '../spool/spool-file.ts';
import type { RecordingKey } from '../store/key.ts';
import type { Recording, ResizeOrder } from '../../wire/recorder-api/recording.ts';
import type { ControlAction, SessionWatcher } from '../../wire/recorder-api/session-order.ts';
import type { SessionPart } from './session-part.ts';

/** Sends session orders to the gateway of a running session. */
export interface LiveOrders {
  /** True if the gateway of the session is connected and supports session orders. */
  readonly isPossible: boolean;
  /**
   * Ends, pauses, holds or resumes the session. If the order ends the session, the user sees the reason. Resolves when
   * the gateway has confirmed the order.
   * @param order `by`: name of the viewer or rule, without line breaks, which the user sees; `reason`: at most
   * `MAX_REASON_LENGTH` characters
   * @throws TailcastError `ORDER_IMPOSSIBLE`, `ORDER_UNCONFIRMED`
   */
  give(order: {
    readonly action: ControlAction | 'hold';
    readonly by: string;
    readonly reason: string;
  }): Promise<void>;
  /**
   * Tells the gateway that a viewer watches a moderated session. Viewers repeat the call every `WATCH_INTERVAL_MS`.
   * @param by name of the viewer, for the note in the recording
   * @throws TailcastError `ORDER_REFUSED` if the viewer may not moderate the session; also the errors of `give`
   */
  watch(by: string, watcher: SessionWatcher): Promise<void>;
}

/** A recording that is not in the store yet. */
export interface LiveRecording {
  readonly key: RecordingKey;
  readonly recording: Recording;
  readonly paths: SpoolPaths;
  readonly resizeOrder: ResizeOrder;
  readonly part: SessionPart;
  /** Sends session orders; undefined if the gateway does not upload the session to this recorder. */
  readonly orders?: LiveOrders;
  /** True if the session runs only while a moderator watches it. */
  readonly isModerated?: boolean;
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
