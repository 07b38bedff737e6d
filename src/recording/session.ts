/**
 * Recording of one session: converts the output that the taps report to events with timestamps, encoded as
 * asciicast lines or as frames.
 *
 * ```
 *             size, or no terminal, or the wait is over
 *   awaitingSize ───────────────────────────────────► open ──end──► closed
 *        └──────────── the sink fails ──► failed ◄──────┘
 * ```
 *
 * The header is the first line and contains the terminal size. In state `awaitingSize`, events are therefore held back
 * until the client sends the size, up to a limit of time and bytes. In state `failed`, `output` only counts the missing
 * bytes, and `flush` throws if recording is enforced. `abandon` ends a recording whose sink is lost.
 *
 * Calls add events to a batch. `flush` passes the batch to the sink once per chunk. `flush` returns a promise if the
 * client must not see the output yet. Output in state `awaitingSize` must also wait, unless the policy of the sink is
 * `bestEffort`.
 */
import { isUtf8 } from 'node:buffer';
import { errorText, TailcastError } from '../errors.ts';
import type {
  Annotation,
  EndAnnotation,
  OrderAnnotation,
  SessionAnnotation,
} from '../wire/recorder-api/annotation.ts';
import type { FrameForm } from '../wire/recorder-api/upload-frame.ts';
import type { ExitStatus } from '../wire/remotecommand/exit-status.ts';
import type { TerminalSize } from '../wire/remotecommand/resize.ts';
import { OutputText } from './output-text.ts';
import type { EventBatch } from './event-batch.ts';
import type { RecorderUpload } from './recorder-upload.ts';

export type OutputStream = 'stdout' | 'stderr';
export type SessionEnd = EndAnnotation['outcome'];

/** Options of a recorded session. */
export interface SessionOptions {
  /**
   * True if the session has a terminal. The header then contains the first terminal size, and events contain later
   * sizes.
   */
  readonly tty: boolean;
  /**
   * True if recording is enforced: `flush` throws after the recorder was lost. If false, the session only counts the
   * missing bytes.
   */
  readonly enforce: boolean;
  /** Returns the header of the recording. */
  readonly header: (size: TerminalSize) => string;
  readonly about: SessionAnnotation;
  /** Monotonic clock. */
  readonly nowMs: () => number;
  readonly limits?: Partial<RecordingLimits>;
}

/** Limits of a recorded session. */
const RECORDING_LIMITS = {
  /** Maximum time for which the header waits for the first terminal size. */
  sizeWaitMs: 1_000,
  /** Maximum number of bytes of output that are held back until the first terminal size. */
  sizeWaitBytes: 64 * 1024,
  /** Maximum number of bytes of output in one asciicast event. */
  maxLineBytes: 64 * 1024,
  /**
   * Number of bytes of binary output that are stored both as bytes and as text, in sessions without a terminal. Later
   * binary output is stored only as bytes.
   */
  bulkAfterBytes: 512 * 1024,
  /**
   * Number of bytes at the start of each run of binary output that are always stored both as bytes and as text. A run
   * starts after a pause or after input.
   */
  bulkRunBytes: 16 * 1024,
  /** Pause after which a new run of binary output begins, in milliseconds. */
  bulkPauseMs: 100,
};
export type RecordingLimits = Readonly<typeof RECORDING_LIMITS>;

/** Number of bytes that `isText` checks before the rest. */
const PROBED_BYTES = 64;

/** Assumed terminal size if the client never sends one. */
const DEFAULT_SIZE: TerminalSize = { columns: 80, rows: 24 };
const NO_TERMINAL: TerminalSize = { columns: 0, rows: 0 };

/** Counters of a session. */
export interface SessionTotals {
  /** Number of bytes of output, recorded or not. */
  readonly outputBytes: number;
  readonly outputLines: number;
  /** Number of bytes of input, which are counted but not recorded. */
  readonly inputBytes: number;
  /** Number of bytes of output that are not recorded because the recorder was lost. */
  readonly missingBytes: number;
  readonly exit: ExitStatus | undefined;
}

