/**
 * One recorded session: what the taps see becomes cast lines, or frames for them, in order, with the time they were seen.
 *
 * ```
 *             size, or no terminal, or the wait is over
 *   awaitingSize ───────────────────────────────────► open ──end──► closed
 *        └──────────── the sink fails ──► failed ◄──────┘
 * ```
 *
 * `awaitingSize` exists because the cast header, the first line, holds the terminal's size: output is held back for it,
 * for a bounded time and a bounded number of bytes. `failed` obeys the policy: when recording is enforced every later
 * call throws, otherwise calls only count what is missing. What the sink took before that is closed by `abandon`.
 *
 * Calls add lines to a batch; `flush` hands the batch to the sink, once per chunk of the wire, and returns a promise
 * when the sink wants its writer to wait. With a sink whose content `survives` this process, that is so for output held back for its
 * size, too.
 */
import { isUtf8 } from 'node:buffer';
import { errorText, TailcastError } from '../errors.ts';
import { encodeCastEvent, formatResize } from '../wire/asciicast/event.ts';
import {
  encodeAnnotation,
  type Annotation,
  type SessionAnnotation,
} from '../wire/recorder-api/annotation.ts';
import { LineBatch, type OutputForm } from '../wire/recorder-api/line-batch.ts';
import { FrameBatch, type FrameForm } from '../wire/recorder-api/upload-frame.ts';
import type { ExitStatus } from '../wire/remotecommand/exit-status.ts';
import type { TerminalSize } from '../wire/remotecommand/resize.ts';
import { createDeadline, type Deadline } from '../async/deadline.ts';
import { OutputText } from './output-text.ts';
import type { RecorderUpload } from './recorder-upload.ts';

export type OutputStream = 'stdout' | 'stderr';
export type SessionEnd = 'completed' | 'interrupted' | 'violated';

export interface SessionOptions {
  /** With a terminal the header waits for the first resize, and later ones are recorded. */
  readonly tty: boolean;
  /** A lost recorder makes every later call throw instead of counting what is missing. */
  readonly enforce: boolean;
  /** The first line of the recording. */
  readonly header: (size: TerminalSize) => string;
  readonly about: SessionAnnotation;
  /** Monotonic. */
  readonly nowMs: () => number;
  readonly limits?: Partial<RecordingLimits>;
}

export interface RecordingLimits {
  /** How long, and for how many bytes of output, the header waits for the first resize. */
  readonly sizeWaitMs: number;
  readonly sizeWaitBytes: number;
  /** Most bytes of output in one cast line. */
  readonly maxLineBytes: number;
  /** Of a session without a terminal: output that is no text is shown until there are so many bytes of it. */
  readonly bulkAfterBytes: number;
  /** So much of it at a time is always shown: somebody may have typed for it. */
  readonly bulkRunBytes: number;
  /** What comes after such a pause, or after input, is another time. */
  readonly bulkPauseMs: number;
}

const RECORDING_LIMITS: RecordingLimits = {
  sizeWaitMs: 1_000,
  sizeWaitBytes: 64 * 1024,
  maxLineBytes: 64 * 1024,
  bulkAfterBytes: 1024 * 1024,
  bulkRunBytes: 16 * 1024,
  bulkPauseMs: 100,
};

/** Looked at before the rest of the bytes, whether they are text. */
const PROBED_BYTES = 64;

/** What a recorder shows when a terminal never told its size. */
const DEFAULT_SIZE: TerminalSize = { columns: 80, rows: 24 };
const NO_TERMINAL: TerminalSize = { columns: 0, rows: 0 };

export interface SessionTotals {
  /** Bytes the process wrote, recorded or not. */
  readonly outputBytes: number;
  readonly outputLines: number;
  /** Bytes the client sent to the process; they are counted, not recorded. */
  readonly inputBytes: number;
  /** Bytes of output that are in no recording because the recorder was lost. */
  readonly missingBytes: number;
  readonly exit: ExitStatus | undefined;
}

