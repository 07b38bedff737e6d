/**
 * Store of access requests: the signed records of AccessRequest objects. A watch keeps all records in memory.
 * Each write contains the resource version that was read, so that concurrent decisions do not overwrite each
 * other.
 */
import { BoundedMap } from '../bounded-map.ts';
import { errorText, TailcastError } from '../errors.ts';
import type { Logger } from '../observe/logger.ts';
import { systemClock } from '../operator/clock.ts';
import { createInformer, type InformerSource } from '../operator/informer.ts';
import { KubeRefusal, type KubeClient } from '../operator/kube-client.ts';
import type { KubeObject } from '../operator/kube-object.ts';
import { accessRefused, ended, problemOf, unavailable } from './messages.ts';
import type { AccessRecord, RecordSeal } from './record.ts';
import { endsAccess } from './rules.ts';
import { ACCESS_REQUEST, idOf, newObject, refusedName, statusWith } from './request-object.ts';
import { untilAborted } from '../async/with-timeout.ts';

export interface RequestStoreDeps {
  readonly client: Pick<KubeClient, 'get' | 'list' | 'watch' | 'create' | 'patch' | 'remove'>;
  readonly seal: RecordSeal;
  readonly log: Logger;
  readonly unixMs: () => number;
  readonly monotonicMs: () => number;
  /** Aborts when the gateway stops. */
  readonly signal: AbortSignal;
  /** Timeout of a call to the API server, in milliseconds. */
  readonly callMs?: number;
}

/** Time for which the AccessRequest object of an ended request is kept. */
const KEPT_MS = 7 * 86_400_000;
const MAX_REMOVED = 50;
/** Maximum number of AccessRequest objects. */
const MAX_REQUESTS = 10_000;
/**
 * Maximum size of a new record, in characters. The API server accepts records of 65,536 characters
 * (`deploy/access/accessrequest.yaml`). The rest is reserved for decisions that are added later.
 */
const MAX_NEW_RECORD = 40_000;
/** Maximum time for which a record is used without confirmation by the API server. */
const FRESH_MS = 30_000;
const CALL_MS = 5_000;

interface Known {
  readonly record: AccessRecord;
  /** Name and uid of the object that contains the record; both are empty if the object was deleted. */
  readonly name: string;
  readonly uid: string;
  /** Monotonic time of the last confirmation by the API server. */
  readonly checkedMs: number;
}

/** Store of one gateway. Starts the watch at the first use. */
export class RequestStore {
  readonly #deps: RequestStoreDeps;
  readonly #known = new Map<string, Known>();
  /** Uids of the objects with which requests were created, by request id. */
  readonly #originals = new Map<string, string>();
  /** Uids of deleted objects. The response to a write may arrive after the watch has reported the deletion. */
  readonly #deleted = new BoundedMap<true>(2 * MAX_REQUESTS);
  readonly #byNode = new Map<string, Set<string>>();
  /**
   * Highest known revision of each request. Because of this map, an older signed record cannot replace a newer record.
   */
  readonly #revisions = new BoundedMap<number>(2 * MAX_REQUESTS);
  readonly #watchers = new Map<string, Set<(error: TailcastError) => void>>();
  readonly #answered = Promise.withResolvers<void>();
  #isStarted = false;
  #problem: string | undefined;
  #contactMs = 0;

  constructor(deps: RequestStoreDeps) {
    this.#deps = deps;
  }