type Sink = Pick<RecorderUpload, 'write' | 'whenShown' | 'end' | 'leave' | 'createBatch' | 'policy'> &
  Partial<Pick<RecorderUpload, 'acceptsMore'>>;

/** State machine of one recorded session. */
export class RecordingSession {
  readonly #sink: Sink;
  readonly #options: SessionOptions;
  readonly #limits: RecordingLimits;
  readonly #text: Readonly<Record<OutputStream, OutputText>>;
  readonly #startedMs: number;
  readonly #sizeTimer: NodeJS.Timeout | undefined;
  /** Resolves when the header is known. */
  readonly #opened = Promise.withResolvers<void>();
  #state: 'awaitingSize' | 'open' | 'failed' | 'closed' = 'awaitingSize';
  /** Header and session annotation. Undefined after the first flush. */
  #header: EventBatch | undefined;
  /** Events since the last flush. */
  readonly #batch: EventBatch;
  /** Number of bytes of output in the batch. */
  #batchBytes = 0;
  /** True if there was output since the last call of `flush`. */
  #hasNewOutput = false;
  #stream: OutputStream = 'stdout';
  #outputBytes = 0;
  #outputLines = 0;
  /** Number of bytes of binary output in total, and in the current run. */
  #binaryBytes = 0;
  #runBytes = 0;
  #runSeconds = 0;
  #inputBytes = 0;
  #missingBytes = 0;
  #exit: ExitStatus | undefined;

