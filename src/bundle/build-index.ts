/**
 * Plays a cast once, at full speed, and collects keyframes and timeline marks for the player (`screen/play-index`). The
 * recorder runs this module in a separate thread, because the terminal emulator takes about a second of CPU time for 20
 * MB.
 */
import { createActivity, PLAY_INDEX_VERSION } from '../screen/play-index.ts';
import type { KeyframeEntry, PlayIndex, PlayMark } from '../screen/play-index.ts';
import { createCastReader, readCastStart, type CastAction, type CastStart } from '../screen/cast-reader.ts';
import { createScratch, SNAPSHOT_WORK, takeSnapshot } from '../screen/snapshot.ts';
import { createTerminal, type PlayTerminal } from '../screen/terminal.ts';
import { thumbnailInk, thumbnailOf, type ThumbnailRows } from '../screen/thumbnail.ts';
import { isTiny, type ScreenSize } from '../terminal/size.ts';
import { readLines } from '../wire/lines.ts';
import { WorkBudget } from '../work-budget.ts';
import type { TranscriptDocument } from '../search/transcript-document.ts';
import type { CommandEnd } from '../search/shell-marks.ts';
import { Transcript, TRANSCRIPT_LIMITS } from '../search/transcript.ts';

/** A position in the cast at which output is missing, or at which another part of the session starts. */
export interface KnownPlace {
  readonly offset: number;
  readonly kind: 'gap' | 'part';
  readonly text: string;
}

/** Data derived from one cast. */
export interface BuiltIndex {
  readonly index: PlayIndex;
  readonly transcript: TranscriptDocument;
}

export interface BuildOptions {
  /** Content of the cast. */
  readonly chunks: AsyncIterable<Uint8Array>;
  /** Sorted by offset in the cast. */
  readonly places: readonly KnownPlace[];
  /** Receives the screen of the next keyframe. */
  readonly onFrame: (screen: string) => Promise<void>;
  /** Receives the number of bytes that were read. */
  readonly onProgress: (bytes: number) => void;
}

/** Minimum number of bytes of the cast between two keyframes. A seek usually plays at most about this many bytes. */
const FRAME_EVERY_BYTES = 256 * 1024;
/** Maximum size of all keyframes, as a fraction of the cast that was played so far. */
const MAX_FRAME_SHARE = 1 / 4;
/**
 * Maximum work for keyframes, in units of `WorkBudget` per byte of the cast. Keyframes of large screens are therefore
 * further apart.
 */
const FRAME_WORK = 64;
/**
 * Number of bytes of the cast between a failed keyframe and the next attempt; doubled after each consecutive failure.
 */
const RETRY_AFTER_BYTES = 32 * 1024;
const WRITE_LENGTH = 128 * 1024;
/**
 * Maximum number of marks of each kind. The limit is separate for each kind, so that many marks of another kind cannot
 * displace the marks of missing output.
 */
const MAX_MARKS = 1000;
const MAX_MARK_TEXT = 200;
/** Units of `WorkBudget` per cell of a thumbnail. */
const THUMBNAIL_WORK = 20;
/** Maximum fraction of characters that {@link countOdd} counts. Output with a larger fraction counts as binary. */
const BINARY_SHARE = 0.05;
const MIN_BINARY = 64;

/** @throws WireError if the first line is not a header. */
export async function buildPlayIndex(options: BuildOptions): Promise<BuiltIndex> {
  let builder: IndexBuilder | undefined;
  let offset = 0;
  let isCut = false;
  for await (const lines of readLines(
    watchEnd(options.chunks, (endsWithLineFeed) => (isCut = !endsWithLineFeed)),
  )) {
    for (const bytes of lines) {
      const { text: line, isValid } = decodeLine(bytes);
      if (builder === undefined) builder = new IndexBuilder(line, options);
      else await builder.take(line, offset);
      if (!isValid) builder.damaged('a line is not UTF-8');
      offset += bytes.length + 1;
    }
    options.onProgress(offset);
  }
  // an empty file has no header, so the constructor throws
  builder ??= new IndexBuilder('', options);
  return builder.finish(isCut);
}

const strict = new TextDecoder('utf-8', { fatal: true });
const lossy = new TextDecoder();

/** A cast is always UTF-8, even if the session printed binary output. Invalid UTF-8 means that the file is damaged. */
function decodeLine(bytes: Uint8Array): { readonly text: string; readonly isValid: boolean } {
  try {
    return { text: strict.decode(bytes), isValid: true };
  } catch {
    return { text: lossy.decode(bytes), isValid: false };
  }
}

