/**
 * Journal of one session. It contains unacknowledged output. The client sees output only after the output is in the
 * journal or acknowledged. The journal survives a crash of the process but not of the machine, because writes are not
 * synced (`fsync`).
 *
 * ```
 *   segment 1            segment 2            segment 3
 *   head lines lines …   head preamble lines… head preamble lines…   ◄── append
 *   └─ removed when ─┘
 *      acknowledged
 * ```
 *
 * Records are only appended to a segment. A segment is released when all its bytes are acknowledged. The next segment
 * overwrites the last released file, because writing a new file takes five times as long. If a write fails because the
 * disk is full or broken, the journal refuses this write and all later ones, until the recorder has acknowledged the
 * bytes of these writes. Until then, the client sees output only after the recorder has acknowledged it, so every byte
 * that the client sees is on disk or at a recorder. The bytes before the refused bytes stay on disk.
 */
import { closeSync, ftruncateSync, openSync, renameSync, writevSync } from 'node:fs';
import { unlink } from 'node:fs/promises';
import { join } from 'node:path';
import { passedThrough } from '../../memory/stream-garbage.ts';
import { completeFrames } from '../../wire/recorder-api/upload-frame.ts';
import type { UploadRest } from '../late-end.ts';
import type { Preamble } from '../preamble.ts';
import {
  createSealer,
  encodeHead,
  encodeLineBytes,
  END_MARK,
  MAX_RECORD_BYTES,
  PREFIX_BYTES,
  RECORD_OVERHEAD,
  type JournalHead,
  type JournalSealer,
  type RecordKind,
  userOf,
} from './journal-codec.ts';
import type { JournalKey } from './journal-key.ts';

/** Size at which a new segment starts, in bytes. */
export const SEGMENT_BYTES = 4 * 1024 * 1024;
export const JOURNAL_SUFFIX = '.journal';

/** Resources that all journals of a process share. */
export interface JournalRoom {
  /** Returns the directory for new segments. */
  readonly directory: () => string;
  readonly key: JournalKey;
  /** Reserves disk space. @returns false if this would exceed the share of the user */
  reserve(bytes: number, user: string): boolean;
  release(bytes: number, user: string): void;
  /** Called when a write failed. */
  failed(error: unknown): void;
  /** Called when the journal was closed. */
  forget(journal: SessionJournal): void;
}

interface Segment {
  path: string;
  readonly fd: number;
  readonly sealer: JournalSealer;
  /** Number of written bytes. */
  bytes: number;
  /** Size of the file. Larger than `bytes` while the segment overwrites an older file. */
  size: number;
  /** True if a write to the file, or its renaming, failed. The segment gets no more records. */
  broken: boolean;
  /** Offset in the recording after the last byte of the segment. */
  end: number;
}

/** The journal of one session. */
export class SessionJournal {
  readonly #room: JournalRoom;
  readonly #name: string;
  readonly #head: JournalHead;
  /** User whose share of the disk the journal uses. */
  readonly user: string;
  #segments: Segment[] = [];
  /** The last released segment. The next segment overwrites its file. */
  #spare: Segment | undefined;
  /** True if `#spare` existed at the last `note`. */
  #spareIsOld = false;
  #made = 0;
  /** Offset in the recording after the last written byte. */
  #end = 0;
  #acknowledged = 0;
  /** Number of bytes of asciicast lines before `#acknowledged`. */
  #acknowledgedLines = 0;
  /** Last acknowledged offset that was written to the newest segment. */
  #noted = 0;
  #part = 1;
  #over = false;

  /** @param name name of the files, without number and suffix */
  constructor(room: JournalRoom, name: string, head: JournalHead) {
    this.#room = room;
    this.#name = name;
    this.#head = head;
    this.user = userOf(head);
  }

  /** Size of the segments on disk, without the released segment. */
  get bytes(): number {
    return this.#segments.reduce((sum, { size }) => sum + size, 0);
  }