  /**
   * Starts the clock. Without a terminal, creates the header immediately. With a terminal, the header contains the
   * terminal size, so it is created when the size is known or a limit is reached. The next `flush` sends the header.
   */
  constructor(sink: Sink, options: SessionOptions) {
    this.#sink = sink;
    this.#options = options;
    this.#limits = { ...RECORDING_LIMITS, ...options.limits };
    this.#batch = sink.createBatch();
    this.#text = {
      stdout: new OutputText(this.#limits.maxLineBytes),
      stderr: new OutputText(this.#limits.maxLineBytes),
    };
    this.#startedMs = options.nowMs();
    if (options.tty)
      this.#sizeTimer = setTimeout(() => this.#openWithoutSize(), this.#limits.sizeWaitMs).unref();
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

  /**
   * True if more batches may be flushed before the last promise has resolved. The promise of the last flush
   * then covers all earlier batches.
   */
  get acceptsMore(): boolean {
    return this.#state === 'open' && this.#sink.acceptsMore === true;
  }

  /**
   * Records output. `bytes` must not change before `flush`. The caller must call `flush` in the same turn of
   * the event loop.
   */
  output(stream: OutputStream, bytes: Uint8Array): void {
    if (bytes.length === 0) return;
    this.#outputBytes += bytes.length;
    switch (this.#state) {
      case 'awaitingSize':
        this.#recordOutput(stream, new Uint8Array(bytes));
        if (this.#batchBytes > this.#limits.sizeWaitBytes) this.#open(DEFAULT_SIZE);
        return;
      case 'open':
        this.#recordOutput(stream, bytes);
        return;
      case 'failed':
        this.#missingBytes += bytes.length;
        return;
      case 'closed':
        return;
    }
  }

  /** Counts bytes of input. */
  input(count: number): void {
    this.#inputBytes += count;
    if (count > 0) this.#runBytes = 0;
  }

  /** Records a terminal size. Sizes without columns or rows are ignored. */
  resize(size: TerminalSize): void {
    if (!this.#options.tty || size.columns === 0 || size.rows === 0) return;
    if (this.#state === 'awaitingSize') this.#open(size);
    else if (this.#state === 'open') this.#batch.resize(this.#seconds(), size);
  }

  /** Records the exit status. Only the first call has an effect. */
  exit(status: ExitStatus): void {
    if (this.#exit !== undefined) return;
    this.#exit = status;
    if (this.#state === 'awaitingSize') this.#open(DEFAULT_SIZE);
    if (this.#state === 'open') this.#batch.annotate(exitAnnotation(status));
  }

  /** Records that the gateway executed an order of the recorder. */
  order({ id, action, by, reason }: Omit<OrderAnnotation, 'kind'>): void {
    if (this.#state !== 'open' && this.#state !== 'awaitingSize') return;
    this.#batch.annotate({ kind: 'order', id, action, by, reason });
    // An error of this flush is ignored, because the next flush reports a lost recorder.
    handOver(this);
  }

  /**
   * Passes the batch to the recorder.
   * @returns a promise if the writer must wait
   * @throws TailcastError `RECORDER_LOST` if the recorder was lost and recording is enforced. A returned promise may
   * reject with the same error
   */
  flush(): void | Promise<void> {
    this.#requireRecorder();
    const hasNewOutput = this.#hasNewOutput;
    this.#hasNewOutput = false;
    if (this.#state === 'awaitingSize') {
      // Only output waits for the header. Input must not wait, because the client sends the terminal size as input.
      return hasNewOutput && this.#sink.policy !== 'bestEffort' ? this.#flushWhenOpen() : undefined;
    }
    const bytes = this.#batchBytes;
    const events = this.#takeEvents();
    if (events.length === 0) return undefined;
    try {
      return this.#sink.write(events)?.catch((error: unknown) => this.#fail(error, 0));
    } catch (error) {
      return this.#fail(error, bytes);
    }
  }

  /**
   * Ends the recording. Resolves when the recorder has confirmed the complete recording, or when the unacknowledged
   * rest became a late delivery.
   * @throws TailcastError `RECORDER_LOST` if neither is possible, even if recording is not enforced
   */
  async end(outcome: SessionEnd, reason?: string): Promise<void> {
    if (this.#state === 'closed') return;
    if (this.#state === 'failed') throw new TailcastError('RECORDER_LOST', 'the recording is not complete');
    const last = this.#close(outcome, reason);
    this.#state = 'closed';
    // The promise of `write` is not needed, because `end` waits for the last byte.
    if (last.length > 0) void Promise.resolve(this.#sink.write(last)).catch(() => {});
    await this.#sink.end();
  }

  /** Ends the recording because its sink is lost. The sink keeps the bytes that it already got. */
  abandon(reason: string): void {
    if (this.#state === 'closed') return;
    const last = this.#close('interrupted', reason);
    this.#state = 'failed';
    this.#sink.leave(last);
  }

  /** Returns the last events, including output that was held back. */
  #close(outcome: SessionEnd, reason: string | undefined): readonly Uint8Array[] {
    if (this.#state === 'awaitingSize') this.#open(DEFAULT_SIZE);
    clearTimeout(this.#sizeTimer);
    for (const stream of ['stdout', 'stderr'] as const) {
      this.#text[stream].flush((bytes) => this.#line(this.#seconds(), stream, bytes));
    }
    this.#batch.annotate({
      kind: 'end',
      outcome,
      ...(reason === undefined ? {} : { reason }),
      outputBytes: this.#outputBytes,
      outputLines: this.#outputLines,
    });
    return this.#takeEvents();
  }

  /** Takes the events since the last flush, in the encoding of the sink. */
  #takeEvents(): readonly Uint8Array[] {
    this.#batchBytes = 0;
    const header = this.#header?.takePieces() ?? [];
    this.#header = undefined;
    return this.#batch.length === 0 ? header : [...header, ...this.#batch.takePieces()];
  }

  async #flushWhenOpen(): Promise<void> {
    await this.#opened.promise;
    await this.flush();
    try {
      // The call that opened the recording may have flushed the batch already. Then `#flushWhenOpen` must also wait for
      // that write.
      if (this.#state === 'open') await this.#sink.whenShown();
    } catch (error) {
      this.#fail(error, 0);
    }
    this.#requireRecorder();
  }

  #requireRecorder(): void {
    if (this.#state !== 'failed' || !this.#options.enforce) return;
    throw new TailcastError('RECORDER_LOST', 'the session must not continue unrecorded');
  }

  #openWithoutSize(): void {
    if (this.#state !== 'awaitingSize') return;
    this.#open(DEFAULT_SIZE);
    try {
      // An error of this write is ignored, because the next flush reports it.
      void Promise.resolve(this.flush()).catch(() => {});
    } catch {
      // The error is ignored, because the state is `failed` now and the next flush throws again.
    }
  }

  #open(size: TerminalSize): void {
    this.#state = 'open';
    clearTimeout(this.#sizeTimer);
    const header = this.#sink.createBatch();
    header.lines(this.#options.header(size));
    header.annotate(this.#options.about);
    this.#header = header;
    this.#opened.resolve();
  }

  #recordOutput(stream: OutputStream, bytes: Uint8Array): void {
    const seconds = this.#seconds();
    this.#batchBytes += bytes.length;
    this.#hasNewOutput = true;
    this.#text[stream].push(
      bytes,
      (line) => this.#line(seconds, stream, line),
      (part) => this.#isBulk(seconds, part),
    );
  }

  #line(seconds: number, stream: OutputStream, bytes: Uint8Array): void {
    const { annotations } = this.#batch;
    if (annotations && stream !== this.#stream) {
      this.#batch.annotate({ kind: 'stream', name: stream });
      this.#stream = stream;
    }
    this.#outputLines += 1;
    this.#batch.output(seconds, bytes, annotations ? this.#formOf(seconds, bytes) : 'exact');
  }

  /** Returns true if these bytes continue a long run of binary output, which is stored only as bytes. */
  #isBulk(seconds: number, bytes: Uint8Array): boolean {
    const { bulkAfterBytes, bulkRunBytes, bulkPauseMs } = this.#limits;
    if (!this.#batch.annotations || this.#binaryBytes <= bulkAfterBytes) return false;
    const goesOn = this.#runBytes > bulkRunBytes && (seconds - this.#runSeconds) * 1000 < bulkPauseMs;
    return goesOn && !this.#options.tty && !isText(bytes);
  }

  /**
   * Returns `bulk` for long binary output, such as a copied disk image. The recording then contains its bytes
   * only once, without their text.
   */
  #formOf(seconds: number, bytes: Uint8Array): FrameForm {
    const { bulkAfterBytes, bulkRunBytes, bulkPauseMs } = this.#limits;
    if (this.#options.tty || isText(bytes)) return 'exact';
    if ((seconds - this.#runSeconds) * 1000 >= bulkPauseMs) this.#runBytes = 0;
    this.#runSeconds = seconds;
    this.#runBytes += bytes.length;
    this.#binaryBytes += bytes.length;
    return this.#runBytes > bulkRunBytes && this.#binaryBytes > bulkAfterBytes ? 'bulk' : 'exact';
  }

  #fail(error: unknown, lostBytes: number): void {
    if (this.#state !== 'closed') this.#state = 'failed';
    clearTimeout(this.#sizeTimer);
    this.#missingBytes += lostBytes;
    if (this.#options.enforce) {
      throw error instanceof TailcastError ? error : new TailcastError('RECORDER_LOST', errorText(error));
    }
  }

  #seconds(): number {
    return (this.#options.nowMs() - this.#startedMs) / 1000;
  }
}

/**
 * Returns true for valid UTF-8. Checks the first bytes separately, because `isUtf8` always reads its complete
 * input.
 */
function isText(bytes: Uint8Array): boolean {
  let head = Math.min(bytes.length, PROBED_BYTES);
  // Moves back to the start of a character, which has at most three continuation bytes.
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

/**
 * Flushes pending output. Must be called before a violation is reported, because the memory of the output is not valid
 * later.
 */
export function handOver(session: Pick<RecordingSession, 'flush'>): void {
  try {
    void Promise.resolve(session.flush()).catch(() => {});
  } catch {
    // A lost recorder is reported by the code that ends the session.
  }
}
