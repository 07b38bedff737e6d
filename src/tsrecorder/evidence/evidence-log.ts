/**
 * The log of this recorder: entries become durable in the journal at once and are published to the store in segments,
 * each signed. What cannot be published waits in the journal; nothing is ever left out.
 */
import { createBackoff, type Backoff } from '../../async/backoff.ts';
import { pause } from '../../async/pause.ts';
import { settledWithin } from '../../async/within.ts';
import { TailcastError, errorText } from '../../errors.ts';
import type { Logger } from '../../observe/logger.ts';
import type { DocumentStore } from '../store/document-store.ts';
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
import type { PublicKey, SigningKey } from './signing-key.ts';

export interface EvidenceLogOptions {
  readonly store: DocumentStore;
  /** File of the journal. */
  readonly path: string;
  readonly key: SigningKey;
  /** Keys of other recorders whose logs count. Default: none but the own one. */
  readonly trusted?: readonly PublicKey[];
  /** A new log's name, should there be none: 32 hexadecimal digits. */
  readonly randomId: () => string;
  /** Milliseconds since the epoch. */
  readonly nowMs: () => number;
  readonly log: Logger;
  /** Longest time that an entry waits to be published while the store works. */
  readonly publishMs: number;
  /** How often the store is shown at most what waits to be published. */
  readonly tailMs: number;
  /** How often the heads of other logs are read. */
  readonly witnessMs: number;
  /** The log could not be published; it will be tried again. */
  readonly onFailure: () => void;
}

const MAX_SEGMENT_ENTRIES = 1000;
/** What waits to be published is written again and again until then. */
const MAX_TAIL_ENTRIES = 100;
/** How long a start waits for a store that is slow, to learn whether its log is the newest. */
const COMPARE_LIMIT_MS = 5000;
const MAX_RETRY_MS = 60_000;
/** Maximum number of segments of another log that are read to find the newest signed one. */
const MAX_WITNESSED_SEGMENTS = 20;
/** From the publishing of some sessions that began to that of the next ones. */
const ANNOUNCE_PAUSE_MS = 100;

export class EvidenceLog {
  readonly #options: EvidenceLogOptions;
  readonly #journal: LogJournal;
  #timer: NodeJS.Timeout | undefined;
  #publishing: Promise<void> | undefined;
  #reconciled = false;
  #keyPublished = false;
  #witnessedAtMs = -Infinity;
  #failing = false;
  readonly #backoff: Backoff;
  #announcing: Promise<void> | undefined;
  #announcedAtMs = -Infinity;
  #tail: Promise<void> | undefined;
  #tailedAtMs = -Infinity;
  #tailWanted = false;
  readonly #closing = new AbortController();

  /** True if this process began the log. */
  readonly isNew: boolean;

  private constructor(options: EvidenceLogOptions, journal: LogJournal, isNew: boolean) {
    this.#options = options;
    this.isNew = isNew;
    this.#journal = journal;
    const { publishMs } = options;
    this.#backoff = createBackoff({ baseMs: publishMs, maxMs: Math.max(MAX_RETRY_MS, publishMs) });
  }

  /** Opens the log; what was not published before is published soon. Does not need the store to work. */
  static async open(options: EvidenceLogOptions): Promise<EvidenceLog> {
    const { journal, isNew, damaged } = await LogJournal.open(options.path, options.randomId());
    if (damaged)
      options.log.error(
        { log: journal.log, isNew, copy: `${options.path}.damaged` },
        isNew
          ? 'the evidence log cannot be read, so a new one begins; a copy is kept'
          : 'entries of the evidence log cannot be read and are lost; a copy is kept',
      );
    const log = new EvidenceLog(options, journal, isNew);
    if (!isNew) await log.#compare();
    const key = options.key.public.raw;
    log.append(
      isNew ? { kind: 'open', format: LOG_FORMAT, log: journal.log, key } : { kind: 'restart', key },
    );
    await journal.sync();
    // the key and the log are there before anything that is signed
    void log.#tryToPublish();
    return log;
  }

