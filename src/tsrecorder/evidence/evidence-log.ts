/**
 * The evidence log of this recorder. Entries become durable in the journal immediately. The recorder publishes them to
 * the store in signed segments. Entries stay in the journal until they are published.
 */
import { createBackoff, type Backoff } from '../../async/backoff.ts';
import { pause } from '../../async/pause.ts';
import { settledWithin, withTimeout } from '../../async/with-timeout.ts';
import { TailcastError, errorText } from '../../errors.ts';
import type { Logger } from '../../observe/logger.ts';
import { putIfMissing, type DocumentStore } from '../store/document-store.ts';
import {
  encodeSegment,
  hashLine,
  headMessage,
  keyName,
  LOG_FORMAT,
  parseEntry,
  parseSegment,
  parseSegmentName,
  logSegmentName,
  segmentPrefix,
  tailName,
  type LogEvent,
  type LogHead,
  type SegmentSignature,
} from './log-entry.ts';
import type { LoggedHold } from './holds.ts';
import { LogJournal, type OpenStart } from './log-journal.ts';
import { OtherLogs, readSegmentText, signedHead } from './other-logs.ts';
import { keysById, type PublicKey, type SigningKey } from './signing-key.ts';

export interface EvidenceLogOptions {
  readonly store: DocumentStore;
  /** Path of the journal file. */
  readonly path: string;
  readonly key: SigningKey;
  /** Keys of other trusted recorders. Default: only the key of this recorder is trusted. */
  readonly trusted?: readonly PublicKey[];
  /** Returns the name for a new evidence log: 32 hexadecimal digits. */
  readonly randomId: () => string;
  /** Returns the time in milliseconds since the epoch. */
  readonly nowMs: () => number;
  readonly log: Logger;
  /** Maximum time until an entry is published if the store is available, in milliseconds. */
  readonly publishMs: number;
  /** Minimum interval at which the unpublished entries are copied to the store, in milliseconds. */
  readonly tailMs: number;
  /** Interval between reads of the newest entries of other evidence logs, in milliseconds. */
  readonly witnessMs: number;
  /** Called when publishing failed. The evidence log retries. */
  readonly onFailure: () => void;
}

const MAX_SEGMENT_ENTRIES = 1000;
/**
 * Maximum length of a segment with several entries, in UTF-16 code units. Verifiers accept segments of up to
 * `MAX_SEGMENT_BYTES`.
 */
const MAX_SEGMENT_LENGTH = 8 * 1024 ** 2;
/**
 * Number of unpublished entries at which entries of kind `durable` are published, too. The limit is low because every
 * new copy of the tail repeats all unpublished entries.
 */
const MAX_TAIL_ENTRIES = 100;
/**
 * Maximum wait at start for a slow store, in milliseconds. The recorder waits because without a response from the
 * store, it cannot detect that its journal is an outdated copy.
 */
const COMPARE_LIMIT_MS = 5000;
const MAX_RETRY_MS = 60_000;
/** Factor by which passes over the evidence logs of other recorders are more frequent after an incomplete pass. */
const CATCH_UP = 60;
/**
 * Minimum interval between two segments with new sessions, in milliseconds. Sessions that start within this interval
 * share a segment.
 */
const ANNOUNCE_PAUSE_MS = 100;

/** The evidence log of one recorder. */
export class EvidenceLog {
  readonly #options: EvidenceLogOptions;
  readonly #journal: LogJournal;
  #timer: NodeJS.Timeout | undefined;
  #publishing: Promise<void> | undefined;
  #reconciled = false;
  #keyPublished = false;
  #witnessAtMs = -Infinity;
  readonly #others: OtherLogs;
  #failing = false;
  readonly #backoff: Backoff;
  #announcing: Promise<void> | undefined;
  #announcedAtMs = -Infinity;
  #tail: Promise<void> | undefined;
  #tailedAtMs = -Infinity;
  #tailWanted = false;
  /**
   * Number of the first entry of a segment that has the name of this evidence log, but not the signature of this
   * recorder.
   */
  #forged: number | undefined;
  readonly #closing = new AbortController();

