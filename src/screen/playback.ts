/**
 * Plays a recording on a terminal. Positions are recording times. They do not depend on the speed or on skipped idle
 * time, so a link to a position works for every viewer.
 *
 * Requests run one after another, and a seek replaces the current request. Only a few pieces of the cast are in memory.
 */
import { createCastReader, type CastAction, type CastStart } from './cast-reader.ts';
import { readCastLines, type CastBytes, type CastLines } from './cast-lines.ts';
import { frameBefore, type KeyframeEntry } from './play-index.ts';
import type { PlayTerminal } from './terminal.ts';

export interface PlaybackOptions {
  readonly cast: CastBytes;
  readonly start: CastStart;
  /** Length of the header line with its line feed, in bytes. */
  readonly headerBytes: number;
  readonly terminal: Pick<PlayTerminal, 'write' | 'end' | 'resize' | 'reset'> &
    Partial<Pick<PlayTerminal, 'budget' | 'isStopped'>>;
  /** Time of the last event, if known. */
  readonly seconds: number | undefined;
  /** Returns the screen of a keyframe. */
  readonly loadFrame: (index: number) => Promise<string>;
  /** Called when the screen or the state changed. */
  readonly onChange: () => void;
}

export interface PlaybackState {
  /** Recording time, in seconds. */
  readonly position: number;
  /** Time of the last known event. */
  readonly seconds: number;
  readonly playing: boolean;
  /** True if playback has reached the end of the recording. */
  readonly ended: boolean;
  /** True while the screen lags behind the clock, because reading or rendering is slow. */
  readonly waiting: boolean;
  /** Number of invalid lines read so far. */
  readonly badLines: number;
  /** True if the recording ends inside a line. */
  readonly isCut: boolean;
  /** Second at which rendering stopped (`PlayTerminal.isStopped`). The screen then stays at this second. */
  readonly stoppedAt: number | undefined;
  /** Error that stopped playback. */
  readonly problem: string | undefined;
}

/** Minimum length of a pause that is shortened if the viewer skips idle time, in seconds. */
const IDLE_SECONDS = 2;
/** Part of a shortened pause that is played at the start of the pause, and again at its end, in seconds. */
const IDLE_KEPT_SECONDS = 0.5;
/**
 * Maximum number of characters per write to the terminal. The limit is small, because a seek may have to wait for one
 * write.
 */
const WRITE_LENGTH = 128 * 1024;
/**
 * Maximum time of one tick, in seconds. Without this limit, playback would jump when a background window becomes
 * visible.
 */
const MAX_TICK_SECONDS = 0.25;

interface Cursor {
  readonly lines: CastLines;
  readonly read: (line: string) => CastAction | undefined;
  batch: readonly string[];
  taken: number;
  /** The next action that is not shown yet. */
  next: CastAction | undefined;
  isOver: boolean;
  /** Time of the last shown action. */
  seconds: number;
}

/** Playback of one view. Nothing is read before the first call of a method. */
export class Playback {
  speed = 1;
  skipsIdle = true;
  readonly #options: PlaybackOptions;
  #frames: readonly KeyframeEntry[] = [];
  #position = 0;
  #known: number;
  #playing = false;
  #ended = false;
  #badLines = 0;
  #isCut = false;
  #stoppedAt: number | undefined;
  #problem: string | undefined;
  #quietSince = 0;
  /** Number of unfinished seeks. */
  #seeks = 0;
  /** Number of the request of the last seek. */
  #lastSeek = 0;
  /** Number of the current request. Work for an earlier request stops at its next check of this number. */
  #request = 0;
  #working = 0;
  #queue: Promise<void> = Promise.resolve();
  #cursor: Cursor;

  constructor(options: PlaybackOptions) {
    this.#options = options;
    this.#known = options.seconds ?? 0;
    this.#cursor = this.#openCursor(options.headerBytes, 0);
  }

