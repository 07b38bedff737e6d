/**
 * Finds recordings. There is no database: what is in the store and what still is in the spool is the truth, and every
 * answer is derived from it. Only what a list shows is kept in memory, and only as much as the cache may hold.
 */
import { errorText } from '../errors.ts';
import { MAX_HEADER_LENGTH } from '../wire/asciicast/header.ts';
import { parseHead, type CastHead } from './cast-head.ts';
import { readCastTail } from './cast-tail.ts';
import { describeHead } from './finisher.ts';
import type { LiveRecording } from './ingest.ts';
import type { Recording, RecordingKind, RecordingState, ResizeOrder } from './recording.ts';
import { parseSidecar, type Sidecar } from './sidecar.ts';
import {
  formatTime,
  parseRecordingId,
  parseTime,
  recordingId,
  recordingKey,
  type RecordingKey,
} from './store/key.ts';
import type { ObjectKind, ObjectStat, RecordingStore } from './store/store.ts';

/** What to list. Texts must be equal, except `text`, which must occur. */
export interface CatalogQuery {
  /** Searched in command, user, nodes, pod, namespace, container and id, without regard to case. */
  readonly text?: string;
  /** Name or id of the source or the destination. */
  readonly node?: string;
  readonly user?: string;
  readonly tag?: string;
  readonly namespace?: string;
  readonly pod?: string;
  readonly container?: string;
  readonly kind?: RecordingKind;
  readonly state?: RecordingState;
  /** Nanoseconds since the epoch: not before `from`, before `to`. */
  readonly from?: bigint;
  readonly to?: bigint;
  readonly limit: number;
  /** `next` of the page before. */
  readonly cursor?: string;
}

export interface CatalogPage {
  /** Newest first. May be shorter than `limit` although there is a `next`. */
  readonly recordings: readonly Recording[];
  readonly next?: string;
}

/** A recording and where its bytes are. */
export interface CatalogEntry {
  readonly recording: Recording;
  readonly key: RecordingKey;
  readonly resizeOrder: ResizeOrder;
  /** Undefined when it is in the store. */
  readonly live: LiveRecording | undefined;
  /** Changes when the cast does; undefined while it grows. */
  readonly version: string | undefined;
}

export interface Catalog {
  list(query: CatalogQuery): Promise<CatalogPage>;
  /** @returns undefined when there is no such recording, whatever `id` is. */
  find(id: string): Promise<CatalogEntry | undefined>;
  /** Something was put into the store by this process. */
  changed(): void;
}

export interface CatalogOptions {
  readonly store: RecordingStore;
  readonly live: () => readonly LiveRecording[];
  /** How long a listing of the store may be used: how late recordings of other writers show. */
  readonly refreshMs: number;
  /** Descriptions kept in memory. */
  readonly maxCached: number;
  /** Milliseconds of a monotonic clock. */
  readonly now: () => number;
}

interface Candidate {
  readonly key: RecordingKey;
  readonly hasSidecar: boolean;
  /** Fixed-width time, then node: sorts by time. */
  readonly order: string;
}

/** Recordings described for one page at most; then the page ends and says where to go on. */
const MAX_SCANNED = 5000;
const SCAN_BATCH = 32;