  /**
   * Appends bytes, in one piece or several. The caller has already passed these bytes to `preamble`.
   * @returns false if the bytes are not on disk
   */
  append(offset: number, content: Uint8Array | readonly Uint8Array[], preamble: Preamble): boolean {
    if (this.#over) return false;
    if (offset !== this.#end) {
      if (offset !== this.#acknowledged) return false;
      this.#discard();
      this.#end = offset;
    }
    const pieces = content instanceof Uint8Array ? [content] : content;
    const length = lengthOf(pieces);
    if (length === 0) return true;
    if (length <= MAX_RECORD_BYTES) return this.#appendRecord(pieces, length, preamble);
    const bytes = Buffer.concat(pieces, length);
    for (let start = 0; start < length;) {
      const piece = this.#record(bytes.subarray(start));
      if (!this.#appendRecord([piece], piece.length, preamble)) return false;
      start += piece.length;
    }
    return true;
  }

  #appendRecord(pieces: readonly Uint8Array[], length: number, preamble: Preamble): boolean {
    const segment = this.#segmentFor(preamble);
    if (segment === undefined || !this.#write(segment, 'lines', this.#end, ...pieces)) return false;
    this.#end += length;
    segment.end = this.#end;
    return true;
  }

  /**
   * Appends the unacknowledged bytes that are not on disk yet. If none of them are on
   * disk afterwards, removes the journal.
   * @returns number of bytes at the start of `bytes` that are on disk
   */
  complete({ offset, lineBytes, bytes, preamble }: UploadRest): number {
    if (this.#over) return 0;
    const written = this.#end - offset;
    if (written >= 0 && written <= bytes.length) {
      this.append(this.#end, bytes.subarray(written), preamble);
    } else {
      this.acknowledged(offset, lineBytes);
      this.append(offset, bytes, preamble);
    }
    const saved = Math.max(0, this.#end - offset);
    if (saved === 0 && bytes.length > 0) this.remove();
    return saved;
  }

  /**
   * Returns the first bytes that fit into one record. They end at a frame boundary, because a segment must begin at a
   * frame boundary.
   */
  #record(bytes: Uint8Array): Uint8Array {
    if (bytes.length <= MAX_RECORD_BYTES) return bytes;
    const whole = completeFrames(bytes, MAX_RECORD_BYTES);
    return bytes.subarray(0, whole === 0 ? MAX_RECORD_BYTES : whole);
  }

  /**
   * Releases the segments before `offset`, because a recorder has acknowledged them. `lineBytes` is the
   * number of bytes of asciicast lines before `offset`.
   */
  acknowledged(offset: number, lineBytes: number): void {
    if (offset <= this.#acknowledged) return;
    this.#acknowledgedLines = lineBytes;
    this.#acknowledged = offset;
    const isDone = (): boolean => this.#segments.length > 1 && (this.#segments[0]?.end ?? Infinity) <= offset;
    // The remaining segments must record at which byte of the asciicast lines they start.
    if (isDone() && !this.#note()) return;
    while (isDone()) {
      const done = this.#segments.shift();
      this.#dropSpare();
      if (done?.broken === true) this.#drop(done);
      else this.#spare = done;
    }
  }

  /** Records the number of the current upload. */
  moved(part: number): void {
    this.#part = part;
    const last = this.#segments.at(-1);
    if (last !== undefined) this.#write(last, 'part', part, NOTHING);
  }

  /**
   * Writes the acknowledged offset to the journal, so that acknowledged bytes are not delivered again. Also
   * deletes a released segment that was not reused. Called periodically.
   */
  note(): void {
    if (this.#spareIsOld) this.#dropSpare();
    this.#spareIsOld = this.#spare !== undefined;
    this.#note();
  }

  /** Writes the acknowledged offset. @returns false if the write failed */
  #note(): boolean {
    const last = this.#segments.at(-1);
    if (this.#noted >= this.#acknowledged) return true;
    if (last === undefined || !this.#writeAcknowledged(last)) return false;
    this.#noted = this.#acknowledged;
    return true;
  }

  /** Deletes the journal. */
  remove(): void {
    if (this.#over) return;
    this.#over = true;
    this.#discard();
    this.#room.forget(this);
  }

  /** Closes the journal and keeps its files for a late delivery. @returns the files */
  leave(): readonly string[] {
    if (this.#over) return [];
    const paths = this.#segments.map(({ path }) => path);
    this.#over = true;
    this.#dropSpare();
    this.#letGo();
    this.#room.forget(this);
    return paths;
  }

  /**
   * Called after another process took over the files. Continues with new files when all earlier bytes are
   * acknowledged.
   */
  restart(): void {
    this.#letGo();
    this.#end = -1;
  }

  #letGo(): void {
    const spare = this.#spare === undefined ? [] : [this.#spare];
    this.#spare = undefined;
    for (const { fd, size } of [...spare, ...this.#segments.splice(0)]) {
      closeSync(fd);
      this.#room.release(size, this.user);
    }
  }

  #discard(): void {
    this.#dropSpare();
    for (const segment of this.#segments.splice(0)) this.#drop(segment);
  }

  #dropSpare(): void {
    if (this.#spare !== undefined) this.#drop(this.#spare);
    this.#spare = undefined;
    this.#spareIsOld = false;
  }

  #drop({ fd, path, size }: Segment): void {
    closeSync(fd);
    this.#room.release(size, this.user);
    // Deletes asynchronously, because the kernel needs time to free megabytes of pages.
    unlink(path).catch(() => undefined);
  }

  #segmentFor(preamble: Preamble): Segment | undefined {
    const last = this.#segments.at(-1);
    if (last !== undefined && last.bytes < SEGMENT_BYTES && !last.broken) return last;
    const spare = this.#spare;
    const segment = spare === undefined ? this.#create() : this.#reuse(spare);
    if (segment === undefined) return undefined;
    this.#segments.push(segment);
    this.#noted = this.#acknowledged;
    const begun =
      this.#writePieces(segment, [segment.sealer.prefix]) &&
      this.#write(segment, 'head', 0, encodeHead(this.#head)) &&
      this.#write(segment, 'part', this.#part, NOTHING) &&
      this.#writeAcknowledged(segment) &&
      this.#write(segment, 'preamble', 0, preamble.before(Infinity)) &&
      this.#begun(segment, spare !== undefined);
    if (begun) return segment;
    this.#segments.pop();
    this.#drop(segment);
    return undefined;
  }

  #writeAcknowledged(segment: Segment): boolean {
    return this.#write(segment, 'acknowledged', this.#acknowledged, encodeLineBytes(this.#acknowledgedLines));
  }

  #create(): Segment | undefined {
    if (!this.#room.reserve(PREFIX_BYTES, this.user)) return undefined;
    try {
      const path = this.#nextPath();
      const fd = openSync(path, 'wx', 0o600);
      const sealer = createSealer(this.#room.key);
      return { path, fd, sealer, bytes: 0, size: PREFIX_BYTES, broken: false, end: this.#end };
    } catch (error) {
      this.#room.release(PREFIX_BYTES, this.user);
      this.#room.failed(error);
      return undefined;
    }
  }

  /** Returns a segment that overwrites the released file. {@link #begun} later renames the file. */
  #reuse(spare: Segment): Segment {
    this.#spare = undefined;
    this.#spareIsOld = false;
    return {
      ...spare,
      sealer: createSealer(this.#room.key, { over: true }),
      bytes: 0,
      end: this.#end,
    };
  }

  /**
   * Renames a reused segment file after its new head is written, so that its name sorts after the names of the other
   * segments.
   */
  #begun(segment: Segment, isReused: boolean): boolean {
    if (!isReused) return true;
    try {
      const path = this.#nextPath();
      renameSync(segment.path, path);
      segment.path = path;
      return true;
    } catch (error) {
      this.#broke(segment, error);
      return false;
    }
  }

  #nextPath(): string {
    this.#made += 1;
    const number = String(this.#made).padStart(6, '0');
    return join(this.#room.directory(), `${this.#name}.${number}${JOURNAL_SUFFIX}`);
  }

  #write(segment: Segment, kind: RecordKind, at: number, ...content: readonly Uint8Array[]): boolean {
    if (segment.broken) return false;
    const more = segment.bytes + lengthOf(content) + RECORD_OVERHEAD - segment.size;
    if (more > 0 && !this.#room.reserve(more, this.user)) return false;
    segment.size += Math.max(0, more);
    return this.#writePieces(segment, segment.sealer.seal(kind, at, ...content));
  }

  /** Writes pieces. The caller has reserved the disk space. */
  #writePieces(segment: Segment, pieces: readonly Uint8Array[]): boolean {
    const bytes = lengthOf(pieces);
    const at = segment.bytes;
    segment.bytes += bytes;
    // The position does not include the end mark, so that the next record overwrites the mark.
    const mark = END_MARK.subarray(0, segment.size - segment.bytes);
    // The sealed pieces become garbage after the write, so the early garbage collection must count their bytes.
    passedThrough(bytes);
    try {
      const all = mark.length === 0 ? pieces : [...pieces, mark];
      if (writevSync(segment.fd, all, at) === bytes + mark.length) return true;
      throw Object.assign(new Error('the disk wrote only a part'), { code: 'ENOSPC' });
    } catch (error) {
      this.#broke(segment, error);
      // Removes the incomplete record, so that the file does not count as damaged.
      try {
        ftruncateSync(segment.fd, at);
      } catch (failure) {
        this.#room.failed(failure);
      }
      return false;
    }
  }

  /** Stops writing to a segment, because records after an incomplete record are unreadable. */
  #broke(segment: Segment, error: unknown): void {
    segment.broken = true;
    this.#room.failed(error);
  }
}

const NOTHING = new Uint8Array();

function lengthOf(pieces: readonly Uint8Array[]): number {
  return pieces.reduce((sum, piece) => sum + piece.length, 0);
}
