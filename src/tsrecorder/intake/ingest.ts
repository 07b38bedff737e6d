/**
 * Manages all uploads of a recorder: starts, continues and ends them, passes them to the finisher, and recovers spools
 * after a crash. Independent of HTTP.
 */
import { BoundedMap } from '../../bounded-map.ts';
import { TailcastError, errorText } from '../../errors.ts';
import { createDirectorySync } from '../files/durable-files.ts';
import { readPart } from '../files/file-range.ts';
import { describeUpload } from './finisher.ts';
import {
  cutSpool,
  memorized,
  readHead,
  reread,
  type FoundUpload,
  type RecoveredSession,
} from './found-upload.ts';
import type { IngestOptions } from './ingest-options.ts';
import { createKeyedCounter } from '../../keyed-counter.ts';
import type { LiveRecording } from '../library/live-recording.ts';
import type { Recording } from '../../wire/recorder-api/recording.ts';
import { describeEntry } from './live-entry.ts';
import { SessionFacts } from '../library/session-facts.ts';
import type { Continuation } from '../../wire/recorder-api/upload-headers.ts';
import { adoptionPath, readAdoption } from '../spool/adoption-file.ts';
import { listSpools, readSpool, removeSpool, spoolPaths } from '../spool/spool-file.ts';
import { spoolStatus, type SpoolStatus } from './spool-status.ts';
import { recordingId, type RecordingKey } from '../store/key.ts';
import { UploadSession, type SessionDependencies, type UploadOrigin } from './upload-session.ts';
import { createUploadBody } from './upload-body.ts';
import {
  asUploadFailure,
  expectHeader,
  knownUpload,
  pushInto,
  tokenOf,
  type Upload,
  type UploadEvents,
} from './upload-connection.ts';
import { UnreadableSpools } from './unreadable-spools.ts';

interface Entry {
  readonly session: UploadSession;
  /**
   * Recording of a finished session, shown in listings until the store has it; undefined before the end of the session.
   */
  over: Recording | undefined;
  /** End of the session, in milliseconds since the epoch. */
  overAtMs: number;
  grace: NodeJS.Timeout | undefined;
  /** True if a connection uploads the session or waits for its confirmation. */
  awaited: boolean;
  /** True if other recorders may have parts of the session. */
  hasOthers: boolean;
  /** Resolves after the last scheduled step. The steps of a session run one after another. */
  steps: Promise<void>;
  /** Resolves with the key when the store has the recording, or with undefined if there was nothing to store. */
  readonly gone: PromiseWithResolvers<RecordingKey | undefined>;
  /** Frees the session slot of the uploading node. */
  readonly leave: () => void;
}

/** Maximum number of remembered complete sessions. */
const MAX_REMEMBERED = 1000;

/** The uploads of one spool directory, which must exist. */
export class Ingest {
  readonly #options: IngestOptions;
  readonly #deps: SessionDependencies;
  readonly #entries = new Set<Entry>();
  /** Counts the sessions of each uploading tailnet node. Keys: stable id of the node. */
  readonly #slots = createKeyedCounter();
  readonly #byToken = new Map<string, Entry>();
  /**
   * Number of upload bytes of each complete session. Map keys: token of the upload. The recorder repeats the last
   * acknowledgement for an uploader that missed it.
   */
  readonly #ended = new BoundedMap<number>(MAX_REMEMBERED);
  readonly #unreadable: UnreadableSpools;
  #closing = false;