/** One per store. */
export function createCatalog(options: CatalogOptions): Catalog {
  const { store } = options;
  const describe = createDescriber(options);
  let listing: { readonly at: number; readonly candidates: Promise<readonly Candidate[]> } | undefined;

  function candidates(): Promise<readonly Candidate[]> {
    if (listing === undefined || options.now() - listing.at >= options.refreshMs) {
      const fresh = store.list().then((found) => found.map(asCandidate).toSorted(newestFirst));
      listing = { at: options.now(), candidates: fresh };
      // a failed listing is not kept
      fresh.catch(() => {
        listing = undefined;
      });
    }
    return listing.candidates;
  }

  return {
    async list(query) {
      // NOTE: live ones first: a recording that moves into the store meanwhile is then in both, never in none
      const live = new Map(options.live().map((recording) => [recording.recording.id, recording]));
      const stored = (await candidates()).filter(({ key }) => !live.has(recordingId(key)));
      const all = [
        ...[...live.values()].map((entry) => asCandidate({ key: entry.key, hasSidecar: false })),
        ...stored,
      ]
        .filter((candidate) => isInRange(candidate, query))
        .toSorted(newestFirst);
      const recordings: Recording[] = [];
      for (let start = 0; start < all.length && start < MAX_SCANNED; start += SCAN_BATCH) {
        const batch = all.slice(start, start + SCAN_BATCH);
        const described = await Promise.all(
          batch.map(async (candidate) => {
            const current = live.get(recordingId(candidate.key));
            return current?.recording ?? (await describe(candidate.key, candidate.hasSidecar))?.recording;
          }),
        );
        for (const [index, recording] of described.entries()) {
          if (recording === undefined || !matches(recording, query)) continue;
          recordings.push(recording);
          const isLast = start + index + 1 >= all.length;
          if (recordings.length >= query.limit)
            return isLast ? { recordings } : { recordings, next: recording.id };
        }
      }
      const scanned = all[MAX_SCANNED - 1];
      return scanned === undefined || all.length <= MAX_SCANNED
        ? { recordings }
        : { recordings, next: recordingId(scanned.key) };
    },
    async find(id) {
      const key = parseRecordingId(id);
      if (key === undefined) return undefined;
      const live = options.live().find((candidate) => candidate.recording.id === id);
      if (live !== undefined) {
        return { recording: live.recording, key, resizeOrder: live.resizeOrder, live, version: undefined };
      }
      return describe(key, (await store.stat(key, 'sidecar')) !== undefined);
    },
    changed() {
      listing = undefined;
    },
  };
}

type Describe = (key: RecordingKey, hasSidecar: boolean) => Promise<CatalogEntry | undefined>;

/** Describes stored recordings; what cannot be read is described as damaged. Cached by length and time of the cast. */
function createDescriber({ store, maxCached }: CatalogOptions): Describe {
  const cache = new Map<string, CatalogEntry>();
  return async (key, hasSidecar) => {
    const id = recordingId(key);
    const stat = await store.stat(key, 'cast');
    if (stat === undefined) return undefined;
    const version = `${stat.bytes.toString(36)}-${Math.floor(stat.modifiedAtMs).toString(36)}${hasSidecar ? 's' : ''}`;
    const cached = cache.get(id);
    if (cached?.version === version) return cached;
    const entry = await describeStored(store, key, stat, version, hasSidecar);
    const [oldest] = cache.keys();
    if (cache.size >= maxCached && oldest !== undefined) cache.delete(oldest);
    cache.set(id, entry);
    return entry;
  };
}

async function describeStored(
  store: RecordingStore,
  key: RecordingKey,
  stat: ObjectStat,
  version: string,
  hasSidecar: boolean,
): Promise<CatalogEntry> {
  const damaged = (problem: string): CatalogEntry => ({
    recording: describeDamaged(key, stat.bytes, problem),
    key,
    resizeOrder: 'columnsFirst',
    live: undefined,
    version,
  });
  try {
    const sidecar = hasSidecar
      ? parseSidecar(await readText(store, key, 'sidecar', MAX_SIDECAR_BYTES))
      : undefined;
    if (sidecar !== undefined) {
      const recording = describeFromSidecar(sidecar, key, stat.bytes);
      return { recording, key, resizeOrder: sidecar.cast.resizeOrder, live: undefined, version };
    }
    const head = parseHead(await readFirstLine(store, key, stat.bytes));
    if (head === undefined) return damaged('the header line cannot be read');
    const foreign = await describeForeign(store, key, head, stat.bytes);
    const recording = hasSidecar ? { ...foreign, problem: 'the sidecar cannot be read' } : foreign;
    return { recording, key, resizeOrder: head.resizeOrder, live: undefined, version };
  } catch (error) {
    return damaged(`the recording cannot be read: ${errorText(error)}`);
  }
}

const MAX_SIDECAR_BYTES = 8_388_608;

/** Id, key and length are those of the cast that is there, whatever the sidecar says. */
function describeFromSidecar({ recording, cast }: Sidecar, key: RecordingKey, bytes: number): Recording {
  const changed = cast.bytes !== bytes;
  return {
    ...recording,
    id: recordingId(key),
    key: recordingKey(key),
    bytes,
    ...(changed ? { problem: 'the cast is not as long as it was when it was stored' } : {}),
  };
}