  get all(): readonly AccessRecord[] {
    return Array.from(this.#known.values(), ({ record }) => record);
  }

  find(id: string): AccessRecord | undefined {
    return this.#known.get(id)?.record;
  }

  /** Returns the requests that a node has sent. */
  ofNode(nodeId: string): readonly AccessRecord[] {
    return [...(this.#byNode.get(nodeId) ?? [])].flatMap((id) => this.find(id) ?? []);
  }

  /** Calls `end` when the access that a request grants ends. @returns a function that stops watching */
  watch(id: string, end: (error: TailcastError) => void): () => void {
    const watchers = this.#watchers.get(id) ?? new Set();
    this.#watchers.set(id, watchers.add(end));
    return () => {
      watchers.delete(end);
      if (watchers.size === 0 && this.#watchers.get(id) === watchers) this.#watchers.delete(id);
    };
  }

  /**
   * Creates an AccessRequest object. Writes the signed record into the object only after the evidence is stored, so
   * that no gateway uses the record earlier. If this write fails, the object is removed and the evidence canceled.
   * @throws TailcastError `ACCESS_REQUEST_UNAVAILABLE`, and errors of `evidence.store`
   */
  async create(
    record: AccessRecord,
    evidence: { readonly store: () => Promise<void>; readonly cancel: () => Promise<unknown> },
    signal: AbortSignal,
  ): Promise<void> {
    const { client } = this.#deps;
    if (this.#known.size >= MAX_REQUESTS) throw unavailable(`there are ${MAX_REQUESTS} access requests`);
    if (JSON.stringify(record).length > MAX_NEW_RECORD)
      throw accessRefused('the rule has too many groups, namespaces or approvers for one request');
    const created = await this.#call(signal, (limit) =>
      client.create(ACCESS_REQUEST, newObject(record), limit),
    );
    const { uid = '', resourceVersion = '' } = created.metadata;
    let isRecorded = false;
    try {
      await evidence.store();
      isRecorded = true;
      if (!(await this.replace({ uid, version: resourceVersion }, record, signal)))
        throw new TailcastError('ACCESS_REQUEST_CONFLICT', record.id);
    } catch (error) {
      const isRemoved = await this.#call(this.#deps.signal, (limit) =>
        client.remove(ACCESS_REQUEST, { name: record.id }, { uid }, limit),
      ).then(
        () => true,
        () => false,
      );
      if (isRecorded && isRemoved) await evidence.cancel();
      throw error;
    }
  }

  /** Writes a record. @returns false if another gateway has changed the object in the meantime */
  async replace(
    { uid, version }: { readonly uid: string; readonly version: string },
    record: AccessRecord,
    signal: AbortSignal,
  ): Promise<boolean> {
    const { client, seal } = this.#deps;
    const status = statusWith(record, seal.seal(uid, record));
    const patch = { kind: 'merge', body: { metadata: { resourceVersion: version }, status } } as const;
    const reference = { name: record.id, subresource: 'status' } as const;
    try {
      await this.#call(signal, (limit) => client.patch(ACCESS_REQUEST, reference, patch, limit));
    } catch (error) {
      const { cause } = error instanceof TailcastError ? error : {};
      // another gateway may also have moved the record to another object
      if (cause instanceof KubeRefusal && (cause.conflict || cause.status === 404)) return false;
      throw error;
    }
    this.#put(record.id, uid, record);
    if (!this.#deleted.has(uid)) this.#originals.set(record.id, uid);
    if (isRefused(record)) await this.#move(record);
    return true;
  }

  /**
   * Repeats failed moves of refused records to new objects, forgets ended records that are not stored, and removes old
   * objects. Called regularly, so that a full store has space again without a new request.
   */
  async maintain(): Promise<void> {
    this.#removeOld();
    for (const [id, known] of this.#known) {
      if (this.#deps.signal.aborted) return;
      if (!isRefused(known.record)) continue;
      if (known.record.expiresMs <= this.#deps.unixMs()) {
        if (known.name === '') this.#forget(id, known);
      } else if (known.name !== refusedName(id) || this.#originals.has(id)) await this.#move(known.record);
    }
  }

  /**
   * Moves a denied or revoked record to an object with a new name. The signature of earlier, approved versions of the
   * record covers the uid of the old object. A restored copy of an old object is therefore invalid. The old object also
   * contains the refusal, and is deleted last. A failure or restart therefore never loses the refusal.
   */
  async #move(record: AccessRecord): Promise<void> {
    const { client, seal, signal, log } = this.#deps;
    const { id } = record;
    const name = refusedName(id);
    try {
      const { metadata } =
        (await this.#call(signal, (limit) => client.get(ACCESS_REQUEST, { name }, limit))) ??
        (await this.#call(signal, (limit) => client.create(ACCESS_REQUEST, newObject(record, name), limit)));
      const { uid = '' } = metadata;
      const patch = { kind: 'merge', body: { status: statusWith(record, seal.seal(uid, record)) } } as const;
      const status = { name, subresource: 'status' } as const;
      await this.#call(signal, (limit) => client.patch(ACCESS_REQUEST, status, patch, limit));
      // a patch that changes nothing causes no watch event
      this.#put(name, uid, record);
      const old = this.#originals.get(id);
      if (old === undefined) return;
      await this.#call(signal, (limit) => client.remove(ACCESS_REQUEST, { name: id }, { uid: old }, limit));
    } catch (error) {
      log.warn({ request: id, error: errorText(error) }, 'a refused access request has no new object yet');
    }
  }

  /** Reads a record from the API server. @throws TailcastError `ACCESS_REQUEST_UNKNOWN` */
  async read(
    id: string,
    signal: AbortSignal,
  ): Promise<{ readonly uid: string; readonly record: AccessRecord; readonly version: string }> {
    const found = await this.#get(id, signal);
    const uid = found?.metadata.uid ?? '';
    const record = found === undefined ? undefined : this.#open(found);
    if (record === undefined) throw new TailcastError('ACCESS_REQUEST_UNKNOWN', id);
    return { uid, record, version: found?.metadata.resourceVersion ?? '' };
  }

  /**
   * Reads a record from the API server again if the last confirmation by the watch is too old.
   * @throws TailcastError `ACCESS_REQUEST_UNAVAILABLE`
   */
  async refresh(id: string, signal: AbortSignal): Promise<void> {
    const now = this.#deps.monotonicMs();
    const checkedMs = this.#known.get(id)?.checkedMs ?? 0;
    if (now - Math.max(checkedMs, this.#contactMs) < FRESH_MS) return;
    const found = await this.#get(id, signal);
    const uid = this.#known.get(id)?.uid;
    if (uid !== found?.metadata.uid) this.#remove(id, uid);
    if (found !== undefined) this.#changed(found);
  }

  async #get(id: string, signal: AbortSignal): Promise<KubeObject | undefined> {
    const get = (name: string): Promise<KubeObject | undefined> =>
      this.#call(signal, (limit) => this.#deps.client.get(ACCESS_REQUEST, { name }, limit));
    return (await get(id)) ?? get(refusedName(id));
  }

  /** Calls the API server with a timeout. @throws TailcastError `ACCESS_REQUEST_UNAVAILABLE` */
  async #call<T>(signal: AbortSignal, call: (limit: AbortSignal) => Promise<T>): Promise<T> {
    try {
      return await call(AbortSignal.any([signal, this.#deps.signal, this.#timeout()]));
    } catch (error) {
      signal.throwIfAborted();
      throw unavailable(problemOf(error) ?? errorText(error), error);
    }
  }

  #timeout(): AbortSignal {
    return AbortSignal.timeout(this.#deps.callMs ?? CALL_MS);
  }

  /**
   * Starts the watch at the first call, and waits for its initial list.
   * @throws TailcastError `ACCESS_REQUEST_UNAVAILABLE`
   */
  async ready(signal: AbortSignal): Promise<void> {
    if (this.#contactMs > 0 && this.#problem === undefined) return;
    if (!this.#isStarted) this.#start();
    const timeout = this.#timeout();
    await Promise.race([this.#answered.promise, untilAborted(AbortSignal.any([signal, timeout]))]);
    signal.throwIfAborted();
    if (this.#problem !== undefined) throw unavailable(this.#problem);
    if (timeout.aborted && this.#contactMs === 0) throw unavailable('the API server does not respond');
  }

  #start(): void {
    this.#isStarted = true;
    const { client, log, signal, monotonicMs } = this.#deps;
    const contact = (): void => {
      this.#problem = undefined;
      this.#contactMs = Math.max(1, monotonicMs());
    };
    const source: InformerSource = {
      name: ACCESS_REQUEST.plural,
      list: async (stop) => {
        try {
          const answer = await client.list(ACCESS_REQUEST, {}, stop);
          contact();
          return answer;
        } catch (error) {
          this.#problem = problemOf(error) ?? this.#problem;
          if (this.#problem !== undefined) this.#answered.resolve();
          throw error;
        }
      },
      async *watch(resourceVersion, timeoutSeconds, stop) {
        const options = { resourceVersion, timeoutSeconds };
        for await (const event of client.watch(ACCESS_REQUEST, options, stop)) {
          if (event.kind !== 'error') contact();
          yield event;
        }
      },
    };
    const informer = createInformer({
      source,
      onChange: (before, after) => {
        if (before !== undefined && before.metadata.uid !== after?.metadata.uid) this.#removed(before);
        if (after !== undefined) this.#changed(after);
      },
      clock: systemClock,
      random: Math.random,
      log,
    });
    void informer.run(signal);
    void informer.synced.then(this.#answered.resolve);
  }

  #changed(object: KubeObject): void {
    const { name, uid = '' } = object.metadata;
    if (name === idOf(name)) this.#originals.set(name, uid);
    const record = this.#open(object);
    if (record === undefined) this.#remove(idOf(name), uid);
    else this.#put(name, uid, record);
  }

  #removed({ metadata: { name, uid = '' } }: KubeObject): void {
    this.#deleted.set(uid, true);
    if (this.#originals.get(name) === uid) this.#originals.delete(name);
    this.#remove(idOf(name), uid);
  }

  /** Returns the record of an object if a gateway signed it and no newer record is known. */
  #open({ metadata, ...object }: KubeObject): AccessRecord | undefined {
    const { uid = '', name } = metadata;
    const status = sealedIn(object['status']);
    const record = this.#deps.seal.open(uid, idOf(name), status);
    if (record === undefined) {
      if (status.record !== undefined)
        this.#deps.log.warn(
          { request: name },
          'an access request is ignored: no gateway with this key signed it',
        );
      return undefined;
    }
    const newest = this.#revisions.get(record.id) ?? 0;
    // the signature of an object that is being deleted stays valid, because the object keeps its uid until its
    // finalizers are removed
    if (metadata.deletionTimestamp !== undefined && !isRefused(record)) return undefined;
    if (record.revision >= newest) return record;
    this.#deps.log.error(
      { request: name },
      'an access request is ignored: its record was replaced by an older one',
    );
    return undefined;
  }

  #put(name: string, uid: string, record: AccessRecord): void {
    const { id, requester } = record;
    const newest = this.#revisions.get(id) ?? 0;
    const isDeleted = this.#deleted.has(uid);
    if (record.revision < newest || (isDeleted && !isRefused(record))) return;
    this.#revisions.set(id, record.revision);
    const object = isDeleted ? { name: '', uid: '' } : { name, uid };
    this.#known.set(id, { record, ...object, checkedMs: this.#deps.monotonicMs() });
    const ofNode = this.#byNode.get(requester.nodeId) ?? new Set();
    this.#byNode.set(requester.nodeId, ofNode.add(id));
    if (record.state === 'granted') return;
    this.#endAll(id, record);
    if (record.state === 'revoked' && record.expiresMs > this.#deps.unixMs())
      for (const other of this.all) if (endsAccess(record, other)) this.#endAll(other.id, record);
  }

  /**
   * Removes the record of a deleted object from memory. The record of a denied or revoked request stays until its end,
   * and `maintain` stores it again.
   */
  #remove(id: string, uid: string | undefined): void {
    const known = this.#known.get(id);
    if (known === undefined || known.uid !== uid) return;
    if (isRefused(known.record) && known.record.expiresMs > this.#deps.unixMs())
      this.#known.set(id, { ...known, name: '', uid: '' });
    else this.#forget(id, known);
  }

  #forget(id: string, known: Known): void {
    if (this.#known.get(id) !== known) return;
    const { nodeId } = known.record.requester;
    this.#known.delete(id);
    const ofNode = this.#byNode.get(nodeId);
    ofNode?.delete(id);
    if (ofNode?.size === 0) this.#byNode.delete(nodeId);
    this.#endAll(id, undefined);
  }

  #endAll(id: string, record: AccessRecord | undefined): void {
    for (const end of this.#watchers.get(id) ?? []) end(ended(record, record?.id ?? id));
  }

  #removeOld(): void {
    const { client, unixMs, signal, log } = this.#deps;
    const before = unixMs() - KEPT_MS;
    const old = [...this.#known.values()]
      .filter(({ name, record }) => name !== '' && record.expiresMs < before)
      .slice(0, MAX_REMOVED);
    for (const { name, uid } of old)
      client
        .remove(ACCESS_REQUEST, { name }, { uid }, signal)
        .catch((error: unknown) => log.debug({ error: errorText(error) }, 'an old access request stays'));
  }
}

function isRefused({ state }: AccessRecord): boolean {
  return state === 'denied' || state === 'revoked';
}

function sealedIn(status: unknown): { readonly record?: string; readonly signature?: string } {
  if (typeof status !== 'object' || status === null) return {};
  const { record, signature } = { record: undefined, signature: undefined, ...status };
  return typeof record === 'string' && typeof signature === 'string' ? { record, signature } : {};
}