type Sink = Pick<RecorderUpload, 'write' | 'room' | 'end' | 'leave' | 'annotations' | 'frames' | 'survives'> &
  Partial<Pick<RecorderUpload, 'gathers'>>;

/** What `flush` hands to the sink. */
interface Batch {
  readonly length: number;
  text(lines: string): void;
  output(seconds: number, bytes: Uint8Array, form: OutputForm): void;
  takePieces(): readonly Uint8Array[];
}

interface HeldOutput {
  readonly seconds: number;
  readonly stream: OutputStream;
  readonly bytes: Uint8Array;
}

export class RecordingSession {
  readonly #sink: Sink;
  readonly #options: SessionOptions;
  readonly #limits: RecordingLimits;
  readonly #text: Readonly<Record<OutputStream, OutputText>>;
  readonly #startedMs: number;
  readonly #wait: Deadline | undefined;
  /** Resolves when nothing is held back any more. */
  readonly #opened = Promise.withResolvers<void>();
  #state: 'awaitingSize' | 'open' | 'failed' | 'closed' = 'awaitingSize';
  #held: HeldOutput[] = [];
  #heldBytes = 0;
  /** Output was held back that no `flush` has answered for. */
  #heldUnflushed = false;
  readonly #batch: Batch;
  #batchBytes = 0;
  #stream: OutputStream = 'stdout';
  #outputBytes = 0;
  #outputLines = 0;
  /** Output that is no text: all of it, and since when it comes without a pause. */
  #binaryBytes = 0;
  #runBytes = 0;
  #runSeconds = 0;
  #inputBytes = 0;
  #missingBytes = 0;
  #exit: ExitStatus | undefined;