  get #closed(): boolean {
    return this.#closing.signal.aborted;
  }

  /** Name of the log. */
  get id(): string {
    return this.#journal.log;
  }

  /** Sessions that began and have not ended, by recording. */
  get open(): ReadonlyMap<string, OpenStart> {
    return this.#journal.open;
  }

  /** The last statement about each recording that was held and is not removed. */
  get holds(): ReadonlyMap<string, LoggedHold> {
    return this.#journal.holds;
  }

  /** The newest entry of another log that this log has seen, if a key that counts signed it. */
  witnessed(log: string): LogHead | undefined {
    return this.#journal.witnessed(log);
  }

  /** How many entries the store does not have. */
  get unpublished(): number {
    return this.#journal.waiting;
  }

  /**
   * Appends an entry, which counts once `sync` has resolved. What is durable may wait to be published until something else
   * is: an object in the store for it alone would be one every few seconds.
   *
   * @returns its number.
   */
  append(event: LogEvent): number {
    const n = this.#journal.append(new Date(this.#options.nowMs()).toISOString(), event);
    if (event.kind !== 'durable' || this.#journal.waiting >= MAX_TAIL_ENTRIES) this.#schedule();
    return n;
  }

  /**
   * Brings all entries so far into the store soon, and resolves when they are there, when the store has failed, or when that
   * takes too long: what waits for it does not wait for a store that is not there.
   */
  async announce(limitMs: number): Promise<void> {
    if (this.#failing || this.#closed) return;
    this.#announcing ??= this.#announceSoon();
    await settledWithin(limitMs, this.#announcing);
  }

  /** All that begin within a moment share a segment. */
  async #announceSoon(): Promise<void> {
    const waitMs = this.#announcedAtMs + ANNOUNCE_PAUSE_MS - performance.now();
    // a turn at least: what begins from here on has the next segment
    await new Promise((resolve) => setTimeout(resolve, Math.max(0, waitMs)));
    this.#announcing = undefined;
    this.#announcedAtMs = performance.now();
    await this.#tryToPublish();
  }

  /** Makes all entries so far durable. @throws a system error when the disk does not take them */
  sync(): Promise<void> {
    return this.#journal.sync();
  }

  /**
   * Shows the store soon what is durable and waits to be published, so that a journal that is put back to an older copy is told
   * from the newest one.
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
      // a turn at least: what comes within it is shown too
      if (!(await pause(Math.max(0, waitMs), this.#closing.signal))) return;
      this.#tailWanted = false;
      this.#tailedAtMs = performance.now();
      const entries = this.#journal.unpublished(MAX_SEGMENT_ENTRIES);
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

  /** Whether the store has more of this log than the journal: then that is an older copy, and goes on from there. */
  async #compare(): Promise<void> {
    const { store, key, log } = this.#options;
    const limit = AbortSignal.timeout(COMPARE_LIMIT_MS);
    const late = new Promise<undefined>((resolve) =>
      limit.addEventListener('abort', () => resolve(undefined)),
    );
    const published = await Promise.race([
      readPublished(store, this.id, this.#journal.base, key).catch((error: unknown) => {
        log.warn(
          { log: this.id, error: errorText(error) },
          'the evidence log could not be compared with the store',
        );
        return undefined;
      }),
      late,
    ]);
    if (published === undefined) return;
    const own = this.#journal.unpublished(Infinity);
    if (published.every((line, index) => own[index]?.line === line)) return;
    log.error(
      { log: this.id, entries: own.length, found: published.length },
      'the spool is an older copy: the evidence log goes on from what the store has',
    );
    await this.#journal.goOnFrom(published);
  }

  /** Brings all durable entries into the store. @throws TailcastError `STORE_FAILED` */
  async publish(): Promise<void> {
    while (this.#publishing !== undefined) await this.#publishing.catch(() => undefined);
    this.#publishing = this.#publishAll().finally(() => {
      this.#publishing = undefined;
    });
    await this.#publishing;
  }

  /** Publishes what can be published, and stops. */
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
      await putOnce(store, keyName(key.public.id), key.public.pem);
      this.#keyPublished = true;
    }
    if (!this.#reconciled) await this.#reconcile();
    await this.#witness();
    for (;;) {
      const entries = this.#journal.unpublished(MAX_SEGMENT_ENTRIES);
      const [first] = entries;
      const last = entries.at(-1);
      if (first === undefined || last === undefined) return;
      const lines = entries.map(({ line }) => line);
      const segment = encodeSegment(lines, { log: this.id, n: last.n, hash: last.hash }, key);
      try {
        await store.putDocument(logSegmentName(this.id, first.n), Buffer.from(segment));
      } catch (error) {
        // an answer that was lost, or that came after a crash: what is there decides
        this.#reconciled = false;
        if (!(error instanceof TailcastError) || error.code !== 'UPLOAD_CONFLICT') throw error;
        await this.#reconcile();
        continue;
      }
      await this.#journal.published(entries.length);
    }
  }

  /** Compares the store with the journal: what is already there need not be published, what is lost must be said. */
  async #reconcile(): Promise<void> {
    const names = await this.#options.store.listDocuments(segmentPrefix(this.id));
    const ours = names.map(parseSegmentName).filter((segment) => segment !== undefined);
    for (;;) {
      const { n } = this.#journal.base;
      if (!ours.some(({ first }) => first === n)) break;
      const text = await readText(this.#options.store, logSegmentName(this.id, n));
      const { lines } = parseSegment(text ?? '');
      const entries = this.#journal.unpublished(lines.length);
      const same =
        entries.length === lines.length && entries.every(({ line }, index) => line === lines[index]);
      if (!same || lines.length === 0) {
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

  /** Records how far the logs of trusted recorders are, so that none of them can lose its end unseen. */
  async #witness(): Promise<void> {
    const { store, nowMs, witnessMs } = this.#options;
    if (nowMs() - this.#witnessedAtMs < witnessMs) return;
    this.#witnessedAtMs = nowMs();
    const segments = (await store.listDocuments(segmentPrefix())).flatMap((name) => {
      const segment = parseSegmentName(name);
      return segment === undefined || segment.log === this.id ? [] : [{ ...segment, name }];
    });
    for (const [log, ofLog] of Map.groupBy(segments, (segment) => segment.log)) {
      const head = await this.#newestHead(ofLog);
      if (head?.log !== log || head.n <= (this.witnessed(log)?.n ?? -1)) continue;
      this.#journal.append(new Date(nowMs()).toISOString(), { kind: 'witness', head });
    }
    await this.sync();
  }

  /** Returns the end of the newest segment with a trusted signature. An attacker can write segments behind it. */
  async #newestHead(
    segments: readonly { readonly name: string; readonly first: number }[],
  ): Promise<LogHead | undefined> {
    const { key, trusted = [] } = this.#options;
    const keys = new Map([...trusted, key.public].map((each) => [each.id, each] as const));
    const newest = segments.toSorted((left, right) => right.first - left.first);
    for (const { name } of newest.slice(0, MAX_WITNESSED_SEGMENTS)) {
      const signature = await this.#headIn(name);
      if (signature === undefined) continue;
      const { log, n, hash } = signature;
      if (keys.get(signature.key)?.verifies(headMessage({ log, n, hash }), signature.ed25519) === true)
        return { log, n, hash };
    }
    return undefined;
  }

  async #headIn(name: string): Promise<SegmentSignature | undefined> {
    return parseSegment((await readText(this.#options.store, name)) ?? '').signature;
  }
}

/**
 * What the store has of a log from `base` on, segments and tail, as far as each entry continues the one before and the end of
 * each is signed by `key`.
 */
async function readPublished(
  store: DocumentStore,
  log: string,
  base: { readonly n: number; readonly hash: string },
  key: SigningKey,
): Promise<readonly string[]> {
  // the tail first: what it says is in later segments
  const tail = await readText(store, tailName(log));
  const names = await store.listDocuments(segmentPrefix(log));
  const firsts = names
    .flatMap((name) => parseSegmentName(name)?.first ?? [])
    .filter((first) => first >= base.n);
  const segments: string[] = [];
  for (const first of firsts.toSorted((left, right) => left - right))
    segments.push((await readText(store, logSegmentName(log, first))) ?? '');
  const found: string[] = [];
  let last = base.hash;
  for (const text of tail === undefined ? segments : [...segments, tail]) {
    const { lines, signature } = parseSegment(text);
    const fresh = lines.filter((line) => (parseEntry(line)?.n ?? -1) >= base.n + found.length);
    let end = last;
    const continues = fresh.every((line, index) => {
      const entry = parseEntry(line);
      const goesOn = entry?.n === base.n + found.length + index && entry.prev === end;
      end = hashLine(line);
      return goesOn;
    });
    const head = { log, n: base.n + found.length + fresh.length - 1, hash: end };
    if (!continues || fresh.length === 0 || signature?.key !== key.public.id) continue;
    if (!key.public.verifies(headMessage(head), signature.ed25519)) continue;
    found.push(...fresh);
    last = end;
  }
  return found;
}

async function readText(store: DocumentStore, name: string): Promise<string | undefined> {
  const content = await store.readDocument(name);
  return content === undefined ? undefined : Buffer.from(content).toString();
}

async function putOnce(store: DocumentStore, name: string, content: string): Promise<void> {
  try {
    await store.putDocument(name, Buffer.from(content));
  } catch (error) {
    if (!(error instanceof TailcastError) || error.code !== 'UPLOAD_CONFLICT') throw error;
  }
}
