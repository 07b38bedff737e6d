/**
 * One session being uploaded, from its header to the last durable byte. It knows lines, offsets and the spool; it knows
 * neither HTTP nor the store.
 *
 * ```
 * awaitingHeader ── header line ──► attached ◄── resume ── suspended
 *                                    │    └── connection cut ──►┘ │
 *                          end ──────┤                            └─ nobody came back ─► over
 *                 storage failure ───┴──────────────────────────────────────────────► over
 * ```
 *
 * Offsets count body bytes of the upload as a whole, over all its connections. Only bytes up to a line end become
 * durable in the sense of an ack: after a crash the spool is cut there.
 *
 * A session whose beginning is with another recorder begins at the offset where that one left off: see
 * `session-part.ts`.
 */
import { jsonOrUndefined } from '../../wire/json-value.ts';
import { TailcastError } from '../../errors.ts';
import { MAX_ANNOTATION_LENGTH } from '../../wire/recorder-api/annotation.ts';
import { parseHead, stampHead } from '../library/cast-head.ts';
import { cutFile } from '../files/append-file.ts';
import { storageError } from '../files/durable-files.ts';
import type { StartedUpload } from './started-upload.ts';
import { isRawAnnotation } from './raw-annotation.ts';
import type { Committable, GroupCommit } from './group-commit.ts';
import { LineSplitter, type UploadPiece } from './line-splitter.ts';
import { createSessionFacts } from '../library/session-facts.ts';
import type { Continuation, Neighbours } from '../../wire/recorder-api/upload-headers.ts';
import { createSpoolFile, spoolPaths, type SpoolFile, type SpoolPosition } from '../spool/spool-file.ts';
import {
  encodeEnd,
  encodeMeta,
  encodeNote,
  encodeNoteBytes,
  type SpoolMeta,
} from '../spool/spool-journal.ts';

/** What the owner of the session is told of the connection that has it. */
export interface AttachmentEvents {
  /** Somebody waits for each byte of it to be durable: none waits for company. */
  readonly waits: boolean;
  /** So many body bytes of the session are durable now, counted as lines. */
  durable(bodyBytes: number): void;
  /** `push` had answered false; it may go on. */
  drain(): void;
  /** The upload is over for a reason of the recorder's. Nothing follows. */
  failed(error: TailcastError): void;
  /** The session goes on without this connection. Nothing follows. */
  released(error: TailcastError): void;
}

export interface SessionLimits {
  readonly maxSessionBytes: number;
  readonly maxLineBytes: number;
  /** Bytes of one session that may wait for the disk before its uploader has to. */
  readonly maxPendingBytes: number;
}

/** What is measured of all sessions together. */
export interface UploadMeter {
  /** One fsync of one file took so long. */
  readonly synced: (durationMs: number) => void;
  /** So many body bytes are durable; the oldest of them waited so long for it. */
  readonly durable: (bodyBytes: number, waitedMs: number) => void;
}

export interface SessionDependencies {
  readonly spoolDirectory: string;
  readonly group: GroupCommit;
  readonly syncEntries: () => Promise<void>;
  readonly limits: SessionLimits;
  readonly meter: UploadMeter;
  /** A receive time for a key, later than every one before. */
  readonly issueTime: () => string;
  /** Whether all sessions together have too much waiting for the disk. */
  readonly isFull: () => boolean;
  /** The header has come: the session has a key from now on. */
  readonly onStarted: (key: SpoolMeta, origin: UploadOrigin) => void;
  /**
   * So many bytes of the body are durable. `header`: the stored line, with the first of them. They are acknowledged
   * when what is returned resolves, undefined: at once; a rejection ends the session.
   */
  readonly onDurable: (
    started: StartedUpload,
    bodyBytes: number,
    header: Uint8Array | undefined,
  ) => Promise<void> | undefined;
}

/** Who uploads, and how. */
export interface UploadOrigin {
  readonly nodeId: string;
  readonly nodeName: string;
  readonly address: string;
  readonly protocol: 'v1' | 'v2';
  readonly token: string | undefined;
  /** Set when the beginning of the session is elsewhere. */
  readonly continues?: Pick<Continuation, 'number' | 'offset'>;
  readonly neighbours?: Neighbours;
}

