/**
 * Keeps the index up to date with the store. The indexer indexes new recordings when they are stored, running sessions
 * with a short delay (`liveMs`), and all other recordings newest first. The indexer erases removed recordings from the
 * index. There is no persistent queue: pending work is the difference between store and index. Recording never waits
 * for the indexer.
 */
import { pause } from '../../async/pause.ts';
import { settledWithin } from '../../async/with-timeout.ts';
import { FairQueue } from '../../async/fair-queue.ts';
import { errorText } from '../../errors.ts';
import { castBytes } from '../library/replay.ts';
import type { CatalogEntry } from '../library/catalog-entry.ts';
import { recordedOwner } from '../library/recorded-owner.ts';
import type { SessionDoc } from '../../search/search-index.ts';
import type { LiveRecording } from '../library/live-recording.ts';
import { parseRecordingId, recordingId } from '../store/key.ts';
import type { PendingIds } from '../library/session-index.ts';
import { Comparison } from './comparison.ts';
import { compareWithStore } from './compare-store.ts';
import { feedGrowth } from './feed-cast.ts';
import { feedRecording } from './feed-recording.ts';
import type { IndexClient } from './index-client.ts';
import type { IndexerOptions, IndexProgress } from './index-progress.ts';
import { IndexCounts } from './index-counts.ts';
import { makeSpace, MAX_LIVE, RestingSessions, touch } from './live-slots.ts';
import { LiveWaits, type Followed } from './live-waits.ts';
import { LongRecordings, type Reading, type ReadingSteps } from './long-recordings.ts';
import type { Effort, WorkDone } from './messages.ts';
import { PendingRecordings } from './pending-recordings.ts';
import { putSessions } from './put-sessions.ts';
import { sessionDoc, sessionNames } from './session-names.ts';

/**
 * Interval between two checks whether a stored session still grows, in units of `liveMs`. A session with several
 * uploads may grow for hours.
 */
const GROWING_TICKS = 10;
/** Interval at which an idle indexer checks that its index was not replaced, in milliseconds. */
const CHECK_MS = 10_000;
/**
 * Maximum time for the current step when the indexer closes, in milliseconds. After this time, the writer process is
 * killed.
 */
const CLOSE_MS = 2000;
/** Limits per flush: number of recordings, and total size of their casts in bytes. */
const MAX_READ = 256;
const MAX_READ_BYTES = 8_388_608;
/** Number of recordings without indexed text that are read at once. */
const MAX_NAMES = 32;
/**
 * Maximum size of a recording for a quick reading. Longer recordings are read in pieces, alternating with other
 * recordings.
 */
const MAX_QUICK_BYTES = 4 * 1024 ** 2;
/** Maximum work units of a turn for running sessions (about 100 ms). After that, stored recordings get a turn. */
const FOLLOW_WORK = 25e6;

/** The indexer of a recorder. */
export class Indexer {
  readonly #options: IndexerOptions;
  /** New recordings, which are indexed before the recordings that the last comparison found. */
  readonly #fresh = new FairQueue<string>();
  /** Recordings that are too long or too costly for a quick reading. */
  readonly #long = new LongRecordings();
  /** Work units that were used to read running sessions. */
  #followWork = 0;
  /** All recordings whose current version is not in the index, including unreadable and growing recordings. */
  readonly #pending = new PendingRecordings();
  /** Recordings that lists must read from the store, although searches find them in the index. */
  readonly #apart = new Set<string>();
  /** Stored recordings that may still grow, with the time of their next check. */
  readonly #growing = new Map<string, { readonly at: number; readonly owner: string }>();
  readonly #removals = new Set<string>();
  /** Running sessions that are read, the least recently read session first. */
  readonly #followed = new Map<string, Followed>();
  readonly #resting = new RestingSessions();
  /** Recordings that were read and that the next flush writes. */
  readonly #read = new Set<string>();
  #readBytes = 0;
  /** Recordings that are being read. */
  #current: readonly string[] = [];
  readonly #waits = new LiveWaits();
  readonly #counts: IndexCounts;
  #client: IndexClient | undefined;
  #problem: string | undefined;
  #lastKey = 0;
  readonly #comparison: Comparison;
  #checkAt: number;
  readonly #closing = new AbortController();
  #wake = Promise.withResolvers<void>();
  /** Set while a caller of `settled` waits. */
  #idle: PromiseWithResolvers<void> | undefined;
  readonly #timer: NodeJS.Timeout;
  readonly #running: Promise<void>;

