/**
 * The play index of a recording: keyframes, and the data of the timeline. The index is not evidence, because recorders
 * can derive it from the cast again.
 */
import { isRecord } from '../wire/is-record.ts';
import type { ThumbnailRows } from './thumbnail.ts';

/** Version of this format. Recorders replace an index of another version. */
export const PLAY_INDEX_VERSION = 5;

/**
 * Number of new bytes after which the recorder extends the index of a running session. A seek therefore plays at most
 * this many bytes.
 */
export const GROWING_STEP_BYTES = 8 * 1024 * 1024;

/** A position at which playback can start. */
export interface KeyframeEntry {
  /** Recording time of the last event before `offset`, in seconds. */
  readonly at: number;
  /** Offset in the cast at which the next line starts, in bytes. */
  readonly offset: number;
  readonly columns: number;
  readonly rows: number;
}

/**
 * `command`: the shell marked a command, or the text looks like a command. `part`: the session continued at another
 * recorder.
 */
export type MarkKind = 'command' | 'resize' | 'gap' | 'part' | 'marker' | 'damage';

/** An event for the timeline. */
export interface PlayMark {
  readonly at: number;
  readonly kind: MarkKind;
  readonly text: string;
  /** Duration of a command in seconds; undefined if the shell did not report its end. */
  readonly seconds?: number;
  /** Exit status of a command; undefined if the shell did not report it. */
  readonly exit?: number;
}

export interface PlayIndex {
  readonly version: typeof PLAY_INDEX_VERSION;
  /** Time of the last event. */
  readonly seconds: number;
  /** Number of output characters. */
  readonly characters: number;
  /** Output characters in intervals of equal length, from start to end. */
  readonly activity: readonly number[];
  readonly frames: readonly KeyframeEntry[];
  /** The first marks of the recording. `markCount` is the number of all marks. */
  readonly marks: readonly PlayMark[];
  readonly markCount: number;
  /** Number of invalid lines. */
  readonly badLines: number;
  /** True if the last line is incomplete. */
  readonly isCut: boolean;
  /** True if the output is binary. */
  readonly isBinary: boolean;
  /** Thumbnail of the screen with the most content, among several candidates. */
  readonly thumbnail: ThumbnailRows;
  /** Number of printable characters that never became visible. */
  readonly hidden: number;
  /** The first reported size that is too small to read, such as `1x1`. */
  readonly tinySize?: string;
  /**
   * Second at which rendering stopped because rendering costs too much or the emulator failed. There are no keyframes
   * after this second.
   */
  readonly stoppedAt?: number;
}

/** True for a play index of this version, in a file or a response of a recorder. */
export function isPlayIndex(body: unknown): body is PlayIndex {
  return (
    isRecord(body) &&
    body['version'] === PLAY_INDEX_VERSION &&
    typeof body['seconds'] === 'number' &&
    Array.isArray(body['frames']) &&
    Array.isArray(body['activity']) &&
    Array.isArray(body['marks']) &&
    typeof body['hidden'] === 'number'
  );
}

/** Response of the recorder while it creates the index. */
export interface PlayIndexPending {
  /** Progress from 0 to 1. */
  readonly progress: number;
}

/** Returns the index of the last keyframe at or before `seconds`; -1 if there is none. */
export function frameBefore(frames: readonly KeyframeEntry[], seconds: number): number {
  let low = 0;
  let high = frames.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((frames[middle]?.at ?? Number.POSITIVE_INFINITY) <= seconds) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

/** Maximum number of intervals. */
const ACTIVITY_SPANS = 400;

/**
 * Counts output characters per interval. The intervals become longer while the recording grows, because its duration is
 * not known in advance.
 */
export function createActivity(): {
  add(seconds: number, characters: number): void;
  /** Returns at most `ACTIVITY_SPANS` values. */
  spans(seconds: number): readonly number[];
} {
  let width = 1 / 32;
  let counts: number[] = [];
  return {
    add(seconds, characters) {
      while (seconds / width >= ACTIVITY_SPANS) {
        const merged: number[] = [];
        for (let index = 0; index < counts.length; index += 2)
          merged.push((counts[index] ?? 0) + (counts[index + 1] ?? 0));
        counts = merged;
        width *= 2;
      }
      const span = Math.floor(seconds / width);
      while (counts.length <= span) counts.push(0);
      counts[span] = (counts[span] ?? 0) + characters;
    },
    spans(seconds) {
      const length = Math.max(1, Math.min(ACTIVITY_SPANS, Math.ceil(seconds / width)));
      return Array.from({ length }, (_, index) => counts[index] ?? 0);
    },
  };
}