  constructor(options: IngestOptions) {
    const { group, limits, log, spoolDirectory } = options;
    const syncEntries = createDirectorySync();
    this.#options = options;
    this.#unreadable = new UnreadableSpools({ ...options, recover: (key) => this.#recoverSpool(key) });
    this.#deps = {
      ...options,
      longLines: { counter: createKeyedCounter(), maxBytes: limits.maxLongLineBytes },
      syncEntries: () => syncEntries(spoolDirectory),
      isFull: () => group.waitingBytes >= limits.maxTotalPendingBytes,
      onStarted(key, { nodeName, address, protocol }) {
        log.info({ recording: recordingId(key), uploader: nodeName, address, protocol }, 'recording started');
      },
      onDurable({ meta }, durable, header) {
        const recording = recordingId(meta);
        if (header === undefined) return options.evidence.grew(recording, durable);
        const { nodeId, nodeName, address } = meta;
        return options.evidence.started({ recording, header, nodeId, nodeName, address, durable });
      },
    };
  }

  /** Returns the state of the spool, including sessions without a header. */
  status(): SpoolStatus {
    return spoolStatus(this.#entries, this.#unreadable.count, this.#options.now());
  }

  /** Returns the recordings that are not in the store yet. */
  live(): readonly LiveRecording[] {
    const readable = [...this.#entries].map(describeEntry).filter((live) => live !== undefined);
    return [...readable, ...this.#unreadable.live()];
  }

  /**
   * Starts a session for a connection, or continues a session with the same token.
   *
   * @param at position of the connection's first byte in the session
   * @throws TailcastError `RECORDER_BUSY`; `UPLOAD_CONFLICT` if this recorder lacks the start of the session and the
   *   connection does not repeat it
   */
  async begin(origin: UploadOrigin, at: Continuation, events: UploadEvents): Promise<Upload> {
    const { offset, number, preambleBytes } = at;
    if (this.#closing) throw new TailcastError('RECORDER_BUSY', 'it is shutting down');
    const token = tokenOf(origin);
    const known = token === undefined ? undefined : this.#byToken.get(token);
    if (known !== undefined) {
      const upload = await this.#takeOver(known, at, events);
      return upload ?? this.begin(origin, at, events);
    }
    const endedAt = token === undefined ? undefined : this.#ended.get(token);
    if (endedAt !== undefined && offset <= endedAt) return knownUpload(endedAt, at, events);
    if (offset > 0 && preambleBytes === 0) {
      throw new TailcastError('UPLOAD_CONFLICT', 'the session is not here');
    }
    if (!this.#slots.hasShare(origin.nodeId, this.#options.limits.maxSessions)) {
      const detail =
        `${origin.nodeName} has ${this.#slots.usedBy(origin.nodeId)} sessions here, and the free ` +
        'slots are for other nodes';
      throw new TailcastError('RECORDER_BUSY', detail);
    }
    const continues = offset > 0 || number > 1 ? { continues: { offset, number } } : {};
    return this.#connect(this.#add(new UploadSession({ ...origin, ...continues }, this.#deps)), at, events);
  }

  /** Resumes paused connections after a commit, if there is space. */
  resumeWaiting(): void {
    for (const { session } of this.#entries) session.resumeIfSpace();
  }

  /**
   * Recovers the spools of an earlier process. Resolves when the catalogue lists all sessions in the spools. Sessions
   * that no connection continues are then stored in the background.
   */
  async recover(): Promise<void> {
    await this.#unreadable.recover(await listSpools(this.#options.spoolDirectory));
    await this.#options.evidence.settle(await listSpools(this.#options.spoolDirectory));
  }

  /**
   * Adopts a spool that `checkpoint/rebuild` created for a session of another recorder, and stores the recording. No
   * gateway can continue the session. Resolves when the recording is in the store.
   */
  async adopt(key: RecordingKey): Promise<void> {
    const recovered = await this.#readSpool(key);
    if (recovered !== undefined) await this.#finishAdopted(recovered).gone.promise;
  }

  #finishAdopted({ session, ended, lost }: RecoveredSession): Entry {
    const entry = this.#add(session, false);
    const reason = ['the recorder that had the session was lost', ...(lost === undefined ? [] : [lost])];
    const clean = lost === undefined && (ended || session.hasEnd);
    void this.#next(entry, () => this.#finish(entry, clean, reason.join('; ')));
    return entry;
  }

  /**
   * Ends all connections with `RECORDER_BUSY`. Sessions that can be continued stay in the spool. The recorder makes one
   * attempt to store each of the other sessions.
   */
  async close(): Promise<void> {
    this.#closing = true;
    this.#unreadable.close();
    const stopped = new TailcastError('RECORDER_BUSY', 'it is shutting down');
    const steps = [...this.#entries].map((entry) => {
      clearTimeout(entry.grace);
      entry.session.release(stopped);
      return this.#next(entry, () => this.#suspend(entry, 'the recorder was stopped'));
    });
    await Promise.allSettled(steps);
  }

  /** Adds a session. @param named true if a connection may continue the session by its token */
  #add(session: UploadSession, named = true): Entry {
    const leave = this.#slots.take(session.origin.nodeId);
    const entry: Entry = {
      session,
      over: undefined,
      overAtMs: 0,
      grace: undefined,
      awaited: false,
      hasOthers: false,
      steps: Promise.resolve(),
      gone: Promise.withResolvers(),
      leave: () => {
        leave();
        session.longLines.count([]);
      },
    };
    const token = named ? tokenOf(session.origin) : undefined;
    this.#entries.add(entry);
    if (token !== undefined) this.#byToken.set(token, entry);
    return entry;
  }

  /** Removes the token, so that no connection can continue the session. */
  #forgetToken(entry: Entry): void {
    clearTimeout(entry.grace);
    const token = tokenOf(entry.session.origin);
    if (token !== undefined && this.#byToken.get(token) === entry) this.#byToken.delete(token);
  }

  #remove(entry: Entry, storedAs?: RecordingKey): void {
    this.#forgetToken(entry);
    this.#entries.delete(entry);
    entry.leave();
    entry.gone.resolve(storedAs);
  }

  /** Runs `step` after all earlier steps of the entry. */
  #next(entry: Entry, step: () => Promise<void>): Promise<void> {
    const run = entry.steps.then(step).catch((error: unknown) => {
      this.#options.log.error(
        { uploader: entry.session.origin.nodeName, error: errorText(error) },
        'upload could not be finished and stays in the spool',
      );
    });
    entry.steps = run;
    return run;
  }

  /**
   * Ends the session and stores it. Resolves after the first attempt. Call this method as a step of the session,
   * through `#next`.
   */
  async #finish(entry: Entry, clean: boolean, cutReason: string | undefined): Promise<void> {
    const { session } = entry;
    if (entry.over !== undefined || !this.#entries.has(entry)) return;
    await session.detach();
    let found: FoundUpload | undefined;
    try {
      found = session.failure === undefined ? await memorized(session) : await reread(session);
    } catch (error) {
      if (session.started === undefined) throw error;
      this.#forgetToken(entry);
      this.#entries.delete(entry);
      entry.leave();
      this.#unreadable.add(session.started.meta, error);
      return;
    }
    if (found === undefined) {
      if (session.started !== undefined) this.#options.evidence.vanished(recordingId(session.started.meta));
      this.#remove(entry);
      return;
    }
    const endedAtMs = this.#options.now();
    const endedAt = new Date(endedAtMs).toISOString();
    const awaited = (): boolean => entry.awaited || session.origin.token === undefined;
    const over = { clean, awaited, hasOthers: entry.hasOthers, endedAt };
    const upload = { ...found, ...over, cutReason: clean ? undefined : cutReason };
    const recording = describeUpload(upload, undefined);
    entry.over = recording;
    entry.overAtMs = endedAtMs;
    this.#forgetToken(entry);
    const token = tokenOf(session.origin);
    if (clean && token !== undefined) this.#ended.set(token, upload.bodyBytes);
    session.wake();
    const { id, state, bytes, problem } = recording;
    this.#options.log.info({ recording: id, state, bytes, problem }, 'recording ended');
    this.#options.onOutcome(recording);
    const { firstTry, done } = this.#options.finisher.submit(upload);
    void done.then((stored) => {
      this.#options.onStored(recording, stored);
      this.#remove(entry, stored.key);
    });
    await firstTry;
  }

  /**
   * Handles a lost connection: a session with a token may be continued for `resumeGraceMs`. Runs as a step of the
   * session.
   */
  async #suspend(entry: Entry, reason: string): Promise<void> {
    const { session } = entry;
    if (entry.over !== undefined) return;
    await session.detach();
    const canContinue =
      session.origin.token !== undefined && session.durable.castBytes > 0 && session.failure === undefined;
    if (!canContinue) await this.#finish(entry, false, reason);
    else if (!this.#closing) this.#awaitContinuation(entry, reason);
  }

  #awaitContinuation(entry: Entry, reason: string): void {
    clearTimeout(entry.grace);
    entry.grace = setTimeout(() => {
      void this.#next(entry, async () => {
        if (!entry.session.attached) await this.#finish(entry, entry.session.hasEnd, reason);
      });
    }, this.#options.resumeGraceMs);
  }

  /**
   * Moves a session to a new connection. The move is one step in the queue of the session. If several connections
   * continue the session at the same time, each connection gets the session in turn.
   *
   * @returns undefined if the session has ended, or if the connection starts after the durable bytes of this recorder.
   *   In the second case, this session ends, and the connection starts another part
   * @throws TailcastError `UPLOAD_CONFLICT`
   */
  async #takeOver(entry: Entry, at: Continuation, events: UploadEvents): Promise<Upload | undefined> {
    const taken = Promise.withResolvers<Upload | undefined>();
    void this.#next(entry, async () => {
      const { session } = entry;
      try {
        if (entry.over !== undefined || !this.#entries.has(entry)) {
          taken.resolve(undefined);
          return;
        }
        clearTimeout(entry.grace);
        session.release(new TailcastError('UPLOAD_CONFLICT', 'it continues over another connection'));
        await session.detach();
        if (session.failure !== undefined) throw session.failure;
        if (at.preambleBytes > 0 && session.durable.bodyBytes < at.offset) {
          this.#forgetToken(entry);
          void this.#next(entry, () => this.#finish(entry, false, 'continued at another recorder'));
          taken.resolve(undefined);
          return;
        }
        taken.resolve(this.#connect(entry, at, events));
      } catch (error) {
        taken.reject(asUploadFailure(error));
        await this.#suspend(entry, 'the upload was cut and could not be continued');
      }
    });
    return taken.promise;
  }

  #connect(entry: Entry, at: Continuation, events: UploadEvents): Upload {
    const { session } = entry;
    /** True if the connection no longer uploads the session. */
    let released = false;
    let ended = false;
    const body = createUploadBody(at, session.durable.bodyBytes, (acknowledged) =>
      events.durable(acknowledged),
    );
    entry.awaited = true;
    entry.hasOthers ||= at.number > (session.origin.continues?.number ?? 1);

    /** Ends the upload because of an error. Complete, durable lines are kept. */
    const fail = (error: TailcastError): void => {
      if (released) return;
      released = true;
      const { nodeName, address } = session.origin;
      this.#options.log.warn(
        { code: error.code, reason: error.message, uploader: nodeName, address },
        'upload refused',
      );
      events.failed(error);
      void this.#next(entry, () => this.#finish(entry, false, error.message));
    };

    expectHeader(session, this.#options.headerTimeoutMs, fail);
    session.attach(
      {
        ...events,
        durable: (bodyBytes) => body.durable(bodyBytes),
        failed: fail,
        released(error) {
          released = true;
          events.failed(error);
        },
      },
      at,
    );
    return {
      get durableBytes() {
        return session.durable.bodyBytes;
      },
      get acknowledged() {
        return body.acknowledged(session.durable.bodyBytes);
      },
      push(chunk) {
        if (released) return true;
        try {
          return pushInto(session, body, chunk);
        } catch (error) {
          fail(asUploadFailure(error));
          return true;
        }
      },
      end: async () => {
        if (released) return false;
        ended = true;
        if (session.lacksEnd) {
          released = true;
          await this.#next(entry, () => this.#suspend(entry, 'the upload ended before its session'));
          return true;
        }
        try {
          body.end();
          await session.end();
        } catch (error) {
          fail(asUploadFailure(error));
        }
        if (released) return false;
        released = true;
        await this.#next(entry, () => this.#finish(entry, true, undefined));
        return true;
      },
      cut: (reason) => {
        if (released && !ended) return;
        entry.awaited = false;
        if (ended) return;
        released = true;
        void this.#next(entry, () => this.#suspend(entry, reason));
      },
    };
  }

  async #recoverSpool(key: RecordingKey): Promise<void> {
    const recovered = await this.#readSpool(key);
    if (recovered === undefined) return;
    const { session, ended, lost, isAdopted } = recovered;
    if (isAdopted) return void this.#finishAdopted(recovered);
    // No connection may continue a session with lost bytes.
    const entry = this.#add(session, lost === undefined);
    const reason = 'the recorder stopped while the session was open';
    if (lost !== undefined) void this.#next(entry, () => this.#finish(entry, false, lost));
    else if (!ended && session.origin.token !== undefined) this.#awaitContinuation(entry, reason);
    else void this.#next(entry, () => this.#finish(entry, ended, ended ? undefined : reason));
  }

  /**
   * Reads a spool that no session uses, and truncates the spool to its complete lines. @returns undefined if the spool
   * has no complete line; the spool is then removed
   */
  async #readSpool(key: RecordingKey): Promise<RecoveredSession | undefined> {
    const paths = spoolPaths(this.#options.spoolDirectory, key);
    const facts = new SessionFacts();
    const spool = await readSpool(paths, (note) => facts.note(note));
    const head = spool === undefined ? undefined : await readHead(spool);
    if (spool === undefined) {
      await removeSpool(paths);
      return undefined;
    }
    if (head === undefined) throw new TailcastError('STORE_FAILED', 'the header cannot be read');
    await cutSpool(spool);
    const { meta, ended, ...position } = spool;
    const adopted = await readAdoption(adoptionPath(paths));
    const session = UploadSession.recovered(
      { meta, head, facts, paths, ...(adopted === undefined ? {} : { adopted }) },
      position,
      { ...meta, token: meta.token, ...(meta.part === undefined ? {} : { continues: meta.part }) },
      this.#deps,
    );
    const recording = recordingId(meta);
    const { log, evidence } = this.#options;
    const header = await readPart(paths.cast, 0, meta.storedHeaderBytes);
    const { nodeId, nodeName, address } = meta;
    const start = { recording, header, nodeId, nodeName, address, durable: spool.bodyBytes };
    const lost = adopted === undefined ? evidence.found(start) : evidence.adopted({ ...start, adopted });
    log.info({ recording, bytes: spool.castBytes, ended }, 'spool recovered');
    return { session, ended, lost, isAdopted: adopted !== undefined };
  }
}