  constructor(options: IndexerOptions) {
    this.#options = options;
    this.#counts = new IndexCounts(options.now);
    this.#comparison = new Comparison(options);
    this.#checkAt = options.now() + CHECK_MS;
    this.#timer = setInterval(() => {
      for (const [id, { at, owner }] of this.#growing) {
        if (options.now() < at) continue;
        this.#growing.delete(id);
        this.#fresh.add(id, owner);
      }
      this.#noteWaits();
      this.#wake.resolve();
    }, options.liveMs);
    this.#running = this.#run();
  }

  /**
   * Reports a new recording or part in the store. `owner` is the result of `recordedOwner`. Default: the uploading
   * node.
   */
  stored(id: string, owner?: string): void {
    const key = parseRecordingId(id);
    if (key === undefined || !this.#comparison.admit(this.#fresh.size)) return;
    this.#fresh.add(id, owner ?? key.nodeId);
    this.#pending.add(id);
    this.#wake.resolve();
  }

  /**
   * Returns the stored recordings whose current version is not in the index; undefined before the first comparison, and
   * while dropped changes require another one.
   */
  pending(): PendingIds | undefined {
    return this.#comparison.isCurrent && this.#problem === undefined ? this.#pending : undefined;
  }

  /** Reports removed recordings. The indexer then erases these recordings from the index. */
  removed(ids: readonly string[]): void {
    for (const id of ids) if (this.#comparison.admit(this.#removals.size)) this.#removals.add(id);
    this.#wake.resolve();
  }

  async progress(): Promise<IndexProgress> {
    this.#noteWaits();
    const lagMs = this.#waits.longest(this.#followed, this.#options.now());
    const backlog = this.#unwritten();
    const problem = this.#problem;
    const isReady = this.#comparison.isCurrent && backlog === 0;
    const state = problem !== undefined ? 'unavailable' : isReady ? 'ready' : 'building';
    const status = this.#client === undefined ? undefined : await this.#counts.of(this.#client);
    return {
      state,
      sessions: 0,
      partial: 0,
      bytes: 0,
      ...status,
      backlog,
      lagSeconds: lagMs / 1000,
      ...(problem === undefined ? {} : { problem }),
    };
  }

  /** Number of recordings that are queued, being read, or not written yet. */
  #unwritten(): number {
    const taken = new Set([...this.#read, ...this.#long.ids(), ...this.#current]);
    let count = this.#fresh.size + this.#pending.backlog;
    for (const id of taken) if (!this.#fresh.has(id)) count += 1;
    return count;
  }

  #noteWaits(): void {
    const open = this.#options.live().filter((one) => one.isOpen() && !this.#resting.has(one));
    // Sessions above this limit are indexed when they end.
    const running = new Set(open.slice(0, MAX_LIVE).map(({ key }) => recordingId(key)));
    this.#waits.note(running, this.#followed, this.#options.now());
  }

  /** Resolves when the index is up to date. */
  settled(): Promise<void> {
    this.#idle ??= Promise.withResolvers();
    this.#wake.resolve();
    return this.#idle.promise;
  }

  async close(): Promise<void> {
    clearInterval(this.#timer);
    this.#closing.abort();
    this.#wake.resolve();
    if (!(await settledWithin(CLOSE_MS, this.#running))) this.#client?.kill();
    await this.#running;
    await this.#long.clear();
    await this.#client?.close();
  }

  async #run(): Promise<void> {
    const { signal } = this.#closing;
    while (!signal.aborted) {
      try {
        this.#client ??= await this.#options.start(signal);
        if (this.#client.isStopped) throw new Error('the process of the index has ended');
        this.#problem = undefined;
        await this.#work(this.#client);
      } catch (error) {
        await this.#fail(error);
      }
    }
  }

  async #fail(error: unknown): Promise<void> {
    const { log, restartMs } = this.#options;
    this.#client?.kill();
    this.#client = undefined;
    this.#current = [];
    this.#waits.drop(this.#followed);
    this.#followed.clear();
    this.#resting.clear();
    this.#read.clear();
    await this.#long.clear();
    this.#apart.clear();
    this.#readBytes = 0;
    this.#problem = errorText(error);
    this.#comparison.reset();
    if (this.#closing.signal.aborted) return;
    this.#options.metrics.failed();
    log.error({ error: this.#problem }, 'the search index cannot be written and will be tried again');
    await pause(restartMs, this.#closing.signal);
  }

  async #work(index: IndexClient): Promise<void> {
    if (this.#comparison.isDue(this.#fresh.size)) await this.#reconcile(index);
    if (this.#closing.signal.aborted) return;
    if (this.#options.now() >= this.#checkAt) {
      await index.ask('check', null);
      this.#checkAt = this.#options.now() + CHECK_MS;
    }
    await this.#remove(index);
    await this.#follow(index);
    if (this.#read.size >= MAX_READ || this.#readBytes >= MAX_READ_BYTES) await this.#flush(index);
    if (this.#long.isDue) {
      await this.#advanceLong(index);
      return;
    }
    this.#takeNext();
    if (this.#current.length > 0) {
      await this.#indexNext(index);
      return;
    }
    if (this.#long.hasMore) {
      await this.#advanceLong(index);
      return;
    }
    if (this.#read.size > 0) {
      await this.#flush(index);
      return;
    }
    if (this.#fresh.size > 0 || this.#removals.size > 0) return;
    this.#idle?.resolve();
    this.#idle = undefined;
    // Do one step at a time, so that running sessions wait for one step at most.
    if (await index.ask('tidy', null)) return;
    await this.#wake.promise;
    this.#wake = Promise.withResolvers();
  }

  /**
   * Writes to the index all recordings that were read. If more bytes of a recording are stored later, they belong to a
   * new version of the recording.
   */
  async #flush(index: IndexClient): Promise<void> {
    if (this.#read.size === 0) return;
    await index.ask('flush', null);
    for (const id of this.#read) if (!this.#fresh.has(id) && !this.#apart.has(id)) this.#pending.delete(id);
    this.#read.clear();
    this.#readBytes = 0;
  }

  #takeNext(): void {
    const taken = new Set<string>();
    for (const most = this.#options.text === 'off' ? MAX_NAMES : 1; taken.size < most;) {
      const id = this.#fresh.take() ?? this.#pending.take();
      if (id === undefined) break;
      if (!this.#long.isQueued(id)) taken.add(id);
    }
    this.#current = [...taken];
  }

  /**
   * Reads a stored recording, one piece per step. The result is `costly` if the recording is too long or too costly for
   * a quick reading.
   */
  async *#indexStored(
    index: IndexClient,
    id: string,
    effort: Effort,
    onOwner?: (owner: string) => void,
  ): ReadingSteps {
    const entry = await this.#findStored(id);
    if (typeof entry === 'string') return entry;
    onOwner?.(recordedOwner(entry.recording));
    const bytes = this.#options.text === 'off' ? 0 : castBytes(entry);
    if (effort === 'quick' && bytes > MAX_QUICK_BYTES) return 'costly';
    // If the ids differ, `id` belongs to a later part, which was stored before the first part of its session.
    if (entry.recording.id !== id) {
      await this.#flush(index);
      await index.ask('remove', { ids: [id], compact: false });
    }
    const key = (this.#lastKey += 1);
    const doc = this.#docOf(id, entry);
    if ((await index.ask('begin', { key, doc, isLive: false, effort })) === 'same') return 'read';
    const reading = yield* feedRecording({
      ...this.#options,
      index,
      id,
      key,
      entry,
      bytes,
      effort,
      beforeFinish: async () => (this.#read.has(id) ? this.#flush(index) : undefined),
    });
    if (reading === 'read') this.#readBytes += bytes;
    return reading;
  }

  #docOf(id: string, entry: CatalogEntry): SessionDoc {
    const doc = sessionDoc(entry, this.#options);
    // NOTE: the index contains only the first upload of a session. After a restart, the indexer therefore checks later
    // uploads again.
    if (doc.listing === undefined) this.#keepApart([id, entry.recording.id]);
    return doc;
  }

  async #findStored(id: string): Promise<CatalogEntry | Reading> {
    this.#apart.delete(id);
    const entry = await this.#options.catalog.find(id);
    if (entry === undefined) {
      this.#removals.add(id);
      return 'read';
    }
    // The recording was just stored, and the catalogue still describes it as running. Check again later, because no
    // further event follows.
    if (entry.version === undefined || entry.live !== undefined) {
      const at = this.#options.now() + GROWING_TICKS * this.#options.liveMs;
      this.#growing.set(id, { at, owner: recordedOwner(entry.recording) });
      return 'later';
    }
    return entry;
  }

  /** Reads the next recordings. */
  async #indexNext(index: IndexClient): Promise<void> {
    const ids = this.#current;
    const others = this.#options.text === 'off' ? await this.#indexNames(index, ids) : ids;
    for (const id of others) await this.#indexText(index, id);
    this.#current = [];
  }

  /**
   * Indexes recordings without their text, with one request for all of them.
   * @returns recordings that must be read one by one, for example those that belong to a session with another id
   */
  async #indexNames(index: IndexClient, ids: readonly string[]): Promise<readonly string[]> {
    const found = await Promise.all(ids.map(async (id) => ({ id, entry: await this.#findStored(id) })));
    if (ids.some((id) => this.#read.has(id))) await this.#flush(index);
    const others: string[] = [];
    const sessions = found.flatMap(({ id, entry }) => {
      if (entry === 'read') this.#read.add(id);
      if (typeof entry === 'string') return [];
      if (entry.recording.id === id) return { recording: entry.recording, doc: this.#docOf(id, entry) };
      others.push(id);
      return [];
    });
    if (!(await putSessions(index, sessions, this.#options.matched))) return ids;
    for (const { recording } of sessions) this.#read.add(recording.id);
    return others;
  }

  /** Reads a recording with the limit of a quick reading, or postpones it. */
  async #indexText(index: IndexClient, id: string): Promise<void> {
    let owner = '';
    const steps = this.#indexStored(index, id, 'quick', (found) => {
      owner = found;
    });
    let step = await steps.next();
    for (; step.done !== true; step = await steps.next()) {
      this.#fresh.charge(owner, step.value);
      this.#long.earn(step.value);
    }
    if (step.value === 'read') this.#read.add(id);
    if (step.value === 'costly') this.#long.add(id, owner);
  }

  async #advanceLong(index: IndexClient): Promise<void> {
    const id = await this.#long.advance((job) => this.#indexStored(index, job, 'full'));
    if (id !== undefined) this.#read.add(id);
  }

  /** Marks recordings that lists must read from the store instead of the index. */
  #keepApart(ids: readonly string[]): void {
    for (const id of ids) {
      this.#apart.add(id);
      this.#pending.add(id);
    }
  }

  async #follow(index: IndexClient): Promise<void> {
    const open = this.#options.live().filter((recording) => recording.isOpen());
    const live = new Map(open.map((recording) => [recordingId(recording.key), recording]));
    for (const [id, { key }] of this.#followed) {
      if (live.has(id)) continue;
      this.#followed.delete(id);
      await index.ask('drop', { key });
    }
    const cost = ({ recording }: LiveRecording): number => this.#fresh.costOf(recordedOwner(recording));
    this.#resting.keep(live);
    const before = this.#followWork;
    for (const [id, session] of [...live].toSorted(([, left], [, right]) => cost(left) - cost(right))) {
      if (this.#followWork - before > FOLLOW_WORK) {
        // Wake the loop, so that it continues with the remaining sessions.
        this.#wake.resolve();
        return;
      }
      const known = this.#followed.get(id) ?? (await this.#begin(index, id, session));
      if (known !== undefined) await this.#feedLive(index, known, session.recording);
    }
  }

  async #feedLive(index: IndexClient, known: Followed, recording: LiveRecording['recording']): Promise<void> {
    const { now, text } = this.#options;
    const end = castBytes(known.entry);
    if (end <= known.fed) {
      known.waitingSince = undefined;
      return;
    }
    if (known.isDone) {
      known.fed = end;
      return;
    }
    known.waitingSince ??= now();
    const owner = recordedOwner(known.entry.recording);
    const charge = ({ work, isDone }: WorkDone): void => {
      this.#fresh.charge(owner, work);
      this.#followWork += work;
      known.isDone ||= isDone;
    };
    const rest = text === 'off' ? undefined : await feedGrowth(index, known, end, charge);
    known.fed = end;
    touch(this.#followed, known);
    // Use the start time and the id of the session even if the recording is a later part.
    const { startedAt, id } = known.entry.recording;
    const session = { ...recording, id, startedAt };
    const names = sessionNames(session);
    const done = await index.ask('commit', {
      key: known.key,
      names,
      ...(rest === undefined ? {} : { bytes: rest }),
    });
    charge(done);
    await this.#options.matched?.(session, done.matches);
    known.waitingSince = undefined;
  }

  async #begin(index: IndexClient, id: string, session: LiveRecording): Promise<Followed | undefined> {
    const { catalog, text } = this.#options;
    if (!(await makeSpace(index, this.#followed, this.#resting, session))) return undefined;
    const entry = await catalog.find(id);
    if (entry?.live === undefined) return undefined;
    const key = (this.#lastKey += 1);
    const doc = { names: sessionNames(entry.recording), version: '', text };
    await index.ask('begin', { key, doc, isLive: true, effort: 'quick' });
    const job: Followed = { id, key, entry, fed: 0, isDone: false, waitingSince: this.#waits.begin(id) };
    this.#followed.set(id, job);
    return job;
  }

  async #remove(index: IndexClient): Promise<void> {
    if (this.#removals.size === 0) return;
    await this.#flush(index);
    const ids = [...this.#removals];
    await this.#long.drop((id) => this.#removals.has(id));
    await index.ask('remove', { ids, compact: true });
    for (const id of ids) {
      this.#removals.delete(id);
      this.#apart.delete(id);
    }
  }

  /** Compares store and index. Events during the comparison are queued. `close` aborts the comparison. */
  async #reconcile(index: IndexClient): Promise<void> {
    const { signal } = this.#closing;
    const complete = this.#comparison.start();
    await this.#flush(index);
    try {
      const { missing, unlisted } = await compareWithStore(index, this.#options, signal);
      for (const id of unlisted) if (!this.#fresh.has(id)) this.#removals.add(id);
      this.#pending.replace(missing, [...this.#fresh, ...this.#growing.keys(), ...this.#long.ids()]);
      complete();
    } catch (error) {
      if (!signal.aborted) throw error;
    }
  }
}
