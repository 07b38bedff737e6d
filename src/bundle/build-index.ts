/**
 * Plays a cast once, as fast as it goes, and notes what a player needs to show any moment of it at once: see
 * `screen/play-index`. Runs in a thread of its own, because a terminal takes a second of processor time for some 20 MB.
 */
import { createActivity, PLAY_INDEX_VERSION } from '../screen/play-index.ts';
import type { KeyframeEntry, PlayIndex, PlayMark } from '../screen/play-index.ts';
import { createCastReader, readCastStart, type CastAction, type CastStart } from '../screen/cast-reader.ts';
import { createScratch, SNAPSHOT_WORK, takeSnapshot } from '../screen/snapshot.ts';
import { createTerminal, type PlayTerminal } from '../screen/terminal.ts';
import { isTiny, type ScreenSize } from '../terminal/size.ts';
import { readLines } from '../wire/lines.ts';
import { WorkBudget } from '../work-budget.ts';
import type { TranscriptDocument } from '../search/transcript-document.ts';
import { Transcript, TRANSCRIPT_LIMITS } from '../search/transcript.ts';

/** What is known to have happened at a place of the cast: output is missing, or another part of the session begins. */
export interface KnownPlace {
  readonly offset: number;
  readonly kind: 'gap' | 'part';
  readonly text: string;
}

/** What is derived from one cast. */
export interface BuiltIndex {
  readonly index: PlayIndex;
  readonly transcript: TranscriptDocument;
}

export interface BuildOptions {
  /** The cast from its first byte. */
  readonly chunks: AsyncIterable<Uint8Array>;
  /** In the order of the cast. */
  readonly places: readonly KnownPlace[];
  /** Takes the screen of the next keyframe. */
  readonly onFrame: (screen: string) => Promise<void>;
  /** So many bytes have been read. */
  readonly onProgress: (bytes: number) => void;
}

/** Bytes of cast between two keyframes: what a seek has to play at most, and a bit. */
const FRAME_EVERY_BYTES = 512 * 1024;
/** Many screens may be large and each a frame: together they stay below a fraction of the cast. */
const MAX_FRAME_SHARE = 1 / 4;
/** Work units of keyframes per byte of cast: large screens have fewer keyframes. */
const FRAME_WORK = 64;
/** After a state that cannot be said; doubled after each such state in a row. */
const RETRY_AFTER_BYTES = 32 * 1024;
const WRITE_LENGTH = 128 * 1024;
/** Of each kind: what somebody prints must not hide what is missing. */
const MAX_MARKS = 1000;
const MAX_MARK_TEXT = 200;
/** Of all characters, those that no text has: from there on it is no text. */
const BINARY_SHARE = 0.05;
const MIN_BINARY = 64;

/** @throws WireError when the first line is no header. */
export async function buildPlayIndex(options: BuildOptions): Promise<BuiltIndex> {
  let builder: IndexBuilder | undefined;
  let offset = 0;
  let isCut = false;
  for await (const lines of readLines(watchEnd(options.chunks, (endsWhole) => (isCut = !endsWhole)))) {
    for (const bytes of lines) {
      const { text: line, isValid } = decodeLine(bytes);
      if (builder === undefined) builder = new IndexBuilder(line, options);
      else await builder.take(line, offset);
      if (!isValid) builder.damaged('a line is not UTF-8');
      offset += bytes.length + 1;
    }
    options.onProgress(offset);
  }
  // an empty file has no header either
  builder ??= new IndexBuilder('', options);
  return builder.finish(isCut);
}

const strict = new TextDecoder('utf-8', { fatal: true });
const lossy = new TextDecoder();

/** A cast is UTF-8, also where a program wrote other bytes: anything else was damaged later. */
function decodeLine(bytes: Uint8Array): { readonly text: string; readonly isValid: boolean } {
  try {
    return { text: strict.decode(bytes), isValid: true };
  } catch {
    return { text: lossy.decode(bytes), isValid: false };
  }
}