/** Passes chunks on, and reports at the end whether the last byte was a line feed. */
async function* watchEnd(
  chunks: AsyncIterable<Uint8Array>,
  onEnd: (endsWithLineFeed: boolean) => void,
): AsyncGenerator<Uint8Array> {
  let last: number | undefined;
  for await (const chunk of chunks) {
    last = chunk.at(-1) ?? last;
    yield chunk;
  }
  onEnd(last === 0x0a);
}

class IndexBuilder {
  readonly #options: BuildOptions;
  readonly #withoutTerminal: boolean;
  readonly #terminal: PlayTerminal;
  readonly #scratch: PlayTerminal;
  readonly #read: (line: string) => CastAction | undefined;
  readonly #activity = createActivity();
  readonly #frames: KeyframeEntry[] = [];
  readonly #marks: PlayMark[] = [];
  /** Index of the running command's mark in `#marks`. */
  #openCommand: number | undefined;
  #thumbnail: ThumbnailRows = [];
  #thumbnailAfter = 512;
  readonly #transcript: Transcript;
  /** Work budget that the emulator and the transcript share. */
  readonly #budget = new WorkBudget();
  readonly #marksOf = new Map<PlayMark['kind'], number>();
  #markCount = 0;
  #badLines = 0;
  #lastWasBad = false;
  #seconds = 0;
  #characters = 0;
  #odd = 0;
  #text = '';
  /** Time of the first event in `#text`. */
  #textAt = 0;
  #retryAfter = RETRY_AFTER_BYTES;
  #nextFrame = FRAME_EVERY_BYTES;
  #stoppedAt: number | undefined;
  #frameCharacters = 0;
  #nextPlace = 0;
  #tinySize: string | undefined;

