/**
 * The journal: a file with the unpublished part of a recorder's evidence log. New entries are appended. After the
 * publication of entries, a shorter file without these entries replaces the file. An entry becomes valid when it is
 * durable in this file. The first line contains the number of the first unpublished entry and the hash of the last
 * published entry.
 */
import { readFile } from 'node:fs/promises';
import { z } from 'zod';
import { jsonOrUndefined } from '../../wire/json-value.ts';
import { createSequence, createSharedStep } from '../../async/sequence.ts';
import { AppendFile, cutFile } from '../files/append-file.ts';
import { replaceFile } from '../../directories.ts';
import { keepDamaged } from '../files/durable-files.ts';
import type { LoggedHold } from './holds.ts';
import { NO_HASH, encodeEntry, hashLine, parseEntry, type LogEvent, type LogHead } from './log-entry.ts';
import { ifPresent } from '../../errors.ts';

/** An entry, and its line without the line feed. */
export interface JournalEntry {
  readonly n: number;
  readonly event: LogEvent;
  readonly line: string;
  /** Hash of the line. */
  readonly hash: string;
}

/** An open session in the evidence log. */
export interface OpenStart {
  /** Number of the start entry. */
  readonly n: number;
  /** SHA-256 of the header line; undefined if the start entry has no `durable`. */
  readonly header: string | undefined;
  /** Number of body bytes that are durable according to the evidence log. */
  readonly durable: number;
}

const number = z.int().min(0);
const hash = z.string().regex(/^[0-9a-f]{64}$/);

const baseSchema = z.strictObject({
  base: z.strictObject({
    log: z.string().regex(/^[0-9a-f]{32}$/),
    /** Number of the next entry, and hash of the previous entry. */
    n: number,
    hash,
    /** Open sessions: number of the start entry, recording, hash of the header line, and number of durable bytes. */
    open: z.array(z.union([z.tuple([number, z.string()]), z.tuple([number, z.string(), hash, number])])),
    /** Last legal hold, or release from a hold, of each recording: recording, kind and time. */
    holds: z.array(z.tuple([z.string(), z.enum(['held', 'released']), z.string()])),
    /** Newest known entry of each other evidence log: name of the log, number of the entry, and hash. */
    witnessed: z.array(z.tuple([z.string().regex(/^[0-9a-f]{32}$/), number, hash])),
  }),
});

type Base = z.infer<typeof baseSchema>['base'];

/** Content of a journal file. */
interface Loaded {
  readonly base: Base;
  readonly entries: readonly JournalEntry[];
  readonly fileBytes: number;
  /** Length of all valid lines, in UTF-16 code units. */
  readonly textLength: number;
}

/** The journal file of an evidence log. */
export class LogJournal {
  readonly log: string;
  readonly #path: string;
  #file: AppendFile;
  #base: Base;
  /** Unpublished entries in order. `#durable` is the number of durable entries at the start of the list. */
  #entries: JournalEntry[];
  #durable: number;
  #state: State;
  readonly #exclusively = createSequence();
  readonly #written = createSharedStep(this.#exclusively, () => this.#write());

