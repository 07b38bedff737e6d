/**
 * What is derived from a recording so that any moment of it can be shown at once: keyframes, and what a time line shows.
 * Made by the recorder, kept beside nothing that is evidence, and made again whenever it is missing.
 */

/** Of this format; another one is made anew. */
export const PLAY_INDEX_VERSION = 3;

/** A running session is indexed again when it has grown by so much: without keyframes that is what a jump takes. */
export const GROWING_STEP_BYTES = 8 * 1024 * 1024;

/** A moment from which playing can begin. */
export interface KeyframeEntry {
  /** Seconds of the recording's clock: of the last event before `offset`. */
  readonly at: number;
  /** Byte of the cast at which the first line after it begins. */
  readonly offset: number;
  readonly columns: number;
  readonly rows: number;
}

/** `command`: one that a shell marked, or that looked like one; `part`: the session went on at another recorder. */
export const MARK_KINDS = ['command', 'resize', 'gap', 'part', 'marker', 'damage'] as const;
export type MarkKind = (typeof MARK_KINDS)[number];

/** Something that happened, for the time line. */
export interface PlayMark {
  readonly at: number;
  readonly kind: MarkKind;
  readonly text: string;
}

export interface PlayIndex {
  readonly version: typeof PLAY_INDEX_VERSION;
  /** Time of the last event. */
  readonly seconds: number;
  /** Characters of output. */
  readonly characters: number;
  /** Characters of output in spans of equal length, from the start to the end. */
  readonly activity: readonly number[];
  readonly frames: readonly KeyframeEntry[];
  /** The first of them; `markCount` counts all. */
  readonly marks: readonly PlayMark[];
  readonly markCount: number;
  /** Lines that are not asciicast. */
  readonly badLines: number;
  /** The last line is not whole. */
  readonly isCut: boolean;
  /** Output that is no text. */
  readonly isBinary: boolean;
  /** Printable characters that were written and never became visible. */
  readonly hidden: number;
  /** The first size that the session reported and that is too small to read, as `1x1`. */
  readonly tinySize?: string;
  /** Second at which rendering stopped because the recording costs too much to render: there are no keyframes after it. */
  readonly stoppedAt?: number;
}

/** What the recorder answers while the index is being made. */
export interface PlayIndexPending {
  /** From 0 to 1. */
  readonly progress: number;
}

/** The last frame that is not after `seconds`. */
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

/** How much is seen at a glance. */
const ACTIVITY_SPANS = 400;

/** Counts output over a time that is not known before: spans get longer as the time does. */
export function createActivity(): {
  add(seconds: number, characters: number): void;
  /** `ACTIVITY_SPANS` values at most. */
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