/** A recording without a sidecar: of the reference, or copied in. */
async function describeForeign(
  store: RecordingStore,
  key: RecordingKey,
  head: CastHead,
  bytes: number,
): Promise<Recording> {
  const read = async (start: number, end: number): Promise<Uint8Array> =>
    Buffer.concat(await Array.fromAsync(store.read(key, 'cast', { start, end })));
  const { durationSeconds, endsWhole } = await readCastTail(read, bytes, head.version);
  return {
    ...describeHead(key, head),
    destination: { node: head.destination.node, nodeId: head.destination.nodeId || key.nodeId },
    state: endsWhole ? 'closed' : 'interrupted',
    ...(durationSeconds === undefined ? {} : { durationSeconds }),
    bytes,
    ...(endsWhole ? {} : { problem: 'the recording ends inside of a line' }),
  };
}

function describeDamaged(key: RecordingKey, bytes: number, problem: string): Recording {
  return {
    ...describeHead(key, {
      version: 2,
      width: 0,
      height: 0,
      kind: 'unknown',
      source: { node: '', nodeId: '' },
      destination: { node: '', nodeId: key.nodeId },
      resizeOrder: 'columnsFirst',
    }),
    state: 'damaged',
    bytes,
    problem,
  };
}

async function readFirstLine(store: RecordingStore, key: RecordingKey, bytes: number): Promise<string> {
  const parts: Uint8Array[] = [];
  const range = { start: 0, end: Math.min(bytes, MAX_HEADER_LENGTH) };
  for await (const chunk of store.read(key, 'cast', range)) {
    const end = chunk.indexOf(0x0a);
    parts.push(end < 0 ? chunk : chunk.subarray(0, end));
    if (end >= 0) break;
  }
  return Buffer.concat(parts).toString();
}

async function readText(
  store: RecordingStore,
  key: RecordingKey,
  kind: ObjectKind,
  maxBytes: number,
): Promise<string> {
  const chunks = await Array.fromAsync(store.read(key, kind, { start: 0, end: maxBytes }));
  return Buffer.concat(chunks).toString();
}

function asCandidate({ key, hasSidecar }: Omit<Candidate, 'order'>): Candidate {
  return { key, hasSidecar, order: orderOf(key) };
}

function orderOf({ nodeId, time }: RecordingKey): string {
  return `${formatTime(parseTime(time) ?? 0n)} ${nodeId}`;
}

function newestFirst(left: Candidate, right: Candidate): number {
  if (left.order === right.order) return 0;
  return left.order < right.order ? 1 : -1;
}

function isInRange({ key, order }: Candidate, { from, to, cursor }: CatalogQuery): boolean {
  const after = cursor === undefined ? undefined : parseRecordingId(cursor);
  if (after !== undefined && order >= orderOf(after)) return false;
  const time = parseTime(key.time) ?? 0n;
  return (from === undefined || time >= from) && (to === undefined || time < to);
}

function matches(recording: Recording, query: CatalogQuery): boolean {
  const { source, destination, kubernetes } = recording;
  const nodes = [source.node, source.nodeId, destination.node, destination.nodeId];
  const allows = (wanted: string | undefined, ...found: readonly (string | undefined)[]): boolean =>
    wanted === undefined || found.includes(wanted);
  return (
    allows(query.node, ...nodes) &&
    allows(query.user, source.user) &&
    allows(query.tag, ...(source.tags ?? [])) &&
    allows(query.namespace, kubernetes?.namespace) &&
    allows(query.pod, kubernetes?.pod) &&
    allows(query.container, kubernetes?.container) &&
    allows(query.kind, recording.kind) &&
    allows(query.state, recording.state) &&
    containsText(recording, nodes, query.text)
  );
}

function containsText(recording: Recording, nodes: readonly string[], text: string | undefined): boolean {
  if (text === undefined || text === '') return true;
  const { id, command, source, kubernetes, problem } = recording;
  const searched = [
    id,
    command,
    problem,
    source.user,
    ...(source.tags ?? []),
    ...nodes,
    kubernetes?.namespace,
    kubernetes?.pod,
    kubernetes?.container,
  ];
  const wanted = text.toLowerCase();
  return searched.some((value) => value?.toLowerCase().includes(wanted) === true);
}
