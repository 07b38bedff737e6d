/**
 * Writes the index.
 *
 * The version of a document is the time when the recorder started to read the recording. If two recorders write one
 * session, the recorder that started to read later wins. Version conflicts are therefore not errors.
 *
 * The document of a session is written twice: before and after the documents of its moments. In the first write, the
 * field `version` is empty, and the field `reach` covers both the old and the new moments. If a crash occurs between
 * the two writes, the recorder finds the session by its empty `version` and writes the session again. Writes become
 * visible only after a refresh.
 */
import { z } from 'zod';
import type { IndexedSession, IndexStatus, Moment, SessionNames } from '../../../search/search-index.ts';
import type { CompleteSession, WritingEngine } from '../engine.ts';
import { requireOk, patiently, put, remove, sendBulk, unfitOf, wasWritten, type Action } from './bulk.ts';
import { ServerError, type SearchServer } from './client.ts';
import { aliasOf, indexOf, openIndex } from './indices.ts';
import { documentId, momentDocument, sessionDocument } from './mapping.ts';
import type { ServerIndex } from './server-index.ts';
import { listIds } from './session-ids.ts';

export interface ServerWriterOptions {
  /** Returns the time in milliseconds since the epoch. */
  readonly nowMs?: () => number;
  /** Called before each step where a crash is possible. For tests. */
  readonly onStep?: (step: string) => void;
  /** Maximum time of retries while the server is overloaded, in milliseconds. */
  readonly patienceMs?: number;
  /** Maximum delay until new moments of a running session are visible, in milliseconds. */
  readonly refreshMs?: number;
  /** Delay until deleted documents are removed from the files, in milliseconds. */
  readonly expungeMs?: number;
}

/** A running session. */
interface Running {
  /** Number of moments of the session that this process has written. */
  readonly moments: number;
  /** Minimum version of the next write. */
  readonly stamp: number;
  /** Maximum number of moments that an earlier writer may have written. */
  readonly reach: number;
  readonly partial: boolean;
}

/** Known state of a session's document. */
interface Known {
  /** Version of the recording. */
  readonly version: string | undefined;
  readonly reach: number;
  /** Version of the next write. */
  readonly stamp: number;
}

const COMPACT_MS = 10 * 60_000;
const PATIENCE_MS = 60_000;
const REFRESH_MS = 500;
const EXPUNGE_MS = 90_000;
/** Maximum time during which refreshes may fail before `tidy` throws, in milliseconds. */
const UNFOUND_MS = 2000;
/** Moment (rows that were on the screen together) of a session without text. */
const NOTHING: Moment = { t0: 0, t1: 0, rows: [] };

const FOUND_DOCUMENT = z.object({
  found: z.boolean().default(false),
  _version: z.number().default(0),
  _source: z
    .object({ version: z.string().default(''), reach: z.number().default(0) })
    .default({ version: '', reach: 0 }),
});
const COUNTS = z.object({
  hits: z.object({ total: z.object({ value: z.number() }) }),
  aggregations: z.object({ partial: z.object({ doc_count: z.number() }) }),
});
const STORE = z.object({
  _all: z.object({ primaries: z.object({ store: z.object({ size_in_bytes: z.number() }) }) }),
});

/** Finds or creates the index. @throws ServerError, Error */
export async function openServerWriter(
  server: SearchServer,
  index: ServerIndex,
  options: ServerWriterOptions = {},
): Promise<ServerIndexWriter> {
  const writer = new ServerIndexWriter(server, index, await openIndex(server, index), options);
  // An earlier process may have exited before it removed all documents of deleted sessions.
  await writer.compact();
  return writer;
}

/** Writes an index with OpenSearch. */
export class ServerIndexWriter implements WritingEngine {
  readonly #server: SearchServer;
  readonly #index: ServerIndex;
  readonly #alias: string;
  /** Name of the index itself, because the alias may move to another index. */
  readonly #name: string;
  readonly #options: Required<ServerWriterOptions>;
  /** Sessions with a known state that are not written yet. */
  readonly #pending = new Map<string, Known>();
  readonly #added: CompleteSession[] = [];
  readonly #running = new Map<string, Running>();
  /** Error of the failing refreshes, and time of the first failure. */
  #unfound: { readonly error: unknown; readonly sinceMs: number } | undefined;
  #isClosed = false;
  #refreshing: NodeJS.Timeout | undefined;
  #expunging: NodeJS.Timeout | undefined;

