/**
 * Reconstructs the exact output of a session. Text comes from the cast. Output that was not valid text comes from the
 * notes.
 *
 * ```
 *   notes  stream stdout │ raw 0f9c…      │ stream stderr │ end
 *   cast          "text" │ "\ufffd\ufffd" │        "text" │
 *                     ▼          ▼               ▼
 *   output         text       0f 9c …         text
 * ```
 */
import { decodeBase64 } from '../../wire/base64.ts';
import { parseCastEvent } from '../../wire/asciicast/event.ts';
import { readLines } from '../../wire/lines.ts';
import { parseAnnotation, type Annotation, type EndAnnotation } from '../../wire/recorder-api/annotation.ts';
import { parseJournalLine } from '../spool/spool-journal.ts';
import { gapText } from './gap-text.ts';

/** The files of a recording. */
export interface ExactSources {
  readonly cast: AsyncIterable<Uint8Array>;
  /** Content of the notes; undefined if the recording has no notes. */
  readonly notes: AsyncIterable<Uint8Array> | undefined;
}

/** An annotation, and its offset in the cast. */
interface Note {
  readonly at: number;
  readonly annotation: Annotation;
}

const REPLACEMENT = '\ufffd';
const OPEN_BRACKET = 0x5b;
const encoder = new TextEncoder();
const decoder = new TextDecoder();

/**
 * Returns the output of one stream in chunks. `stderr` of a session with a terminal is empty. Only one line of the cast
 * and a few notes are in memory.
 *
 * @param onProblem called with a sentence for each reason why the result differs from the original output: once per
 *   kind of problem, and once per gap
 * @throws WireError if the cast is invalid
 */
export async function* exactOutput(
  { cast, notes }: ExactSources,
  stream: 'stdout' | 'stderr',
  onProblem: (text: string) => void,
): AsyncGenerator<Uint8Array> {
  const state = new NoteState(onProblem);
  const left = notesIn(notes, onProblem);
  let next = await left.next();
  let offset = 0;
  for await (const lines of readLines(cast)) {
    for (const line of lines) {
      for (; next.done !== true && next.value.at <= offset; next = await left.next())
        state.take(next.value.annotation);
      offset += line.length + 1;
      const event = line[0] === OPEN_BRACKET ? parseCastEvent(decoder.decode(line)) : undefined;
      if (event?.code !== 'o') continue;
      const bytes = state.bytesOf(event.data);
      if (state.stream === stream) yield bytes;
    }
  }
  for (; next.done !== true; next = await left.next()) state.take(next.value.annotation);
  state.finish();
}

/**
 * State that results from the notes read so far: stream and exact bytes of the next output, and the outcome of the
 * session.
 */
class NoteState {
  stream: 'stdout' | 'stderr' = 'stdout';
  readonly #onProblem: (text: string) => void;
  #exact: string | undefined;
  #keepsExact = false;
  #isLossy = false;
  #end: EndAnnotation | undefined;

  constructor(onProblem: (text: string) => void) {
    this.#onProblem = onProblem;
  }

  take(annotation: Annotation): void {
    switch (annotation.kind) {
      case 'session':
        this.#keepsExact = true;
        break;
      case 'stream':
        this.stream = annotation.name;
        break;
      case 'raw':
        this.#exact = annotation.base64;
        break;
      case 'gap':
        this.#onProblem(gapText(annotation));
        break;
      case 'end':
        this.#end = annotation;
        break;
      case 'exit':
      case 'order':
        break;
    }
  }

  /** Returns the original bytes of an output text of the cast. */
  bytesOf(text: string): Uint8Array {
    const exact = this.#exact;
    this.#exact = undefined;
    if (exact !== undefined) return decodeBase64(exact);
    if (!this.#keepsExact) this.#isLossy ||= text.includes(REPLACEMENT);
    return encoder.encode(text);
  }

  /** Reports the problems of the complete output. */
  finish(): void {
    if (this.#isLossy)
      this.#onProblem(
        'some of it was not UTF-8, and its recorder kept no exact bytes: it has U+FFFD instead',
      );
    if (this.#end === undefined) this.#onProblem('it does not state that it is complete');
    else if (this.#end.outcome !== 'completed')
      this.#onProblem(`it is not whole: ${this.#end.reason ?? this.#end.outcome}`);
  }
}

async function* notesIn(
  notes: ExactSources['notes'],
  onProblem: (text: string) => void,
): AsyncGenerator<Note, undefined> {
  if (notes === undefined) return;
  let isOdd = false;
  for await (const lines of readLines(notes)) {
    for (const bytes of lines) {
      const line = parseJournalLine(decoder.decode(bytes));
      if (line?.kind === 'meta' || line?.kind === 'end') continue;
      const annotation = line === undefined ? undefined : annotationOf(line.note.text);
      if (line !== undefined && annotation !== undefined) yield { at: line.note.at, annotation };
      else if (!isOdd) onProblem('some of its notes cannot be read');
      isOdd ||= annotation === undefined;
    }
  }
}

/** Annotations with exact bytes. Such annotations are long, so they are matched without a JSON parser. */
const RAW = /^\{"kind":"raw","base64":"([A-Za-z0-9+/=]*)"\}$/;

function annotationOf(text: string | undefined): Annotation | undefined {
  if (text === undefined) return undefined;
  const raw = RAW.exec(text)?.[1];
  return raw === undefined ? parseAnnotation(text) : { kind: 'raw', base64: raw };
}