const utf8 = new TextDecoder('utf-8', { fatal: true });
const lossy = new TextDecoder();

export class UploadSession implements Committable {
  readonly origin: UploadOrigin;
  readonly #deps: SessionDependencies;
  #started: StartedUpload | undefined;
  #spool: SpoolFile | undefined;
  #splitter: LineSplitter;
  #events: AttachmentEvents | undefined;
  #appended: SpoolPosition;
  #durable: SpoolPosition;
  /** Body bytes still to be dropped because an earlier connection brought them. */
  #skipBytes = 0;
  /** Body bytes still to come that repeat the beginning of the session. */
  #preambleBytes = 0;
  #oddLines = 0;
  /** The stored header line, until the log has it. */
  #header: Uint8Array | undefined;
  /** What is durable is in the log when this resolves, and then it is confirmed. */
  #confirming: Promise<void> | undefined;
  #failure: TailcastError | undefined;
  #paused = false;
  /** When the oldest byte came that no commit has taken, on the clock of `performance.now()`. */
  #waitingSince: number | undefined;
  #appends = 0;
  #waiters: { readonly appends: number; readonly resolve: () => void }[] = [];
  #watchers = new Set<() => void>();

  constructor(origin: UploadOrigin, deps: SessionDependencies) {
    this.origin = origin;
    this.#deps = deps;
    this.#durable = { bodyBytes: origin.continues?.offset ?? 0, castBytes: 0, notesBytes: 0 };
    this.#appended = this.#durable;
    this.#splitter = this.#createSplitter();
  }

  /** A session that an earlier process left, suspended at its last whole line. */
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

  /** Undefined until the header line has come. */
  get started(): StartedUpload | undefined {
    return this.#started;
  }

  /** What has been made durable. */
  get durable(): SpoolPosition {
    return this.#durable;
  }

  get attached(): boolean {
    return this.#events !== undefined;
  }

  /** A gateway that annotates says when its session is over; without that word the end of a body is a cut. */
  get lacksEnd(): boolean {
    const facts = this.#started?.facts;
    return facts?.session !== undefined && facts.outcome === undefined;
  }

  /** What is here ends with the word that the session is over: nothing follows. */
  get saidEnd(): boolean {
    return this.#started?.facts.outcome !== undefined;
  }

  /** Lines of the cast that are no events. */
  get oddLines(): number {
    return this.#oddLines;
  }

  get failure(): TailcastError | undefined {
    return this.#failure;
  }

