/**
 * The upload of one session, from its header to the last durable byte. This module handles lines, offsets and the
 * spool. It is independent of HTTP and the store.
 *
 * ```
 * awaitingHeader ── header line ──► attached ◄── resume ── suspended
 *                                    │    └── connection cut ──►┘ │
 *                          end ──────┤                            └─ not continued ─► over
 *                 storage failure ───┴──────────────────────────────────────────► over
 * ```
 *
 * Offsets count body bytes of the complete upload, over all connections. Acknowledgements cover only complete lines,
 * because the recorder truncates the spool to complete lines after a crash.
 *
 * A session that started at another recorder begins at the offset where that recorder stopped: see `session-part.ts`.
 */
import { jsonOrUndefined } from '../../wire/json-value.ts';
import { TailcastError } from '../../errors.ts';
import { MAX_ANNOTATION_LENGTH } from '../../wire/recorder-api/annotation.ts';
import { decodeHeader, parseHead, stampHead } from '../library/cast-head.ts';
import { cutFile } from '../files/append-file.ts';
import { storageError } from '../files/durable-files.ts';
import type { StartedUpload } from './started-upload.ts';
import { isRawAnnotation } from './raw-annotation.ts';
import type { Committable, GroupCommit } from './group-commit.ts';
import { SessionOrders } from './session-orders.ts';
import { LongLines, type LongLinesOptions } from './long-lines.ts';
import { LineSplitter, type UploadPiece } from './line-splitter.ts';
import { SessionFacts } from '../library/session-facts.ts';
import type { SessionOrder } from '../../wire/recorder-api/session-order.ts';
import type { Continuation, Neighbours } from '../../wire/recorder-api/upload-headers.ts';
import { createSpoolFile, spoolPaths, type SpoolFile, type SpoolPosition } from '../spool/spool-file.ts';
import {
  encodeEnd,
  encodeMeta,
  encodeNote,
  encodeNoteBytes,
  type SpoolMeta,
} from '../spool/spool-journal.ts';

/** Callbacks to the connection that is attached to the session. */
export interface AttachmentEvents {
  /**
   * True if the uploader waits for every byte to become durable. The bytes of the session are then committed
   * immediately.
   */
  readonly waits: boolean;
  /** Called with the number of durable body bytes of the session, counted after the conversion of frames to lines. */
  durable(bodyBytes: number): void;
  /** Sends a session order to the gateway. Undefined if the gateway does not support session orders. */
  readonly order?: ((order: SessionOrder) => void) | undefined;
  /** Called when the connection may continue after `push` returned false. */
  drain(): void;
  /** Called when the recorder ends the upload. No event follows. */
  failed(error: TailcastError): void;
  /** Called when another connection continues the session. No event follows. */
  released(error: TailcastError): void;
}

export interface SessionLimits {
  readonly maxSessionBytes: number;
  readonly maxLineBytes: number;
  /** Maximum number of uncommitted bytes of one session. Above this limit, the uploader must wait. */
  readonly maxPendingBytes: number;
}

/** Receives measurements of all sessions. */
export interface UploadMeter {
  /** Called with the duration of one fsync. */
  readonly synced: (durationMs: number) => void;
  /** Called with the number of newly durable bytes, and the waiting time of the oldest byte. */
  readonly durable: (bodyBytes: number, waitedMs: number) => void;
}

export interface SessionDependencies {
  readonly spoolDirectory: string;
  readonly group: GroupCommit;
  readonly syncEntries: () => Promise<void>;
  readonly limits: SessionLimits;
  readonly longLines: LongLinesOptions;
  readonly meter: UploadMeter;
  /** Returns the receive time for a new key. Each call returns a later time than all earlier calls. */
  readonly issueTime: () => string;
  /** True if all sessions together have too many uncommitted bytes. */
  readonly isFull: () => boolean;
  /** Called when the header line is complete. From then on, the session has a key. */
  readonly onStarted: (key: SpoolMeta, origin: UploadOrigin) => void;
  /**
   * Called when bytes of the body are durable. `header` is the stored header line in the first call, later undefined.
   * The bytes are acknowledged when the returned promise resolves. If no promise is returned, they are acknowledged
   * immediately. A rejection ends the session.
   */
  readonly onDurable: (
    started: StartedUpload,
    bodyBytes: number,
    header: Uint8Array | undefined,
  ) => Promise<void> | undefined;
}