  get state(): PlaybackState {
    return {
      position: this.#position,
      seconds: Math.max(this.#known, this.#position),
      playing: this.#playing,
      ended: this.#ended,
      waiting: this.#working > 0,
      badLines: this.#badLines,
      isCut: this.#isCut,
      stoppedAt: this.#stoppedAt,
      problem: this.#problem,
    };
  }

  /** True while the screen is between two positions. */
  get isSeeking(): boolean {
    return this.#seeks > 0;
  }

  /** Starts or resumes playback. After the end of the recording, playback starts from the beginning. */
  play(): void {
    this.#playing = true;
    this.#quietSince = this.#position;
    if (this.#ended) void this.seek(0);
    this.#options.onChange();
  }

  pause(): void {
    this.#playing = false;
    this.#options.onChange();
  }

  /** Shows a position. Resolves when the screen shows the position, or when a newer request replaces this request. */
  seek(seconds: number): Promise<void> {
    const mine = this.#nextRequest();
    const target = Math.max(0, this.#known > 0 ? Math.min(seconds, this.#known) : seconds);
    this.#position = target;
    this.#quietSince = target;
    this.#ended = false;
    this.#seeks += 1;
    this.#lastSeek = mine;
    this.#options.onChange();
    return this.#enqueue(async () => {
      try {
        if (this.#request !== mine) return;
        await this.#moveTo(target);
        await this.#showUntil(target, mine);
        if (this.#request === mine) this.#settle();
      } finally {
        this.#seeks -= 1;
      }
    });
  }

  /** Pauses and shows the next event. */
  step(): Promise<void> {
    this.#playing = false;
    const mine = this.#nextRequest();
    return this.#enqueue(async () => {
      if (this.#request !== mine) return;
      await this.#showUntil(this.#position, mine, true);
      this.#position = Math.max(this.#position, this.#cursor.seconds);
      this.#settle();
    });
  }

  /** Advances the clock. @param seconds time since the last call */
  tick(seconds: number): void {
    // stop the clock while events before the current position are not shown yet
    if (!this.#playing || this.#working > 0) return;
    this.#position = this.#passed(Math.min(seconds, MAX_TICK_SECONDS));
    this.#cursor.lines.start();
    const mine = this.#request;
    void this.#enqueue(async () => {
      if (this.#request !== mine) return;
      await this.#showUntil(this.#position, mine);
      if (this.#request === mine) this.#settle();
    });
  }

  /** Sets new keyframes and the time of the last event. An unfinished seek then continues from a keyframe. */
  useFrames(frames: readonly KeyframeEntry[], seconds: number): void {
    this.#frames = frames;
    this.#known = Math.max(this.#known, seconds);
    if (this.isSeeking && this.#lastSeek === this.#request) void this.seek(this.#position);
    this.#options.onChange();
  }

  /** Reports that the session still runs: more bytes may exist, and the duration is at least `seconds`. */
  grow(seconds: number): void {
    this.#known = Math.max(this.#known, seconds);
    this.#cursor.isOver = false;
    this.#ended = false;
    this.#options.onChange();
  }

  dispose(): void {
    this.#nextRequest();
    this.#playing = false;
    this.#cursor.lines.stop();
  }

  #nextRequest(): number {
    this.#request += 1;
    return this.#request;
  }

  /** @param end expected end of the first read: the next keyframe */
  #openCursor(offset: number, seconds: number, end?: number): Cursor {
    const { cast, start } = this.#options;
    const lines = readCastLines(cast, offset, end);
    const read = createCastReader(start, seconds);
    return { lines, read, batch: [], taken: 0, next: undefined, isOver: false, seconds };
  }

  /** Runs work after all earlier work has finished. */
  #enqueue(work: () => Promise<void>): Promise<void> {
    this.#working += 1;
    const run = async (): Promise<void> => {
      try {
        await work();
        this.#problem = undefined;
      } catch (error) {
        this.#problem = error instanceof Error ? error.message : String(error);
        this.#playing = false;
      }
      this.#working -= 1;
      this.#options.onChange();
    };
    this.#queue = this.#queue.then(run);
    return this.#queue;
  }

  /** Reads the next action. @returns undefined at the end */
  async #peek(): Promise<CastAction | undefined> {
    const cursor = this.#cursor;
    while (cursor.next === undefined && !cursor.isOver) {
      if (cursor.taken >= cursor.batch.length) {
        const batch = await cursor.lines.next();
        cursor.batch = batch ?? [];
        cursor.taken = 0;
        cursor.isOver = batch === undefined;
        continue;
      }
      const line = cursor.batch[cursor.taken] ?? '';
      this.#options.terminal.budget?.allow(line.length);
      const action = cursor.read(line);
      cursor.taken += 1;
      if (action?.kind !== 'bad') cursor.next = action;
      else if (cursor.lines.isCut) this.#isCut = true;
      else this.#badLines += 1;
    }
    return cursor.next;
  }

