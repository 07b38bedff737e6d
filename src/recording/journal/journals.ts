/**
 * All journals of one process: those of running sessions, and those with an undelivered *tail*. A tail consists of the
 * unacknowledged last bytes of a recording whose session has ended, in this process or in a stopped process.
 *
 * ```
 *   running ──recorder lost──► offered ──delivered, dropped──► removed
 *      │                        ▲   │
 *      │ the gateway ends       │   └─ no room in memory ─► waiting ─┐
 *      ▼                        └────────────────────────────────────┘
 *   left on disk ──taken over by another process──► waiting
 * ```
 */
import { randomUUID } from 'node:crypto';
import { rename, stat, unlink } from 'node:fs/promises';
import { errorReason, errorText } from '../../errors.ts';
import { Shares } from '../../memory/shares.ts';
import type { Logger } from '../../observe/logger.ts';
import type { NamedRecorders } from '../find-recorders.ts';
import type { EndJournal, LateEnd, LateEvents, UploadRest } from '../late-end.ts';
import { JournalError, userOf, type JournalHead } from './journal-codec.ts';
import { DAMAGED_SUFFIX, openOwnFolder, SIGN_MS, type OwnFolder } from './journal-directory.ts';
import type { JournalKey } from './journal-key.ts';
import { journalNameOf, readLeft, type LeftContent } from './left-journal.ts';
import { SessionJournal, type JournalRoom } from './session-journal.ts';

export interface JournalOptions {
  readonly directory: string;
  readonly key: JournalKey;
  /** Maximum number of bytes on disk for all sessions of the process. Users share it, see `Shares`. */
  readonly maxBytes: number;
  readonly unixMs: () => number;
  readonly log: Logger;
  /** Called with the reason if a write failed. */
  readonly refused?: (reason: 'room' | 'disk') => void;
  /** Called periodically with the current counts, see {@link Journals.bytes}. */
  readonly measured?: (journals: Pick<Journals, 'bytes' | 'left' | 'unreadable'>) => void;
  /** Returns the current addresses of recorders. Default: the addresses in the head of the journal. */
  readonly findRecorders?: (named: NamedRecorders, signal: AbortSignal) => Promise<readonly string[]>;
  /** Returns the callbacks for a session of a stopped process. */
  readonly eventsOf: (head: JournalHead) => LateEvents;
  readonly noteMs?: number;
  readonly signMs?: number;
}

/** Delivers tails, see `LateDeliveries`. */
export interface Deliverer {
  /** Returns true if this number of bytes of the user may be loaded into memory. */
  hasRoom(bytes: number, user: string): boolean;
  take(end: LateEnd): boolean;
}

interface Left extends EndJournal {
  readonly paths: readonly string[];
  readonly bytes: number;
  /** User whose share of the disk the files use. Empty for files of a stopped process until their head is read. */
  user: string;
  readonly sinceUnixMs: number;
  /** Number of bytes that a call of `events.left` has announced. */
  announced: number;
  events: LateEvents | undefined;
  taken: boolean;
  state: 'waiting' | 'offered';
}

const NOTE_MS = 1_000;
const WARN_EVERY_MS = 60_000;

export class Journals {
  readonly #options: JournalOptions;
  readonly #running = new Set<SessionJournal>();
  readonly #left = new Map<string, Left>();
  readonly #closing = new AbortController();
  readonly #timers: NodeJS.Timeout[] = [];
  readonly #room: JournalRoom;
  readonly #disk: Shares;
  #folder: OwnFolder;
  #deliverer: Deliverer | undefined;
  #unreadable = 0;
  #foreign = 0;
  #warnedMs = -Infinity;
  #looking: Promise<void> | undefined;

  /** @throws Error of the OS if the directory is unusable */
  static async open(options: JournalOptions): Promise<Journals> {
    return new Journals(options, await openOwnFolder(options.directory, options.key));
  }