  private constructor(path: string, file: AppendFile, { base, entries }: Loaded) {
    this.log = base.log;
    this.#path = path;
    this.#file = file;
    this.#base = base;
    this.#entries = [...entries];
    this.#durable = entries.length;
    this.#state = stateOf(base);
    for (const entry of entries) follow(this.#state, entry);
  }

  /**
   * Opens the journal at `path`, or creates one for the evidence log `newLog`.
   * @returns `damaged` is true if the file, or its end, was unreadable. In that case, the recorder keeps a copy of the
   * damaged file
   */
  static async open(
    path: string,
    newLog: string,
  ): Promise<{ readonly journal: LogJournal; readonly isNew: boolean; readonly damaged: boolean }> {
    const text = await ifPresent(readFile(path, 'utf8'));
    const loaded = text === undefined ? undefined : load(text);
    if (loaded === undefined) {
      if (text !== undefined) await keepDamaged(path);
      const state = { open: [], holds: [], witnessed: [] };
      await replaceFile(path, encodeBase({ log: newLog, n: 0, hash: NO_HASH, ...state }));
    }
    // A crash can truncate only the last line. If complete lines follow an invalid line, the file is damaged.
    const isCut = loaded !== undefined && text?.indexOf('\n', loaded.textLength) !== -1;
    if (isCut) await keepDamaged(path);
    const current = loaded ?? load(await readFile(path, 'utf8'));
    if (current === undefined) throw new TypeError('a new journal can be read');
    await cutFile(path, current.fileBytes);
    const journal = new LogJournal(path, await AppendFile.open(path, current.fileBytes), current);
    return {
      journal,
      isNew: loaded === undefined,
      damaged: isCut || (text !== undefined && loaded === undefined),
    };
  }

  /** Number of the next entry to publish, and hash of the last published entry. */
  get base(): { readonly n: number; readonly hash: string } {
    return this.#base;
  }

  /** Open sessions. Map keys: id of the recording. */
  get open(): ReadonlyMap<string, OpenStart> {
    return this.#state.open;
  }

  /** Last legal hold, or release from a hold, of each recording. Removed recordings are omitted. */
  get holds(): ReadonlyMap<string, LoggedHold> {
    return this.#state.holds;
  }

  /** Newest known entry of another evidence log. */
  witnessed(log: string): LogHead | undefined {
    return this.#state.witnessed.get(log);
  }

  /** Number of unpublished entries, durable or not. */
  get waiting(): number {
    return this.#entries.length;
  }

  /**
   * Returns durable unpublished entries, oldest first.
   * @param maxLength maximum total length of the lines, in UTF-16 code units. The first entry is always returned
   */
  unpublished(limit: number, maxLength = Infinity): readonly JournalEntry[] {
    const entries = this.#entries.slice(0, Math.min(limit, this.#durable));
    let length = 0;
    const end = entries.findIndex(({ line }, index) => (length += line.length + 1) > maxLength && index > 0);
    return end < 0 ? entries : entries.slice(0, end);
  }

  /** Appends an entry. The entry is valid after a later `sync` has resolved. @returns the number of the entry */
  append(time: string, event: LogEvent): number {
    const last = this.#entries.at(-1);
    const n = last === undefined ? this.#base.n : last.n + 1;
    const line = encodeEntry({ n, prev: last?.hash ?? this.#base.hash, time, event });
    const entry = { n, event, line, hash: hashLine(line) };
    this.#entries.push(entry);
    follow(this.#state, entry);
    return n;
  }

  /** Makes all earlier entries durable. Concurrent calls share one fsync. */
  sync(): Promise<void> {
    return this.#written();
  }

  /**
   * Continues the evidence log after the entries in the store. Called if the journal file is an older copy.
   * @param lines entries that follow `base`; each entry continues the previous entry
   */
  goOnFrom(lines: readonly string[]): Promise<void> {
    return this.#exclusively(async () => {
      const content = encodeBase(this.#base) + lines.map((line) => `${line}\n`).join('');
      const loaded = load(content);
      if (loaded?.entries.length !== lines.length) throw new TypeError('the entries do not continue the log');
      await this.#replace(content);
      this.#entries = [...loaded.entries];
      this.#durable = loaded.entries.length;
      this.#state = stateOf(this.#base);
      for (const entry of loaded.entries) follow(this.#state, entry);
    });
  }

  /** Discards the first `count` entries, because they are in the store. */
  published(count: number): Promise<void> {
    return this.#exclusively(async () => {
      const gone = this.#entries.slice(0, count);
      const last = gone.at(-1);
      if (last === undefined) return;
      const state = stateOf(this.#base);
      for (const entry of gone) follow(state, entry);
      const base = {
        log: this.log,
        n: last.n + 1,
        hash: last.hash,
        open: [...state.open].map(encodeOpen),
        holds: Array.from(state.holds, ([recording, { kind, at }]): Base['holds'][number] => [
          recording,
          kind,
          at,
        ]),
        witnessed: Array.from(state.witnessed.values(), (head): Base['witnessed'][number] => [
          head.log,
          head.n,
          head.hash,
        ]),
      };
      const kept = this.#entries.slice(count, this.#durable).map(({ line }) => `${line}\n`);
      await this.#replace(encodeBase(base) + kept.join(''));
      this.#base = base;
      this.#entries = this.#entries.slice(count);
      this.#durable -= count;
    });
  }

  async close(): Promise<void> {
    await this.#exclusively(() => this.#file.close());
  }

  async #write(): Promise<void> {
    const pending = this.#entries.slice(this.#durable);
    if (pending.length === 0) return;
    await this.#file.append([Buffer.from(pending.map(({ line }) => `${line}\n`).join(''))]);
    this.#durable += pending.length;
  }

  async #replace(content: string): Promise<void> {
    await replaceFile(this.#path, content);
    const file = await AppendFile.open(this.#path, Buffer.byteLength(content));
    await this.#file.close();
    this.#file = file;
  }
}

/** State of the evidence log after its last entry. */
interface State {
  /** Open sessions. Map keys: id of the recording. */
  readonly open: Map<string, OpenStart>;
  readonly holds: Map<string, LoggedHold>;
  /** Newest known entry of each other evidence log. */
  readonly witnessed: Map<string, LogHead>;
}

/** Updates the holds and the newest entries of other evidence logs. */
function applyEvent({ holds, witnessed }: State, event: LogEvent): void {
  if (event.kind === 'witness') witnessed.set(event.head.log, event.head);
  if (event.kind === 'removed') holds.delete(event.recording);
  if (event.kind !== 'held' && event.kind !== 'released') return;
  const { kind, at, recording } = event;
  holds.set(recording, { kind, at });
}

/** Updates the state with an entry. */
function follow(state: State, { n, event }: JournalEntry): void {
  const { open } = state;
  applyEvent(state, event);
  if (event.kind === 'start') {
    const { recording, header, durable } = event;
    open.set(recording, { n, header: durable === undefined ? undefined : header, durable: durable ?? 0 });
  }
  if (event.kind === 'durable') {
    const marks = new Map(event.sessions);
    for (const [recording, start] of open) {
      const durable = marks.get(start.n);
      if (durable !== undefined) open.set(recording, { ...start, durable });
    }
  }
  const isOver =
    event.kind === 'end' || event.kind === 'void' || (event.kind === 'lost' && event.found === 0);
  if (!isOver) return;
  for (const [recording, start] of open) if (start.n === event.start) open.delete(recording);
}

function stateOf({ open, holds, witnessed }: Base): State {
  return {
    open: new Map(
      open.map(([n, recording, header, durable = 0]) => [recording, { n, header, durable }] as const),
    ),
    holds: new Map(holds.map(([recording, kind, at]) => [recording, { kind, at }] as const)),
    witnessed: new Map(witnessed.map(([log, n, last]) => [log, { log, n, hash: last }] as const)),
  };
}

function encodeOpen([recording, { n, header, durable }]: readonly [string, OpenStart]): Base['open'][number] {
  return header === undefined ? [n, recording] : [n, recording, header, durable];
}

function encodeBase(base: Base): string {
  return `${JSON.stringify({ base })}\n`;
}

/**
 * Reads lines up to the first line that does not continue the previous line. Ignores an incomplete last line, which a
 * crash can leave.
 */
function load(text: string): Loaded | undefined {
  const lines = text.split('\n').slice(0, -1);
  const base = parseBase(lines.shift() ?? '');
  if (base === undefined) return undefined;
  const entries: JournalEntry[] = [];
  let fileBytes = Buffer.byteLength(encodeBase(base));
  let textLength = encodeBase(base).length;
  let head: Pick<LogHead, 'n' | 'hash'> = { n: base.n - 1, hash: base.hash };
  for (const line of lines) {
    const entry = parseEntry(line);
    if (entry?.n !== head.n + 1 || entry.prev !== head.hash) break;
    head = { n: entry.n, hash: hashLine(line) };
    entries.push({ n: entry.n, event: entry.event, line, hash: head.hash });
    fileBytes += Buffer.byteLength(line) + 1;
    textLength += line.length + 1;
  }
  return { base, entries, fileBytes, textLength };
}

function parseBase(line: string): Base | undefined {
  const base = baseSchema.safeParse(jsonOrUndefined(line)).data?.base;
  return base !== undefined && encodeBase(base) === `${line}\n` ? base : undefined;
}