  /** Shows the events up to `target`, and one more event if `oneMore` is true. */
  async #showUntil(target: number, mine: number, oneMore = false): Promise<void> {
    const { terminal, onChange } = this.#options;
    const cursor = this.#cursor;
    let text = '';
    let textAt = 0;
    let wanted = oneMore;
    const flush = async (): Promise<void> => {
      if (text === '') return;
      const written = text;
      text = '';
      await terminal.write(written);
      this.#noteStop(textAt);
      onChange();
    };
    for (
      let action = await this.#peek();
      action !== undefined;
      action = cursor.next ?? (await this.#peek())
    ) {
      if (action.seconds > target) {
        if (!wanted) break;
        wanted = false;
      }
      if (action.kind === 'resize') {
        await flush();
        terminal.resize(action.size);
        this.#noteStop(action.seconds);
      }
      if (action.kind === 'output') {
        if (text === '') textAt = action.seconds;
        text += action.text;
      }
      cursor.seconds = action.seconds;
      cursor.next = undefined;
      if (text.length >= WRITE_LENGTH) {
        await flush();
        if (this.#request !== mine) return;
      }
    }
    await flush();
    if (cursor.next !== undefined || !cursor.isOver || this.#options.cast.isGrowing === true) return;
    await terminal.end();
    onChange();
    this.#known = Math.max(cursor.seconds, this.#options.seconds ?? 0);
  }

  /**
   * Moves the cursor and the terminal to the last keyframe before `target`, or to the start. Does nothing if the cursor
   * is already between this position and `target`.
   */
  async #moveTo(target: number): Promise<void> {
    const { terminal, start, headerBytes, loadFrame } = this.#options;
    const index = frameBefore(this.#frames, target);
    const frame = this.#frames[index];
    const isContinued =
      this.#cursor.seconds <= target && (frame === undefined || frame.at <= this.#cursor.seconds);
    if (isContinued) return;
    const { offset, at } = frame ?? { offset: headerBytes, at: 0 };
    const cursor = this.#openCursor(offset, at, this.#frames[index + 1]?.offset);
    let screen: string | undefined;
    try {
      // read cast and keyframe concurrently
      cursor.lines.start();
      screen = frame === undefined ? undefined : await loadFrame(index);
    } catch (error) {
      cursor.lines.stop();
      throw error;
    }
    this.#cursor.lines.stop();
    this.#badLines = 0;
    this.#stoppedAt = undefined;
    this.#cursor = cursor;
    await terminal.reset(frame ?? start.size, screen);
  }

  /**
   * If the terminal has stopped rendering, pauses playback. @param seconds earliest time at which the terminal may have
   * stopped
   */
  #noteStop(seconds: number): void {
    if (this.#stoppedAt !== undefined || this.#options.terminal.isStopped !== true) return;
    this.#stoppedAt = seconds;
    this.#playing = false;
  }

  /** Updates the state after events were shown. */
  #settle(): void {
    const isLast = this.#cursor.next === undefined && this.#cursor.isOver;
    if (!isLast || this.#position < this.#known) return;
    this.#position = this.#known;
    this.#ended = true;
    this.#playing = false;
  }

  /** Returns the position after `seconds` of viewing time. */
  #passed(seconds: number): number {
    const target = this.#position + seconds * this.speed;
    const limit = this.#idleLimit();
    if (limit === undefined) return target;
    const { next, isOver, seconds: last } = this.#cursor;
    const from = Math.max(this.#quietSince, last);
    const until = next?.seconds ?? (isOver ? this.#known : undefined);
    const { longest, kept } = limit;
    if (until === undefined || until - from <= longest || target < from + kept) return target;
    return Math.max(target, until - kept);
  }

  /** Returns the limit for pauses, from the viewer's choice to skip idle time or from the header of the recording. */
  #idleLimit(): { readonly longest: number; readonly kept: number } | undefined {
    const limit = this.#options.start.idleLimitSeconds ?? Infinity;
    if (this.skipsIdle && limit > IDLE_SECONDS) return { longest: IDLE_SECONDS, kept: IDLE_KEPT_SECONDS };
    return limit === Infinity ? undefined : { longest: limit, kept: limit / 2 };
  }
}