  private constructor(options: JournalOptions, folder: OwnFolder) {
    this.#options = options;
    this.#folder = folder;
    this.#disk = new Shares(options.maxBytes);
    this.#room = {
      directory: () => this.#folder.path,
      key: options.key,
      reserve: (bytes, user) => this.#reserve(bytes, user),
      release: (bytes, user) => this.#disk.give(user, bytes),
      failed: (error) => this.#failed('disk', error),
      forget: (journal) => this.#running.delete(journal),
    };
  }

  /** Number of bytes on disk. */
  get bytes(): number {
    return this.#disk.bytes;
  }

  /** Number of undelivered tails. */
  get left(): number {
    return this.#left.size;
  }

  /** Number of unreadable files, plus the number of folders whose files are sealed with another key. */
  get unreadable(): number {
    return this.#unreadable + this.#foreign;
  }

  /** Creates the journal of a new session. The first write to the journal creates its first file. */
  begin(head: JournalHead): SessionJournal {
    const journal = new SessionJournal(this.#room, randomUUID(), head);
    this.#running.add(journal);
    return journal;
  }

  /** Closes the journal of a session whose upload has ended. @returns undefined if nothing is on disk */
  leave(journal: SessionJournal, events: LateEvents, rest: UploadRest): EndJournal | undefined {
    const { bytes, user } = journal;
    // `journal.leave` subtracts the bytes of the files, but the files still exist, so `#keep` adds the bytes again
    const paths = journal.leave();
    if (paths.length === 0) return undefined;
    const announced = rest.journaled ?? rest.bytes.length;
    const sinceUnixMs = this.#options.unixMs();
    return this.#keep({ paths, bytes, user, sinceUnixMs, announced, events, state: 'offered' });
  }

  /** Starts to deliver tails, of this process and of stopped processes. */
  start(deliverer: Deliverer): void {
    this.#deliverer = deliverer;
    const { noteMs = NOTE_MS, signMs = SIGN_MS } = this.#options;
    const note = setInterval(() => {
      for (const journal of this.#running) journal.note();
      this.#options.measured?.(this);
    }, noteMs);
    const look = setInterval(() => void this.look(), signMs);
    note.unref();
    look.unref();
    this.#timers.push(note, look);
    void this.look();
  }

  /**
   * Renews the sign of life, takes over files of stopped processes, and offers queued tails. A call during a run
   * returns the promise of that run. Never rejects.
   */
  look(): Promise<void> {
    this.#looking ??= this.#look()
      .catch((error: unknown) => this.#failed('disk', error))
      .finally(() => {
        this.#looking = undefined;
        this.#options.measured?.(this);
      });
    return this.#looking;
  }

  /** Stops offering tails for delivery. Files on disk remain for the next process. */
  async close(): Promise<void> {
    for (const timer of this.#timers) clearInterval(timer);
    this.#closing.abort(new Error('the gateway has ended'));
    await this.#looking;
    for (const journal of this.#running) {
      journal.note();
      journal.leave();
    }
    await this.#folder.abandon();
  }

  async #look(): Promise<void> {
    if (this.#closing.signal.aborted) return;
    if (!(await this.#folder.sign())) await this.#begunAnew();
    for (const [name, paths] of Map.groupBy(await this.#folder.takeOver(), journalNameOf)) {
      const stats = await Promise.all(paths.map((path) => stat(path)));
      const bytes = stats.reduce((sum, { size }) => sum + size, 0);
      const sinceUnixMs = Math.max(...stats.map(({ mtimeMs }) => mtimeMs));
      this.#options.log.info({ journal: name, bytes }, 'found the end of a recording that was not delivered');
      this.#keep({ paths, bytes, user: '', sinceUnixMs, announced: 0, events: undefined, state: 'waiting' });
    }
    this.#foreign = (await this.#folder.foreign()).length;
    for (const left of this.#left.values()) {
      if (this.#closing.signal.aborted) return;
      if (left.state === 'waiting') await this.#offer(left);
    }
  }

  /** Creates a new folder, because another process has taken over the current one. */
  async #begunAnew(): Promise<void> {
    this.#options.log.warn({}, 'another process has taken over the journals of this one');
    this.#folder = await openOwnFolder(this.#options.directory, this.#options.key);
    for (const journal of this.#running) journal.restart();
    for (const left of this.#left.values()) {
      left.taken = true;
      this.#disk.give(left.user, left.bytes);
    }
    this.#left.clear();
  }

  async #offer(left: Left): Promise<void> {
    if (this.#deliverer?.hasRoom(left.bytes, left.user) !== true) return;
    const content = await this.#read(left);
    if (content === undefined) return;
    const { head, rest, damaged } = content;
    this.#disk.give(left.user, left.bytes);
    left.user = userOf(head);
    this.#disk.keep(left.user, left.bytes);
    // The user of a file of a stopped process is unknown until the head of the file is read.
    if (!this.#deliverer.hasRoom(left.bytes, left.user)) return;
    // renames the damaged files, so the tail cannot be read from its files again
    for (const { path, reason } of damaged) await this.#setAside([path], reason);
    left.state = 'offered';
    const events = left.events ?? this.#options.eventsOf(head);
    const announced = left.events !== undefined;
    left.events = events;
    left.announced = rest.bytes.length;
    const { sessionId, recorders } = head;
    this.#deliverer.take({
      sessionId,
      user: left.user,
      recorders,
      find: async (signal) => (await this.#options.findRecorders?.(head, signal)) ?? recorders,
      rest,
      events,
      journal: left,
      waitedMs: Math.max(0, this.#options.unixMs() - left.sinceUnixMs),
      announced,
    });
  }

  /**
   * Reads a tail. Returns undefined if its files contain no output or are unreadable. Removes files without output, and
   * renames unreadable files.
   */
  async #read(left: Left): Promise<LeftContent | undefined> {
    let content: LeftContent | undefined;
    try {
      content = await readLeft(left.paths, this.#options.key);
    } catch (error) {
      if (error instanceof JournalError && error.problem === 'newer') this.#leaveToNewer(left.paths, error);
      else await this.#setAside(left.paths, errorText(error));
      this.#left.delete(journalName(left));
      this.#disk.give(left.user, left.bytes);
      reportLost(left, 0);
      return undefined;
    }
    reportLost(left, content?.rest.bytes.length ?? 0);
    if (content !== undefined && content.rest.bytes.length > 0) return content;
    for (const { path, reason } of content?.damaged ?? []) await this.#setAside([path], reason);
    if (content === undefined)
      this.#options.log.warn(
        { paths: left.paths },
        'an empty journal is removed: it has no session and no output',
      );
    left.remove();
    return undefined;
  }

  /** Does not rename files in a newer format, so that a process of a newer version can read them. */
  #leaveToNewer(paths: readonly string[], { message: reason }: JournalError): void {
    this.#unreadable += paths.length;
    for (const path of paths)
      this.#options.log.error({ path, reason }, 'only a newer version can deliver the end of a recording');
  }

  /** Renames unreadable files, so that they are not read again. An administrator must check them. */
  async #setAside(paths: readonly string[], reason: string): Promise<void> {
    for (const path of paths) {
      this.#unreadable += 1;
      this.#options.log.error({ path, reason }, 'the end of a recording cannot be read');
      await rename(path, `${path}${DAMAGED_SUFFIX}`).catch(() => undefined);
    }
  }

  /** Adds files whose tail is undelivered. */
  #keep(
    files: Pick<Left, 'paths' | 'bytes' | 'user' | 'sinceUnixMs' | 'announced' | 'events' | 'state'>,
  ): Left {
    const left: Left = {
      ...files,
      taken: false,
      remove: () => {
        if (this.#left.get(journalName(left)) !== left) return;
        this.#left.delete(journalName(left));
        this.#disk.give(left.user, left.bytes);
        for (const path of left.paths) unlink(path).catch(() => undefined);
      },
      wait: () => (left.state = 'waiting'),
    };
    this.#disk.keep(left.user, left.bytes);
    this.#left.set(journalName(left), left);
    return left;
  }

  #reserve(bytes: number, user: string): boolean {
    if (this.#disk.take(user, bytes)) return true;
    const { maxBytes } = this.#options;
    this.#failed('room', new Error(`the journals of ${user} exceed the user's share of ${maxBytes} bytes`));
    return false;
  }

  #failed(reason: 'room' | 'disk', error: unknown): void {
    this.#options.refused?.(reason);
    const nowMs = this.#options.unixMs();
    if (nowMs - this.#warnedMs < WARN_EVERY_MS) return;
    this.#warnedMs = nowMs;
    this.#options.log.warn(
      { directory: this.#options.directory, reason: errorReason(error) },
      'output cannot be kept on disk until it is acknowledged: its sessions wait for their recorder',
    );
  }
}

/**
 * Reports announced bytes that the files no longer contain. The bytes that the files still contain become a new tail.
 */
function reportLost(left: Left, readable: number): void {
  const { announced, events } = left;
  if (readable > 0 && readable >= announced) return;
  left.announced = readable;
  const reason = 'the files of the journal do not contain it';
  events?.dropped({ bytes: announced - readable, ofBytes: announced, reason });
  if (readable > 0) events?.left(readable);
}

function journalName({ paths }: Pick<Left, 'paths'>): string {
  return journalNameOf(paths[0] ?? '');
}