  /** @throws WireError if the line is not a header. */
  constructor(header: string, options: BuildOptions) {
    const start: CastStart = readCastStart(header);
    this.#options = options;
    this.#transcript = new Transcript({
      ...TRANSCRIPT_LIMITS,
      onCommand: ({ at, text }) => {
        this.#openCommand = this.#mark(at, 'command', text) ? this.#marks.length - 1 : undefined;
      },
      onCommandEnd: (end) => this.#endCommand(end),
      budget: this.#budget,
    });
    this.#transcript.line(header);
    this.#withoutTerminal = start.withoutTerminal;
    this.#terminal = createTerminal({
      ...start.size,
      withoutTerminal: start.withoutTerminal,
      budget: this.#budget,
    });
    this.#scratch = createScratch();
    this.#read = createCastReader(start);
    this.#noteSize(start.reportedSize);
  }

  /** @param offset offset of the line in the cast, in bytes. */
  async take(line: string, offset: number): Promise<void> {
    await this.#frameAt(offset);
    this.#markPlaces(offset);
    this.#transcript.line(line);
    const action = this.#read(line);
    if (action === undefined) return;
    this.#lastWasBad = action.kind === 'bad';
    this.#seconds = action.seconds;
    await this.#show(action);
    if (this.#terminal.isStopped) this.#stoppedAt ??= action.seconds;
  }

  /** Counts a damaged line. */
  damaged(text: string): void {
    this.#badLines += 1;
    this.#mark(this.#seconds, 'damage', text);
  }

  /** @param endsInLine true if the last byte was not a line feed. */
  async finish(endsInLine: boolean): Promise<BuiltIndex> {
    // a valid last line without a line feed is complete
    const isCut = endsInLine && this.#lastWasBad;
    this.#markPlaces(Number.POSITIVE_INFINITY);
    await this.#flush();
    this.#takeThumbnail();
    this.#terminal.dispose();
    this.#scratch.dispose();
    const transcript = this.#transcript.end();
    const stoppedAt = this.#stoppedAt;
    const index: PlayIndex = {
      version: PLAY_INDEX_VERSION,
      seconds: this.#seconds,
      characters: this.#characters,
      activity: this.#activity.spans(this.#seconds),
      frames: this.#frames,
      marks: this.#marks.toSorted((left, right) => left.at - right.at),
      markCount: this.#markCount,
      badLines: this.#badLines - (isCut ? 1 : 0),
      isCut,
      isBinary: this.#odd >= MIN_BINARY && this.#odd > this.#characters * BINARY_SHARE,
      thumbnail: this.#thumbnail,
      hidden: transcript.hidden.characters,
      ...(this.#tinySize === undefined ? {} : { tinySize: this.#tinySize }),
      ...(stoppedAt === undefined ? {} : { stoppedAt }),
    };
    return { index, transcript };
  }

  /** Adds a mark. @returns false if the index already has the maximum number of marks of this kind */
  #mark(at: number, kind: PlayMark['kind'], text: string): boolean {
    this.#markCount += 1;
    const known = this.#marksOf.get(kind) ?? 0;
    this.#marksOf.set(kind, known + 1);
    if (known >= MAX_MARKS) return false;
    this.#marks.push({ at, kind, text: text.slice(0, MAX_MARK_TEXT) });
    return true;
  }

  #endCommand({ at, exit }: CommandEnd): void {
    const index = this.#openCommand;
    const mark = index === undefined ? undefined : this.#marks[index];
    this.#openCommand = undefined;
    if (index === undefined || mark === undefined) return;
    this.#marks[index] = {
      ...mark,
      seconds: Math.max(0, at - mark.at),
      ...(exit === undefined ? {} : { exit }),
    };
  }

  /** Keeps the thumbnail of the current screen if it has at least half as much content as the previous thumbnail. */
  #takeThumbnail(): void {
    const { columns, rows } = this.#terminal.size;
    if (!this.#budget.spend(columns * rows * THUMBNAIL_WORK)) return;
    const taken = thumbnailOf(this.#terminal.emulator);
    if (thumbnailInk(taken) * 2 >= thumbnailInk(this.#thumbnail)) this.#thumbnail = taken;
  }

  #noteSize(size: ScreenSize): void {
    if (isTiny(size)) this.#tinySize ??= `${size.columns}x${size.rows}`;
  }

  #markPlaces(offset: number): void {
    const { places } = this.#options;
    for (let place = places[this.#nextPlace]; place !== undefined && place.offset <= offset;) {
      this.#mark(this.#seconds, place.kind, place.text);
      this.#nextPlace += 1;
      place = places[this.#nextPlace];
    }
  }

  async #flush(): Promise<void> {
    if (this.#text === '') return;
    const written = this.#text;
    this.#text = '';
    await this.#terminal.write(written);
    // store the time of the first event in the written text, because the terminal does not report at which event it
    // stopped
    if (this.#terminal.isStopped) this.#stoppedAt ??= this.#textAt;
  }

  async #frameAt(offset: number): Promise<void> {
    if (offset < this.#nextFrame || this.#frameCharacters > offset * MAX_FRAME_SHARE) return;
    const { columns, rows } = this.#terminal.size;
    const work = columns * rows * SNAPSHOT_WORK;
    const every = Math.max(FRAME_EVERY_BYTES, work / FRAME_WORK);
    await this.#flush();
    if (this.#terminal.isStopped || !this.#budget.spend(work)) return;
    const screen = await takeSnapshot(this.#terminal, this.#scratch);
    if (screen === undefined) {
      // The usual reason is an incomplete escape sequence at the end of the output so far. The next attempt then
      // succeeds, after the rest of the sequence.
      this.#nextFrame = offset + this.#retryAfter;
      this.#retryAfter *= 2;
      return;
    }
    this.#retryAfter = RETRY_AFTER_BYTES;
    this.#nextFrame = offset + every;
    this.#frameCharacters += screen.length;
    this.#frames.push({ at: this.#seconds, offset, ...this.#terminal.size });
    await this.#options.onFrame(screen);
  }

  async #show(action: CastAction): Promise<void> {
    switch (action.kind) {
      case 'output':
        this.#activity.add(action.seconds, action.text.length);
        this.#characters += action.text.length;
        if (this.#withoutTerminal) this.#odd += countOdd(action.text);
        if (this.#text === '') this.#textAt = action.seconds;
        this.#text += action.text;
        if (this.#text.length >= WRITE_LENGTH || this.#characters >= this.#thumbnailAfter)
          await this.#flush();
        if (this.#characters >= this.#thumbnailAfter) {
          this.#thumbnailAfter = this.#characters * 2;
          this.#takeThumbnail();
        }
        break;
      case 'resize':
        await this.#flush();
        this.#terminal.resize(action.size);
        this.#mark(action.seconds, 'resize', `${action.size.columns}x${action.size.rows}`);
        this.#noteSize(action.reported);
        break;
      case 'marker':
        this.#mark(action.seconds, 'marker', action.text);
        break;
      case 'bad':
        this.damaged('a line is not asciicast');
        break;
      case 'other':
        break;
    }
  }
}

// oxlint-disable-next-line no-control-regex -- controls are what this looks for
const ODD = /[\u0000-\u0006\u000e-\u001a\ufffd]/g;

/** Counts characters that occur in binary output but not in text, including U+FFFD, which replaces invalid UTF-8. */
function countOdd(text: string): number {
  return text.match(ODD)?.length ?? 0;
}