  /**
   * A connection takes the session on; one that still holds it loses it.
   *
   * @param at where in the session the connection's body begins, after what it repeats.
   * @throws TailcastError `UPLOAD_CONFLICT` when bytes between would be missing.
   */
  attach(events: AttachmentEvents, at: Pick<Continuation, 'offset' | 'preambleBytes'>): void {
    if (at.offset > this.#durable.bodyBytes) {
      throw new TailcastError('UPLOAD_CONFLICT', `only ${this.#durable.bodyBytes} bytes are here`);
    }
    this.#skipBytes = this.#durable.bodyBytes - at.offset;
    if (this.#started === undefined) this.#preambleBytes = at.preambleBytes;
    else this.#skipBytes += at.preambleBytes;
    this.#events = events;
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
   * Body bytes of the attached connection, as lines; they are only looked at during the call.
   *
   * @returns false when the connection must wait for `drain`.
   * @throws TailcastError `UPLOAD_MALFORMED`, `UPLOAD_TOO_LARGE`
   */
  push(chunk: Uint8Array): boolean {
    const skipped = Math.min(this.#skipBytes, chunk.length);
    this.#skipBytes -= skipped;
    const pendingBefore = this.#spool?.pendingBytes ?? 0;
    try {
      for (const piece of this.#splitter.push(chunk.subarray(skipped))) this.#append(piece);
    } finally {
      // what came before a bad line is kept
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
   * The uploader has sent everything. Resolves when all of it is durable, with the mark that says so.
   *
   * @throws TailcastError `UPLOAD_MALFORMED` when there was no header or the last line is broken off, `STORE_FAILED`
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

  /** The connection is gone. Resolves when what it brought is durable and the files are closed. */
  async detach(): Promise<void> {
    this.#events = undefined;
    if (this.#failure === undefined) await this.#settled();
    const spool = this.#spool;
    this.#spool = undefined;
    this.#appended = this.#durable;
    try {
      await spool?.close();
      // what came after the last line end
      if (spool !== undefined) await cutFile(spool.paths.cast, this.#durable.castBytes);
    } catch (error) {
      this.#failure ??= storageError(error);
    }
    this.wake();
  }

  /** Takes the session from its connection. `detach` must follow. */
  release(error: TailcastError): void {
    const events = this.#events;
    this.#events = undefined;
    events?.released(error);
  }

  /** Wakes those who {@link watch}. */
  wake(): void {
    for (const wake of this.#watchers) wake();
  }

  /** Called after a commit cycle: lets a waiting connection go on if there is room. */
  resumeIfRoom(): void {
    if (!this.#paused || this.#deps.isFull()) return;
    if ((this.#spool?.pendingBytes ?? 0) >= this.#deps.limits.maxPendingBytes) return;
    this.#paused = false;
    this.#events?.drain();
  }

  /** Calls `wake` whenever more is durable or the connection changes. @returns how to stop that. */
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

  /** No other session waits for it, and one position is confirmed after the other. */
  #confirmLater(logged: Promise<void> | undefined, confirm: () => void): void {
    const confirming = Promise.all([this.#confirming, logged])
      .then(confirm, (error: unknown) => this.#fail(storageError(error)))
      .finally(() => {
        if (this.#confirming === confirming) this.#confirming = undefined;
      });
    this.#confirming = confirming;
  }

  /** What was appended up to `position` is durable, and known to be. */
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
      if (piece.wholeBytes > 0) {
        const end = castBytes + piece.wholeBytes;
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
      this.#started.facts.exactOutput();
      this.#spool.appendNote(...encodeNoteBytes(place, piece.line));
    } else {
      const line = lossy.decode(piece.line).trim();
      const note = { ...place, text: isJson(line) ? line : undefined };
      this.#started.facts.note(note);
      this.#spool.appendNote(encodeNote(note, line));
    }
    this.#appended = { ...this.#appended, bodyBytes: bodyBytes + piece.line.length };
  }

  /** An object line from the beginning of the session: a note of this part too, but no byte of its body. */
  #repeat(piece: UploadPiece, { facts }: StartedUpload, spool: SpoolFile): void {
    if (piece.kind === 'cast' || piece.line.length > this.#preambleBytes) throw malformedRepeat();
    this.#preambleBytes -= piece.line.length;
    const line = lossy.decode(piece.line).trim();
    const note = { at: this.#appended.castBytes, size: 0, text: isJson(line) ? line : undefined };
    facts.note(note);
    spool.appendNote(encodeNote(note, line));
  }

  /** The first line: anything but a header ends the upload before a byte of it is kept. */
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
    const stored = stampHead(decodeStrictly(piece.line), { node: nodeName, nodeId });
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
    this.#started = { meta, head, facts: createSessionFacts(), paths };
    this.#header = storedBytes;
    this.#deps.onStarted(meta, this.origin);
  }

  /** At a clean end a last line without a line feed is whole if it looks so; else it is broken off. */
  #appendUnfinishedLine(): void {
    const { unfinished, partialBytes } = this.#splitter;
    if (unfinished === undefined) return;
    if (unfinished.kind === 'object' && isJson(lossy.decode(unfinished.line))) {
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

  /** Resolves when everything appended so far is durable, or nothing will be. */
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
  return new TailcastError(
    'UPLOAD_MALFORMED',
    'it does not repeat the beginning of its session line by line',
  );
}

function decodeStrictly(line: Uint8Array): string {
  try {
    return utf8.decode(line);
  } catch (error) {
    throw new TailcastError('UPLOAD_MALFORMED', 'its header is not UTF-8', { cause: error });
  }
}

function isJson(text: string): boolean {
  return jsonOrUndefined(text) !== undefined;
}