  private constructor(options: EvidenceLogOptions, journal: LogJournal) {
    this.#options = options;
    this.#journal = journal;
    const { publishMs, store, key, trusted = [], log } = options;
    this.#others = new OtherLogs({
      store,
      own: journal.log,
      keys: keysById([...trusted, key.public]),
      known: (other) => this.witnessed(other),
      log,
    });
    this.#backoff = createBackoff({ baseMs: publishMs, maxMs: Math.max(MAX_RETRY_MS, publishMs) });
  }

  /** Opens the evidence log, and publishes pending entries soon. The store may be unavailable. */
  static async open(options: EvidenceLogOptions): Promise<EvidenceLog> {
    const { journal, isNew, damaged } = await LogJournal.open(options.path, options.randomId());
    if (damaged)
      options.log.error(
        { log: journal.log, isNew, copy: `${options.path}.damaged` },
        isNew
          ? 'the evidence log cannot be read, so a new one begins; a copy is kept'
          : 'entries of the evidence log cannot be read and are lost; a copy is kept',
      );
    const log = new EvidenceLog(options, journal);
    if (!isNew) await log.#compare();
    const key = options.key.public.raw;
    log.append(
      isNew ? { kind: 'open', format: LOG_FORMAT, log: journal.log, key } : { kind: 'restart', key },
    );
    await journal.sync();
    // Publish immediately: the key and the evidence log must be in the store before any signed recording.
    void log.#tryToPublish();
    return log;
  }

  get #closed(): boolean {
    return this.#closing.signal.aborted;
  }

  /** Name of the evidence log. */
  get id(): string {
    return this.#journal.log;
  }

  /** Open sessions. Map keys: id of the recording. */
  get open(): ReadonlyMap<string, OpenStart> {
    return this.#journal.open;
  }

  /** Last legal hold, or release from a hold, of each recording. Removed recordings are omitted. */
  get holds(): ReadonlyMap<string, LoggedHold> {
    return this.#journal.holds;
  }

  /** Returns the newest known entry of another evidence log, if a trusted key signed that entry. */
  witnessed(log: string): LogHead | undefined {
    return this.#journal.witnessed(log);
  }

  /** Last entry that is in the store; undefined while the store has no entry. */
  get published(): LogHead | undefined {
    const { n, hash } = this.#journal.base;
    return n === 0 ? undefined : { log: this.id, n: n - 1, hash };
  }

  /** Number of entries that are not in the store. */
  get unpublished(): number {
    return this.#journal.waiting;
  }

  /**
   * Appends an entry. The entry is durable after `sync` has resolved. Entries of kind `durable` are published together
   * with later entries, because each segment is one object in the store.
   * @returns the number of the entry
   */
  append(event: LogEvent): number {
    const n = this.#journal.append(new Date(this.#options.nowMs()).toISOString(), event);
    if (event.kind !== 'durable' || this.#journal.waiting >= MAX_TAIL_ENTRIES) this.#schedule();
    return n;
  }

  /**
   * Publishes all entries, after a short pause. Resolves after success, after a failure of the store, or after
   * `limitMs`. The limit keeps callers from waiting long for a slow store.
   */
  async announce(limitMs: number): Promise<void> {
    if (this.#failing || this.#closed) return;
    this.#announcing ??= this.#announceSoon();
    await settledWithin(limitMs, this.#announcing);
  }

  /** Publishes after a pause, so that sessions that start within a short time share a segment. */
  async #announceSoon(): Promise<void> {
    const waitMs = this.#announcedAtMs + ANNOUNCE_PAUSE_MS - performance.now();
    // Wait at least one turn of the event loop, so that the segment includes the entries of the current turn.
    await new Promise((resolve) => setTimeout(resolve, Math.max(0, waitMs)));
    this.#announcing = undefined;
    this.#announcedAtMs = performance.now();
    await this.#tryToPublish();
  }

  /** Makes all entries durable. @throws a system error if the disk write fails */
  sync(): Promise<void> {
    return this.#journal.sync();
  }

  /**
   * Copies the durable unpublished entries to the store soon. After a restart, the copy shows whether the journal was
   * restored from an older backup.
   */
  showTail(): void {
    if (this.#closed) return;
    this.#tailWanted = true;
    this.#tail ??= this.#showTails().finally(() => {
      this.#tail = undefined;
    });
  }

  async #showTails(): Promise<void> {
    const { store, key, tailMs } = this.#options;
    while (this.#tailWanted) {
      const waitMs = this.#tailedAtMs + tailMs - performance.now();
      // Wait at least one turn of the event loop, so that the copy includes the entries of the current turn.
      if (!(await pause(Math.max(0, waitMs), this.#closing.signal))) return;
      this.#tailWanted = false;
      this.#tailedAtMs = performance.now();
      const entries = this.#journal.unpublished(MAX_SEGMENT_ENTRIES, MAX_SEGMENT_LENGTH);
      const last = entries.at(-1);
      if (last === undefined || this.#failing) continue;
      const lines = entries.map(({ line }) => line);
      const tail = encodeSegment(lines, { log: this.id, n: last.n, hash: last.hash }, key);
      await store.replaceDocument(tailName(this.id), Buffer.from(tail)).catch((error: unknown) => {
        this.#options.log.warn(
          { log: this.id, error: errorText(error) },
          'the end of the evidence log is not in the store',
        );
      });
    }
  }

  /**
   * Compares the journal with the store. If the store has more entries, the journal is an older copy. The evidence log
   * then continues after the entries of the store.
   */
  async #compare(): Promise<void> {
    const { store, key, log } = this.#options;
    const read = (): ReturnType<typeof readPublished> =>
      readPublished(store, this.id, this.#journal.base, key);
    const reading = withTimeout(COMPARE_LIMIT_MS, 'the comparison', undefined, read);
    const published = await reading.catch((error: unknown) => {
      log.warn(
        { log: this.id, error: errorText(error) },
        'the evidence log could not be compared with the store',
      );
      return undefined;
    });
    if (published === undefined) return;
    const own = this.#journal.unpublished(Infinity);
    if (published.every((line, index) => own[index]?.line === line)) return;
    log.error(
      { log: this.id, entries: own.length, found: published.length },
      'the spool is an older copy: the evidence log continues after the last entry in the store',
    );
    await this.#journal.goOnFrom(published);
  }

  /** Publishes all durable entries. @throws TailcastError `STORE_FAILED` */
  async publish(): Promise<void> {
    while (this.#publishing !== undefined) await this.#publishing.catch(() => undefined);
    this.#publishing = this.#publishAll().finally(() => {
      this.#publishing = undefined;
    });
    await this.#publishing;
  }

  /** Stops, after one attempt to publish the pending entries. */
  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closing.abort();
    clearTimeout(this.#timer);
    await this.#tail;
    await this.#tryToPublish();
    await this.#journal.close();
  }

  #schedule(): void {
    if (this.#closed || this.#timer !== undefined) return;
    this.#timer = setTimeout(() => {
      void this.#tryToPublish().then(() => {
        this.#timer = undefined;
        if (this.#journal.unpublished(1).length > 0) this.#schedule();
      });
    }, this.#backoff.next());
  }

  async #tryToPublish(): Promise<void> {
    try {
      await this.sync();
      await this.publish();
      this.#failing = false;
      this.#backoff.reset();
    } catch (error) {
      this.#failing = true;
      this.#options.onFailure();
      this.#options.log.error(
        { log: this.id, error: errorText(error) },
        'evidence log could not be published',
      );
    }
  }

  async #publishAll(): Promise<void> {
    const { store, key } = this.#options;
    if (!this.#keyPublished) {
      await putIfMissing(store, keyName(key.public.id), Buffer.from(key.public.pem));
      this.#keyPublished = true;
    }
    if (!this.#reconciled) await this.#reconcile();
    await this.#witness();
    for (;;) {
      const entries = this.#journal.unpublished(MAX_SEGMENT_ENTRIES, MAX_SEGMENT_LENGTH);
      const [first] = entries;
      const last = entries.at(-1);
      if (first === undefined || last === undefined) return;
      const lines = entries.map(({ line }) => line);
      const segment = encodeSegment(lines, { log: this.id, n: last.n, hash: last.hash }, key);
      const name = logSegmentName(this.id, first.n);
      try {
        if (this.#forged === first.n) await store.replaceDocument(name, Buffer.from(segment), true);
        else await store.putDocument(name, Buffer.from(segment));
      } catch (error) {
        // An earlier request may have succeeded although its response was lost. Therefore compare the store with the
        // journal again.
        this.#reconciled = false;
        if (!(error instanceof TailcastError) || error.code !== 'UPLOAD_CONFLICT') throw error;
        await this.#reconcile();
        continue;
      }
      await this.#journal.published(entries.length);
    }
  }

  /**
   * Compares the store with the journal. Marks entries that are in the store as published. Reports in the process log
   * if the store has lost published entries.
   */
  async #reconcile(): Promise<void> {
    const names = await this.#options.store.listDocuments(segmentPrefix(this.id));
    const ours = names.map(parseSegmentName).filter((segment) => segment !== undefined);
    for (;;) {
      const { n } = this.#journal.base;
      if (!ours.some(({ first }) => first === n)) break;
      const name = logSegmentName(this.id, n);
      const text = await readSegmentText(this.#options.store, name);
      const { lines, signature } = parseSegment(text ?? '');
      if (!this.#isOwnSegment(n, lines, signature)) {
        this.#options.log.error({ log: this.id, name }, 'a segment without our signature is replaced');
        this.#forged = n;
        break;
      }
      const entries = this.#journal.unpublished(lines.length);
      const same =
        entries.length === lines.length && entries.every(({ line }, index) => line === lines[index]);
      if (!same) {
        throw new TailcastError('STORE_FAILED', `another recorder writes the evidence log ${this.id}`);
      }
      await this.#journal.published(lines.length);
    }
    const last = ours.at(-1);
    const head = last === undefined ? undefined : await this.#headIn(logSegmentName(last.log, last.first));
    const { n, hash } = this.#journal.base;
    if (n > 0 && (head?.n !== n - 1 || head.hash !== hash)) {
      this.#options.log.error(
        { log: this.id, entries: n, found: head?.n },
        'the store has lost a part of the evidence log',
      );
    }
    this.#reconciled = true;
  }

  /**
   * Returns true if this recorder signed these lines, and the first line is entry number `first`. Other programs can
   * write segments too, and copy signatures.
   */
  #isOwnSegment(first: number, lines: readonly string[], signature: SegmentSignature | undefined): boolean {
    const head = signedHead(signature, keysById([this.#options.key.public]));
    if (head?.log !== this.id || head.n !== first + lines.length - 1) return false;
    const hashes = lines.map(hashLine);
    const isChain = lines.every((line, index) => index === 0 || parseEntry(line)?.prev === hashes[index - 1]);
    return isChain && head.hash === hashes.at(-1);
  }

  /**
   * Adds the newest entries of the evidence logs of other trusted recorders to this log. With these entries, `verify`
   * detects a truncation of the other logs.
   */
  async #witness(): Promise<void> {
    const { nowMs, witnessMs } = this.#options;
    if (nowMs() < this.#witnessAtMs) return;
    this.#witnessAtMs = nowMs() + witnessMs;
    const { heads, isBehind } = await this.#others.newestHeads();
    if (isBehind) this.#witnessAtMs = nowMs() + witnessMs / CATCH_UP;
    for (const head of heads)
      this.#journal.append(new Date(nowMs()).toISOString(), { kind: 'witness', head });
    await this.sync();
  }

  async #headIn(name: string): Promise<SegmentSignature | undefined> {
    return parseSegment((await readSegmentText(this.#options.store, name)) ?? '').signature;
  }
}

/**
 * Reads the entries of an evidence log from the segments and the tail in the store, starting at `base`. Each entry must
 * continue the previous entry, and `key` must have signed each segment.
 */
async function readPublished(
  store: DocumentStore,
  log: string,
  base: { readonly n: number; readonly hash: string },
  key: SigningKey,
): Promise<readonly string[]> {
  // Read the tail before listing the segments. If a segment is published between the two reads, it contains the entries
  // of the tail.
  const tail = await readSegmentText(store, tailName(log));
  const names = await store.listDocuments(segmentPrefix(log));
  const firsts = new Set(names.map((name) => parseSegmentName(name)?.first));
  const found: string[] = [];
  let last = base.hash;
  for (let isTail = false; !isTail;) {
    // Read only segments without a gap before them, because other programs can add any number of segments.
    const next = base.n + found.length;
    isTail = !firsts.delete(next);
    const text = isTail ? tail : await readSegmentText(store, logSegmentName(log, next));
    const { lines, signature } = parseSegment(text ?? '');
    const fresh = lines.filter((line) => (parseEntry(line)?.n ?? -1) >= base.n + found.length);
    let end = last;
    const continues = fresh.every((line, index) => {
      const entry = parseEntry(line);
      const isContinued = entry?.n === base.n + found.length + index && entry.prev === end;
      end = hashLine(line);
      return isContinued;
    });
    const head = { log, n: base.n + found.length + fresh.length - 1, hash: end };
    if (!continues || fresh.length === 0 || signature?.key !== key.public.id) continue;
    if (!key.public.verifies(headMessage(head), signature.ed25519)) continue;
    found.push(...fresh);
    last = end;
  }
  return found;
}