  /** Starts the clock. Without a terminal the header is in the first batch; call `flush`. */
  constructor(sink: Sink, options: SessionOptions) {
    this.#sink = sink;
    this.#options = options;
    this.#limits = { ...RECORDING_LIMITS, ...options.limits };
    this.#batch = sink.frames ? new FrameBatch() : new LineBatch(isUtf8);
    this.#text = {
      stdout: new OutputText(this.#limits.maxLineBytes),
      stderr: new OutputText(this.#limits.maxLineBytes),
    };
    this.#startedMs = options.nowMs();
    if (options.tty) this.#wait = createDeadline(this.#limits.sizeWaitMs, () => this.#sizeIsLate());
    else this.#open(NO_TERMINAL);
  }

  get totals(): SessionTotals {
    return {
      outputBytes: this.#outputBytes,
      outputLines: this.#outputLines,
      inputBytes: this.#inputBytes,
      missingBytes: this.#missingBytes,
      exit: this.#exit,
    };
  }

  /** More may be flushed before the last one was answered for: its answer is for all. */
  get gathers(): boolean {
    return this.#state === 'open' && this.#sink.gathers === true;
  }

  /** The process wrote `bytes`, which stay as they are until `flush`: it must follow before anybody else has its turn. */
  output(stream: OutputStream, bytes: Uint8Array): void {
    if (bytes.length === 0) return;
    this.#outputBytes += bytes.length;
    switch (this.#state) {
      case 'awaitingSize':
        this.#held.push({ seconds: this.#seconds(), stream, bytes: new Uint8Array(bytes) });
        this.#heldBytes += bytes.length;
        this.#heldUnflushed = true;
        if (this.#heldBytes > this.#limits.sizeWaitBytes) this.#open(DEFAULT_SIZE);
        return;
      case 'open':
        this.#batchBytes += bytes.length;
        this.#recordOutput(this.#seconds(), stream, bytes);
        return;
      case 'failed':
        this.#missingBytes += bytes.length;
        return;
      case 'closed':
        return;
    }
  }

  /** The client sent `count` bytes to the process. */
  input(count: number): void {
    this.#inputBytes += count;
    if (count > 0) this.#runBytes = 0;
  }

  /** The terminal has a new size. Sizes without columns or rows say nothing and are left out. */
  resize(size: TerminalSize): void {
    if (!this.#options.tty || size.columns === 0 || size.rows === 0) return;
    if (this.#state === 'awaitingSize') this.#open(size);
    else if (this.#state === 'open')
      this.#batch.text(encodeCastEvent(this.#seconds(), 'r', formatResize(size)));
  }

  /** The API server said how the process ended. The first word counts. */
  exit(status: ExitStatus): void {
    if (this.#exit !== undefined) return;
    this.#exit = status;
    if (this.#state === 'awaitingSize') this.#open(DEFAULT_SIZE);
    if (this.#state === 'open') this.#annotate(exitAnnotation(status));
  }

  /**
   * Hands the batch to the recorder.
   * @returns a promise when the writer should wait
   * @throws TailcastError `RECORDER_LOST` when recording is enforced, also as a rejection
   */
  flush(): void | Promise<void> {
    this.#requireRecorder();
    const heldBack = this.#heldUnflushed && this.#state === 'awaitingSize';
    this.#heldUnflushed = false;
    // not for the client's chunks: one of them brings the size
    if (heldBack && this.#sink.survives) return this.#flushWhenOpen();
    if (this.#batch.length === 0) return undefined;
    const lines = this.#batch.takePieces();
    const bytes = this.#batchBytes;
    this.#batchBytes = 0;
    try {
      const room = this.#sink.write(lines);
      if (room === undefined) return undefined;
      return room.catch((error: unknown) => this.#fail(error, 0));
    } catch (error) {
      return this.#fail(error, bytes);
    }
  }

  /**
   * The session is over. Resolves when the recorder has confirmed everything, or when the sink delivers the rest later.
   * @throws TailcastError `RECORDER_LOST` when neither is so, whatever the policy: the caller reports it
   */
  async end(outcome: SessionEnd, reason?: string): Promise<void> {
    if (this.#state === 'closed') return;
    if (this.#state === 'failed') throw new TailcastError('RECORDER_LOST', 'the recording is not complete');
    const last = this.#close(outcome, reason);
    this.#state = 'closed';
    // Nobody waits for room any more: the session is over, and `end` resolves after the last byte.
    if (last.length > 0) void Promise.resolve(this.#sink.write(last)).catch(() => {});
    await this.#sink.end();
  }

  /** The sink is lost, so the recording ends here, whatever becomes of the session: what the sink took is left to it. */
  abandon(reason: string): void {
    if (this.#state === 'closed') return;
    const last = this.#close('interrupted', reason);
    this.#state = 'failed';
    this.#sink.leave(last);
  }

  /** The last lines, those that were held back included. */
  #close(outcome: SessionEnd, reason: string | undefined): readonly Uint8Array[] {
    if (this.#state === 'awaitingSize') this.#open(DEFAULT_SIZE);
    this.#wait?.clear();
    for (const stream of ['stdout', 'stderr'] as const) {
      this.#text[stream].flush((bytes) => this.#line(this.#seconds(), stream, bytes));
    }
    this.#annotate({
      kind: 'end',
      outcome,
      ...(reason === undefined ? {} : { reason }),
      outputBytes: this.#outputBytes,
      outputLines: this.#outputLines,
    });
    return this.#batch.takePieces();
  }

  async #flushWhenOpen(): Promise<void> {
    await this.#opened.promise;
    await this.flush();
    try {
      // those who opened the session may have flushed the batch, and wait themselves
      if (this.#state === 'open') await this.#sink.room();
    } catch (error) {
      this.#fail(error, 0);
    }
    this.#requireRecorder();
  }

  #requireRecorder(): void {
    if (this.#state !== 'failed' || !this.#options.enforce) return;
    throw new TailcastError('RECORDER_LOST', 'nothing may go on unrecorded');
  }

  #sizeIsLate(): void {
    if (this.#state !== 'awaitingSize') return;
    this.#open(DEFAULT_SIZE);
    try {
      // Whoever pushes the next chunk learns of a full or broken sink.
      void Promise.resolve(this.flush()).catch(() => {});
    } catch {
      // `failed` is remembered, and the next flush throws again
    }
  }

  #open(size: TerminalSize): void {
    this.#state = 'open';
    this.#wait?.clear();
    this.#batch.text(this.#options.header(size));
    this.#annotate(this.#options.about);
    const held = this.#held;
    this.#held = [];
    this.#batchBytes += this.#heldBytes;
    this.#heldBytes = 0;
    for (const { seconds, stream, bytes } of held) this.#recordOutput(seconds, stream, bytes);
    this.#opened.resolve();
  }

  #recordOutput(seconds: number, stream: OutputStream, bytes: Uint8Array): void {
    this.#text[stream].push(
      bytes,
      (line) => this.#line(seconds, stream, line),
      (part) => this.#isBulk(seconds, part),
    );
  }

  #line(seconds: number, stream: OutputStream, bytes: Uint8Array): void {
    const { annotations } = this.#sink;
    if (annotations && stream !== this.#stream) {
      this.#annotate({ kind: 'stream', name: stream });
      this.#stream = stream;
    }
    this.#outputLines += 1;
    this.#batch.output(seconds, bytes, annotations ? this.#formOf(seconds, bytes) : 'text');
  }

  /** Whether lines of it will say only how much it is: it is no text, as what came before it. */
  #isBulk(seconds: number, bytes: Uint8Array): boolean {
    const { bulkAfterBytes, bulkRunBytes, bulkPauseMs } = this.#limits;
    if (!this.#sink.annotations || this.#binaryBytes <= bulkAfterBytes) return false;
    const goesOn = this.#runBytes > bulkRunBytes && (seconds - this.#runSeconds) * 1000 < bulkPauseMs;
    return goesOn && !this.#options.tty && !isText(bytes);
  }

  /** Returns `bulk` for long binary output, such as a copied disk image: its bytes are stored once, without their text. */
  #formOf(seconds: number, bytes: Uint8Array): FrameForm {
    const { bulkAfterBytes, bulkRunBytes, bulkPauseMs } = this.#limits;
    if (this.#options.tty || isText(bytes)) return 'exact';
    if ((seconds - this.#runSeconds) * 1000 >= bulkPauseMs) this.#runBytes = 0;
    this.#runSeconds = seconds;
    this.#runBytes += bytes.length;
    this.#binaryBytes += bytes.length;
    return this.#runBytes > bulkRunBytes && this.#binaryBytes > bulkAfterBytes ? 'bulk' : 'exact';
  }

  #annotate(annotation: Annotation): void {
    if (!this.#sink.annotations) return;
    this.#batch.text(encodeAnnotation(annotation));
  }

  #fail(error: unknown, lostBytes: number): void {
    if (this.#state !== 'closed') this.#state = 'failed';
    this.#wait?.clear();
    this.#missingBytes += lostBytes;
    if (this.#options.enforce) {
      throw error instanceof TailcastError ? error : new TailcastError('RECORDER_LOST', errorText(error));
    }
  }

  #seconds(): number {
    return (this.#options.nowMs() - this.#startedMs) / 1000;
  }
}

/** Whether it is UTF-8. What is none mostly shows it at once, but `isUtf8` reads all of it before it says so. */
function isText(bytes: Uint8Array): boolean {
  let head = Math.min(bytes.length, PROBED_BYTES);
  // up to where a character begins: it has at most three bytes behind its first
  while (head < bytes.length && head > PROBED_BYTES - 4 && ((bytes[head] ?? 0) & 0xc0) === 0x80) head -= 1;
  return isUtf8(bytes.subarray(0, head)) && (head === bytes.length || isUtf8(bytes));
}

function exitAnnotation(status: ExitStatus): Annotation {
  switch (status.kind) {
    case 'success':
      return { kind: 'exit', code: 0 };
    case 'exit':
      return { kind: 'exit', code: status.code, message: status.message };
    case 'failure':
      return { kind: 'exit', message: status.message };
  }
}