/** Origin of an upload. */
export interface UploadOrigin {
  readonly nodeId: string;
  readonly nodeName: string;
  readonly address: string;
  readonly protocol: 'v1' | 'v2';
  readonly token: string | undefined;
  /** Position of this part, if the session started at another recorder. */
  readonly continues?: Pick<Continuation, 'number' | 'offset'>;
  readonly neighbours?: Neighbours;
}

const lossy = new TextDecoder();

/** The upload of one session over all its connections. */
export class UploadSession implements Committable {
  readonly origin: UploadOrigin;
  readonly orders = new SessionOrders();
  readonly longLines: LongLines;
  readonly #deps: SessionDependencies;
  #started: StartedUpload | undefined;
  #spool: SpoolFile | undefined;
  #splitter: LineSplitter;
  #events: AttachmentEvents | undefined;
  #appended: SpoolPosition;
  #durable: SpoolPosition;
  /** Number of body bytes to skip, because an earlier connection sent them. */
  #skipBytes = 0;
  /** Number of body bytes that repeat the start of the session and follow the skipped bytes. */
  #preambleBytes = 0;
  #oddLines = 0;
  /** Stored header line; undefined after the call of `onDurable` that records it in the evidence log. */
  #header: Uint8Array | undefined;
  /** Resolves when all earlier positions are in the evidence log and confirmed. */
  #confirming: Promise<void> | undefined;
  #failure: TailcastError | undefined;
  #paused = false;
  /** Arrival of the oldest uncommitted byte, on the clock of `performance.now()`. */
  #waitingSince: number | undefined;
  #appends = 0;
  #waiters: { readonly appends: number; readonly resolve: () => void }[] = [];
  #watchers = new Set<() => void>();

  constructor(origin: UploadOrigin, deps: SessionDependencies) {
    this.origin = origin;
    this.#deps = deps;
    this.longLines = new LongLines(deps.longLines, origin);
    this.#durable = { bodyBytes: origin.continues?.offset ?? 0, castBytes: 0, notesBytes: 0 };
    this.#appended = this.#durable;
    this.#splitter = this.#createSplitter();
  }

  /** Restores a session of an earlier process. The session can continue after its last complete line. */
  static recovered(
    started: StartedUpload,
    position: SpoolPosition,
    origin: UploadOrigin,
    deps: SessionDependencies,
  ): UploadSession {
    const session = new UploadSession(origin, deps);
    session.#started = started;
    session.#appended = position;
    session.#durable = position;
    return session;
  }

  /** Data of the upload; undefined before the header line. */
  get started(): StartedUpload | undefined {
    return this.#started;
  }

  /** Number of durable body bytes of the session, and durable length of its files. */
  get durable(): SpoolPosition {
    return this.#durable;
  }

  get attached(): boolean {
    return this.#events !== undefined;
  }

  /**
   * True if the received data lacks the end of the session. A gateway that sends annotations also sends an annotation
   * at the end of the session.
   */
  get lacksEnd(): boolean {
    const facts = this.#started?.facts;
    return facts?.session !== undefined && facts.outcome === undefined;
  }

  /** True if the received data contains the end of the session. No data follows. */
  get hasEnd(): boolean {
    return this.#started?.facts.outcome !== undefined;
  }

  /** Number of lines in the cast that are not events. */
  get oddLines(): number {
    return this.#oddLines;
  }

  get failure(): TailcastError | undefined {
    return this.#failure;
  }