/** Tells at the end whether the last byte was a line feed. */
async function* watchEnd(
  chunks: AsyncIterable<Uint8Array>,
  tell: (endsWhole: boolean) => void,
): AsyncGenerator<Uint8Array> {
  let last: number | undefined;
  for await (const chunk of chunks) {
    last = chunk.at(-1) ?? last;
    yield chunk;
  }
  tell(last === 0x0a);
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
  readonly #transcript: Transcript;
  /** Of the emulator and the transcript together. */
  readonly #budget = new WorkBudget();
  readonly #marksOf = new Map<PlayMark['kind'], number>();
  #markCount = 0;
  #badLines = 0;
  #lastWasBad = false;
  #seconds = 0;
  #characters = 0;
  #odd = 0;
  #text = '';
  #retryAfter = RETRY_AFTER_BYTES;
  #nextFrame = FRAME_EVERY_BYTES;
  #stoppedAt: number | undefined;
  #frameCharacters = 0;
  #nextPlace = 0;
  #tinySize: string | undefined;

  /** @throws WireError when the line is no header. */
  constructor(header: string, options: BuildOptions) {
    const start: CastStart = readCastStart(header);
    this.#options = options;
    this.#transcript = new Transcript({
      ...TRANSCRIPT_LIMITS,
      onCommand: ({ at, text }) => this.#mark(at, 'command', text),
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

  /** @param offset byte of the cast at which the line begins. */
  async take(line: string, offset: number): Promise<void> {
    await this.#frameAt(offset);
    this.#markPlaces(offset);
    this.#transcript.line(line);
    const action = this.#read(line);
    if (action === undefined) return;
    this.#lastWasBad = action.kind === 'bad';
    this.#seconds = action.seconds;
    await this.#show(action);
    if (this.#budget.isExhausted) this.#stoppedAt ??= action.seconds;
  }

  /** Counts a line that cannot be read as it was written. */
  damaged(text: string): void {
    this.#badLines += 1;
    this.#mark(this.#seconds, 'damage', text);
  }

  /** @param endsInLine the last byte was no line feed. */
  finish(endsInLine: boolean): BuiltIndex {
    // a last line that is whole but for its line feed has lost nothing
    const isCut = endsInLine && this.#lastWasBad;
    this.#markPlaces(Number.POSITIVE_INFINITY);
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
      hidden: transcript.hidden.characters,
      ...(this.#tinySize === undefined ? {} : { tinySize: this.#tinySize }),
      ...(stoppedAt === undefined ? {} : { stoppedAt }),
    };
    return { index, transcript };
  }

  #mark(at: number, kind: PlayMark['kind'], text: string): void {
    this.#markCount += 1;
    const known = this.#marksOf.get(kind) ?? 0;
    this.#marksOf.set(kind, known + 1);
    if (known < MAX_MARKS) this.#marks.push({ at, kind, text: text.slice(0, MAX_MARK_TEXT) });
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
  }

  async #frameAt(offset: number): Promise<void> {
    if (offset < this.#nextFrame || this.#frameCharacters > offset * MAX_FRAME_SHARE) return;
    const { columns, rows } = this.#terminal.size;
    const work = columns * rows * SNAPSHOT_WORK;
    const every = Math.max(FRAME_EVERY_BYTES, work / FRAME_WORK);
    await this.#flush();
    if (!this.#budget.spend(work)) return;
    const screen = await takeSnapshot(this.#terminal, this.#scratch);
    if (screen === undefined) {
      // most often half of an escape sequence: tried again soon
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
        this.#text += action.text;
        if (this.#text.length >= WRITE_LENGTH) await this.#flush();
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

/** Characters that stand in no text: what output holds that was no text, in place of bytes that are not UTF-8 as well. */
function countOdd(text: string): number {
  return text.match(ODD)?.length ?? 0;
}