  constructor(server: SearchServer, index: ServerIndex, name: string, options: ServerWriterOptions) {
    this.#server = server;
    this.#index = index;
    this.#alias = aliasOf(index);
    this.#name = name;
    this.#options = {
      nowMs: Date.now,
      onStep: () => undefined,
      patienceMs: PATIENCE_MS,
      refreshMs: REFRESH_MS,
      expungeMs: EXPUNGE_MS,
      ...options,
    };
  }

  async version(id: string): Promise<string | undefined> {
    const known = await this.#readState(id);
    this.#pending.set(id, known);
    return known.version;
  }

  add(session: CompleteSession): void {
    this.#added.push(session);
  }

  flush(): Promise<number> {
    return this.putAll(this.#added.splice(0));
  }

  /** Replaces the documents of each session. @returns the number of sessions that had changed */
  async putAll(sessions: readonly CompleteSession[]): Promise<number> {
    const fresh: (CompleteSession & { readonly known: Known; partial: boolean })[] = [];
    for (const session of sessions) {
      const { id } = session.doc.names;
      const known = this.#pending.get(id) ?? (await this.#readState(id));
      this.#pending.delete(id);
      this.#running.delete(id);
      if (session.doc.version === '' || known.version !== session.doc.version)
        fresh.push({
          ...session,
          moments: session.moments.length === 0 ? [NOTHING] : session.moments,
          known,
        });
    }
    if (fresh.length === 0) return 0;
    this.#options.onStep('beginning');
    const begun = await this.#bulk(
      fresh.map(({ doc: { names }, moments, known }) => {
        const reach = Math.max(known.reach, moments.length);
        return put(names, known.stamp, sessionDocument(names, { version: '', reach, partial: true }));
      }),
    );
    requireOk(begun);
    // Skip a session if another recorder started to read the session later than this recorder.
    const own = fresh.filter((_, at) => wasWritten(begun[at]));
    this.#options.onStep('begun');
    const owners = own.flatMap((session) => {
      const { moments, known } = session;
      return Array.from({ length: Math.max(known.reach, moments.length) }, () => session);
    });
    const written = await this.#bulk(
      own.flatMap(({ doc: { names }, moments, known }) => [
        ...moments.map((moment, k) => put(names, known.stamp, momentDocument(names, k, moment), k)),
        ...remove(names.id, known.stamp, moments.length, known.reach),
      ]),
    );
    // Continue with the other documents if the server rejects one.
    for (const [at, isUnfit] of unfitOf(written).entries()) {
      const session = owners[at];
      if (session !== undefined && isUnfit) session.partial = true;
    }
    this.#options.onStep('moments');
    const finished = own.map(({ doc: { names, version, listing, stoppedAt }, moments, partial, known }) => {
      const stopped = stoppedAt === undefined ? {} : { stopped: stoppedAt };
      const state = { version, reach: moments.length, partial, ...stopped };
      return put(names, known.stamp, sessionDocument(names, state, listing));
    });
    requireOk(await this.#bulk(finished));
    // Forget the sessions that are still in `#pending`. If one is written later, its state is read again.
    this.#pending.clear();
    this.#options.onStep('finished');
    await this.refresh();
    this.#options.onStep('refreshed');
    return fresh.length;
  }

  async append(
    names: SessionNames,
    moments: readonly Moment[],
    fresh: boolean,
    partial: boolean,
  ): Promise<void> {
    const { id } = names;
    const before = fresh ? undefined : this.#running.get(id);
    const touched = this.#options.nowMs();
    const place = before ?? (await this.#placeOf(id));
    const stamp = Math.max(place.stamp, touched);
    const from = place.moments;
    // Write at least one moment per session, because searches for words find only moments.
    const added = from === 0 && moments.length === 0 ? [NOTHING] : moments;
    const end = from + added.length;
    const reach = Math.max(place.reach, end);
    const state = { version: '', reach, owner: this.#index.owner, touched };
    const putSession = async (isPartial: boolean): Promise<boolean> => {
      const document = sessionDocument(names, { ...state, partial: isPartial });
      const statuses = await this.#bulk([put(names, stamp, document)]);
      requireOk(statuses);
      return wasWritten(statuses[0]);
    };
    const wasPartial = partial || place.partial;
    // Stop if another recorder with newer data has written the session.
    if (!(await putSession(wasPartial))) return;
    this.#options.onStep('appending');
    const written = await this.#bulk([
      ...added.map((moment, at) => put(names, stamp, momentDocument(names, from + at, moment), from + at)),
      ...remove(id, stamp, end, reach),
    ]);
    const isPartial = unfitOf(written).includes(true) || wasPartial;
    if (isPartial && !wasPartial) await putSession(true);
    this.#options.onStep('appended');
    this.#running.set(id, { moments: end, stamp, partial: isPartial, reach: 0 });
    this.#refreshSoon();
  }

  /** Returns the initial state of a running session that is written from its start. */
  async #placeOf(id: string): Promise<Running> {
    const { stamp, reach } = await this.#readState(id);
    return { moments: 0, stamp, reach, partial: false };
  }

  async remove(id: string): Promise<void> {
    const { version, reach, stamp } = await this.#readState(id);
    this.#running.delete(id);
    this.#pending.delete(id);
    if (version === undefined) return;
    requireOk(await this.#bulk(remove(id, stamp, 0, reach)));
    this.#options.onStep('cleared');
    requireOk(await this.#bulk([{ index: 'delete', session: id, stamp }]));
    this.#options.onStep('removed');
    this.#refreshSoon();
  }

  /** Does nothing, because the server merges automatically. @throws the error of refreshes that fail for too long */
  tidy(): boolean {
    if (this.#unfound !== undefined && this.#options.nowMs() - this.#unfound.sinceMs >= UNFOUND_MS)
      throw this.#unfound.error;
    return false;
  }

  /**
   * Removes deleted documents from the files in the background. The server retains deleted documents for its replicas,
   * and updates the retention every 30 seconds. For this reason, the merge starts later.
   */
  async compact(): Promise<void> {
    await this.refresh();
    this.#expungeLater();
  }

  /** Removes deleted documents from the files now. */
  async expunge(): Promise<void> {
    const index = encodeURIComponent(this.#name);
    for (const act of ['_flush?force=true', '_forcemerge?only_expunge_deletes=true'])
      await this.#server.ask({ method: 'POST', path: `/${index}/${act}`, timeoutMs: COMPACT_MS });
    // A refresh releases the old files.
    await this.refresh();
  }

  async ids(after: string, limit: number): Promise<readonly IndexedSession[]> {
    await this.check();
    await this.refresh();
    return listIds(this.#server, this.#index, after, limit, this.#options.nowMs());
  }

  async status(): Promise<IndexStatus> {
    const alias = encodeURIComponent(this.#alias);
    const counts = COUNTS.parse(
      await this.#server.ask({
        method: 'POST',
        path: `/${alias}/_search?allow_partial_search_results=false`,
        body: {
          size: 0,
          track_total_hits: true,
          query: { term: { what: 'session' } },
          aggs: { partial: { filter: { term: { partial: true } } } },
        },
      }),
    );
    const store = STORE.parse(
      await this.#server.ask({
        method: 'GET',
        path: `/${alias}/_stats/store?filter_path=_all.primaries.store.size_in_bytes`,
      }),
    );
    return {
      sessions: counts.hits.total.value,
      partial: counts.aggregations.partial.doc_count,
      bytes: store._all.primaries.store.size_in_bytes,
    };
  }

  async check(): Promise<void> {
    this.#expectName(await indexOf(this.#server, this.#alias));
    if (this.#unfound !== undefined) await this.#refreshOnce();
  }

  /** Makes all writes visible. */
  async refresh(): Promise<void> {
    clearTimeout(this.#refreshing);
    this.#refreshing = undefined;
    await patiently(this.#options.patienceMs, () => this.#refreshOnce());
  }

  /** Cancels pending work. */
  close(): void {
    this.#isClosed = true;
    clearTimeout(this.#refreshing);
    clearTimeout(this.#expunging);
    this.#server.close();
  }

  #refreshSoon(): void {
    this.#refreshing ??= setTimeout(() => {
      this.#refreshing = undefined;
      this.#refreshOnce().catch(() => {
        if (!this.#isClosed) this.#refreshSoon();
      });
    }, this.#options.refreshMs);
  }

  async #refreshOnce(): Promise<void> {
    try {
      await this.#server.ask({ method: 'POST', path: `/${encodeURIComponent(this.#alias)}/_refresh` });
      this.#unfound = undefined;
    } catch (error) {
      this.#unfound ??= { error, sinceMs: this.#options.nowMs() };
      throw error;
    }
  }

  #expungeLater(): void {
    this.#expunging ??= setTimeout(() => {
      this.#expunging = undefined;
      this.expunge().catch(() => {
        if (!this.#isClosed) this.#expungeLater();
      });
    }, this.#options.expungeMs);
  }

  #expectName(name: string | undefined): void {
    if (name !== this.#name) throw new Error(`${this.#name} is not the index any more`);
  }

  async #readState(id: string): Promise<Known> {
    const path = `/${encodeURIComponent(this.#alias)}/_doc/${encodeURIComponent(documentId(id))}?routing=${encodeURIComponent(id)}&_source_includes=version,reach`;
    const answer = await patiently(this.#options.patienceMs, () =>
      this.#server.ask({ method: 'GET', path }).catch((error: unknown) => {
        // A response without an error type means that only the document is missing. For a missing index, OpenSearch
        // also returns an error type.
        if (error instanceof ServerError && error.status === 404 && error.kinds.length === 0) return {};
        throw error;
      }),
    );
    const { found, _version, _source } = FOUND_DOCUMENT.parse(answer);
    const now = this.#options.nowMs();
    if (!found) return { version: undefined, reach: 0, stamp: now };
    return { ..._source, stamp: Math.max(now, _version + 1) };
  }

  #bulk(actions: readonly Action[]): Promise<readonly number[]> {
    const { patienceMs } = this.#options;
    const expectName = (index: string | undefined): void => this.#expectName(index);
    return sendBulk({ server: this.#server, alias: this.#alias, expectName, patienceMs }, actions);
  }
}