  /**
   * Attaches a connection. The new connection replaces an earlier connection.
   * @param at position of the connection's body in the session. The position does not include repeated lines
   * @throws TailcastError `UPLOAD_CONFLICT` if the position is after the last durable byte
   */
  attach(events: AttachmentEvents, at: Pick<Continuation, 'offset' | 'preambleBytes'>): void {
    if (at.offset > this.#durable.bodyBytes) {
      throw new TailcastError('UPLOAD_CONFLICT', `only ${this.#durable.bodyBytes} bytes are here`);
    }
    this.#skipBytes = this.#durable.bodyBytes - at.offset;
    if (this.#started === undefined) this.#preambleBytes = at.preambleBytes;
    else this.#skipBytes += at.preambleBytes;
    this.#events = events;
    this.orders.attach(events.order);
    this.#paused = false;
    this.#splitter = this.#createSplitter();
    if (this.#started !== undefined) {
      this.#spool = createSpoolFile(this.#started.paths, {
        ...this.#durable,
        append: true,
        syncEntries: this.#deps.syncEntries,
        onSync: this.#deps.meter.synced,
      });
    }
  }

  /**
   * Accepts bytes of lines from the attached connection. The caller may reuse the chunk after the call.
   * @returns false if the connection must wait for `drain`
   * @throws TailcastError `UPLOAD_MALFORMED`, `UPLOAD_TOO_LARGE`
   */
  push(chunk: Uint8Array): boolean {
    const skipped = Math.min(this.#skipBytes, chunk.length);
    this.#skipBytes -= skipped;
    const pendingBefore = this.#spool?.pendingBytes ?? 0;
    try {
      for (const piece of this.#splitter.push(chunk.subarray(skipped))) this.#append(piece);
    } finally {
      // If a line is invalid, still commit the lines before it.
      this.#paused =
        (this.#spool?.pendingBytes ?? 0) >= this.#deps.limits.maxPendingBytes || this.#deps.isFull();
      this.#scheduleSince(pendingBefore, this.#paused || (this.#events?.waits ?? false));
    }
    if (this.#appended.bodyBytes + this.#splitter.partialBytes > this.#deps.limits.maxSessionBytes) {
      throw new TailcastError('UPLOAD_TOO_LARGE', 'the session is too long');
    }
    return !this.#paused;
  }

  /**
   * Counts the memory for the header, the description of the session, the unfinished line and an incomplete frame.
   * @throws TailcastError `RECORDER_BUSY`
   */
  hold(frameBytes: number): void {
    this.longLines.admit(this.#lengths(frameBytes));
  }

  #lengths(frameBytes: number): readonly (number | undefined)[] {
    const { meta, facts } = this.#started ?? {};
    return [meta?.storedHeaderBytes, facts?.session?.length, this.#splitter.heldBytes, frameBytes];
  }

  /**
   * Called at the end of the body. Resolves when all bytes, and the journal line that marks the end of the upload, are
   * durable.
   * @throws TailcastError `UPLOAD_MALFORMED` if the header is missing or the last line is incomplete; `STORE_FAILED`
   */
  async end(): Promise<void> {
    const pendingBefore = this.#spool?.pendingBytes ?? 0;
    this.#appendUnfinishedLine();
    if (this.#spool === undefined) throw new TailcastError('UPLOAD_MALFORMED', 'it has no header line');
    this.#spool.appendNote(encodeEnd(this.#appended.castBytes));
    this.#appends += 1;
    this.#scheduleSince(pendingBefore, true);
    await this.#settled();
    if (this.#failure !== undefined) throw this.#failure;
  }

  /** Called when the connection is closed. Resolves when its bytes are durable and the files are closed. */
  async detach(): Promise<void> {
    this.#events = undefined;
    this.orders.detach();
    if (this.#failure === undefined) await this.#settled();
    const spool = this.#spool;
    this.#spool = undefined;
    // Discard the unfinished line, because the next connection repeats it.
    this.#splitter = this.#createSplitter();
    this.longLines.count(this.#lengths(0));
    this.#appended = this.#durable;
    try {
      await spool?.close();
      // Remove the incomplete last line.
      if (spool !== undefined) await cutFile(spool.paths.cast, this.#durable.castBytes);
    } catch (error) {
      this.#failure ??= storageError(error);
    }
    this.wake();
  }

  /** Releases the session from its connection. `detach` must follow. */
  release(error: TailcastError): void {
    const events = this.#events;
    this.#events = undefined;
    events?.released(error);
  }

  /** Calls the functions that were passed to {@link watch}. */
  wake(): void {
    for (const wake of this.#watchers) wake();
  }

  /** Called after a commit cycle. Resumes a waiting connection if there is space. */
  resumeIfSpace(): void {
    if (!this.#paused || this.#deps.isFull()) return;
    if ((this.#spool?.pendingBytes ?? 0) >= this.#deps.limits.maxPendingBytes) return;
    this.#paused = false;
    this.#events?.drain();
  }

  /** Calls `wake` when more bytes are durable or the connection changes. @returns a function that stops the calls */
  watch(wake: () => void): () => void {
    this.#watchers.add(wake);
    return () => this.#watchers.delete(wake);
  }

  async commit(): Promise<void> {
    const spool = this.#spool;
    const started = this.#started;
    if (spool === undefined || started === undefined || this.#failure !== undefined) return;
    const position = { ...this.#appended, notesBytes: spool.notesBytes };
    const appends = this.#appends;
    const since = this.#waitingSince ?? performance.now();
    this.#waitingSince = undefined;
    const header = this.#header;
    this.#header = undefined;
    try {
      await spool.commit();
    } catch (error) {
      this.#fail(storageError(error));
      return;
    }
    const logged = this.#deps.onDurable(started, position.bodyBytes, header);
    const confirm = (): void => this.#confirm(position, appends, since);
    if (logged === undefined && this.#confirming === undefined) confirm();
    else this.#confirmLater(logged, confirm);
  }

  /**
   * Calls `confirm` when `logged` has resolved and all earlier positions are confirmed. The caller does not wait, so
   * other sessions are not delayed.
   */
  #confirmLater(logged: Promise<void> | undefined, confirm: () => void): void {
    const confirming = Promise.all([this.#confirming, logged])
      .then(confirm, (error: unknown) => this.#fail(storageError(error)))
      .finally(() => {
        if (this.#confirming === confirming) this.#confirming = undefined;
      });
    this.#confirming = confirming;
  }

  /** Confirms that all bytes up to `position` are durable. */
  #confirm(position: SpoolPosition, appends: number, since: number): void {
    if (this.#failure !== undefined) return;
    this.#deps.meter.durable(position.bodyBytes - this.#durable.bodyBytes, performance.now() - since);
    this.#durable = position;
    this.#releaseWaiters(appends);
    this.#events?.durable(position.bodyBytes);
    this.wake();
  }

  #append(piece: UploadPiece): void {
    this.#appends += 1;
    if (this.#started === undefined || this.#spool === undefined) {
      this.#start(piece);
      return;
    }
    if (this.#preambleBytes > 0) {
      this.#repeat(piece, this.#started, this.#spool);
      return;
    }
    if (piece.kind === 'cast') {
      const castBytes = this.#spool.castBytes;
      this.#spool.appendCast(piece.bytes);
      this.#oddLines += piece.oddLines;
      if (piece.completeBytes > 0) {
        const end = castBytes + piece.completeBytes;
        this.#appended = {
          ...this.#appended,
          bodyBytes: this.#appended.bodyBytes + end - this.#appended.castBytes,
          castBytes: end,
        };
      }
      return;
    }
    const { castBytes, bodyBytes } = this.#appended;
    const place = { at: castBytes, size: piece.line.length };
    if (isRawAnnotation(piece.line)) {
      this.#started.facts.noteCount += 1;
      this.#spool.appendNote(...encodeNoteBytes(place, piece.line));
    } else {
      const line = lossy.decode(piece.line).trim();
      const note = { ...place, text: jsonOrUndefined(line) !== undefined ? line : undefined };
      this.#started.facts.note(note);
      this.orders.note(line);
      this.#spool.appendNote(encodeNote(note, line));
    }
    this.#appended = { ...this.#appended, bodyBytes: bodyBytes + piece.line.length };
  }

  /**
   * Handles a repeated object line from the start of the session. The line becomes a note of this part, and is not
   * added to its body.
   */
  #repeat(piece: UploadPiece, { facts }: StartedUpload, spool: SpoolFile): void {
    if (piece.kind === 'cast' || piece.line.length > this.#preambleBytes) throw malformedRepeat();
    this.#preambleBytes -= piece.line.length;
    const line = lossy.decode(piece.line).trim();
    const note = {
      at: this.#appended.castBytes,
      size: 0,
      text: jsonOrUndefined(line) !== undefined ? line : undefined,
    };
    facts.note(note);
    spool.appendNote(encodeNote(note, line));
  }

  /** Handles the first line. If the first line is not a header, the upload ends without a recording. */
  #start(piece: UploadPiece): void {
    if (piece.kind === 'cast') {
      throw new TailcastError('UPLOAD_MALFORMED', 'it does not begin with a header line');
    }
    const { nodeId, nodeName, address, protocol, token, continues, neighbours } = this.origin;
    if (continues !== undefined && piece.line.length > this.#preambleBytes && continues.offset > 0) {
      throw malformedRepeat();
    }
    this.#preambleBytes = Math.max(0, this.#preambleBytes - piece.line.length);
    const headerBytes =
      continues === undefined || continues.offset === 0 ? piece.line.length : continues.offset;
    const stored = stampHead(decodeHeader(piece.line), { node: nodeName, nodeId });
    const head = parseHead(stored);
    if (head === undefined) throw new TailcastError('UPLOAD_MALFORMED', 'its header cannot be read');
    const storedBytes = Buffer.from(stored);
    const meta: SpoolMeta = {
      nodeId,
      time: this.#deps.issueTime(),
      nodeName,
      address,
      protocol,
      ...(token === undefined ? {} : { token }),
      ...(continues === undefined ? {} : { part: continues }),
      ...(neighbours === undefined ? {} : { neighbours }),
      uploadedHeaderBytes: headerBytes,
      storedHeaderBytes: storedBytes.length,
    };
    const paths = spoolPaths(this.#deps.spoolDirectory, meta);
    this.#spool = createSpoolFile(paths, {
      castBytes: 0,
      notesBytes: 0,
      append: false,
      syncEntries: this.#deps.syncEntries,
      onSync: this.#deps.meter.synced,
    });
    this.#spool.appendNote(encodeMeta(meta));
    this.#spool.appendCast(storedBytes);
    this.#appended = { bodyBytes: headerBytes, castBytes: storedBytes.length, notesBytes: 0 };
    this.#started = { meta, head, facts: new SessionFacts(), paths };
    this.#header = storedBytes;
    this.#deps.onStarted(meta, this.origin);
  }

  /**
   * Handles a last line without a line feed, if the uploader ended the body. The line is complete if it looks like an
   * event or an object.
   */
  #appendUnfinishedLine(): void {
    const { unfinished, partialBytes } = this.#splitter;
    if (unfinished === undefined) return;
    if (unfinished.kind === 'object' && jsonOrUndefined(lossy.decode(unfinished.line)) !== undefined) {
      this.#append({ kind: 'object', line: unfinished.line });
    } else if (unfinished.kind === 'cast' && unfinished.event && this.#spool !== undefined) {
      this.#spool.appendCast(Buffer.from('\n'));
      this.#appended = {
        ...this.#appended,
        bodyBytes: this.#appended.bodyBytes + partialBytes,
        castBytes: this.#appended.castBytes + partialBytes + 1,
      };
    } else {
      throw new TailcastError('UPLOAD_MALFORMED', 'it ends inside of a line');
    }
  }

  #scheduleSince(pendingBefore: number, urgent: boolean): void {
    const added = (this.#spool?.pendingBytes ?? 0) - pendingBefore;
    if (added <= 0) return;
    this.#waitingSince ??= performance.now();
    this.#deps.group.schedule(this, added, urgent);
  }

  /** Resolves when all appended bytes are durable, or after a failure. */
  async #settled(): Promise<void> {
    const spool = this.#spool;
    if (spool === undefined || this.#failure !== undefined) return;
    if (spool.pendingBytes === 0 && this.#confirming === undefined) return;
    await new Promise<void>((resolve) => {
      this.#waiters.push({ appends: this.#appends, resolve });
    });
  }

  #releaseWaiters(appends: number): void {
    const released = this.#waiters.filter((waiter) => waiter.appends <= appends);
    this.#waiters = this.#waiters.filter((waiter) => waiter.appends > appends);
    for (const { resolve } of released) resolve();
  }

  #fail(error: TailcastError): void {
    this.#failure ??= error;
    const events = this.#events;
    this.#events = undefined;
    this.#releaseWaiters(Infinity);
    events?.failed(error);
  }

  #createSplitter(): LineSplitter {
    return new LineSplitter({
      maxLineBytes: this.#deps.limits.maxLineBytes,
      maxObjectBytes: MAX_ANNOTATION_LENGTH,
    });
  }
}

function malformedRepeat(): TailcastError {
  return new TailcastError('UPLOAD_MALFORMED', 'it does not repeat the first lines of its session');
}
