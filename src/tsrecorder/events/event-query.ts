/** Finds events in stored and pending batches, newest first. */
import { z } from 'zod';
import { TailcastError } from '../../errors.ts';
import type { Trust } from '../../wire/recorder-api/recording-status.ts';
import { batchPrefix, batchTime, MAX_BATCH_BYTES, readBatch } from '../evidence/signed-batch.ts';
import type { PublicKey } from '../evidence/signing-key.ts';
import { QUERY_LIMIT, QUERY_TEXT, QUERY_TIME } from '../library/catalog-query.ts';
import { readJsonObject, spliceMembers, type JsonObjectText } from '../library/json-members.ts';
import { createLoopTurns, type LoopTurns } from '../../async/loop-turns.ts';
import { listLimited, OVERSIZED, readLimited, type DocumentStore } from '../store/document-store.ts';
import type { EventBatches, ReadWaiting } from './event-batches.ts';

/**
 * Query parameters of a list of events. `text` must be a substring of the event's JSON. Each other filter must equal a
 * value of the event.
 */
export const EVENT_QUERY = z.strictObject({
  limit: QUERY_LIMIT,
  /** `next` of the previous page. */
  cursor: QUERY_TEXT,
  text: QUERY_TEXT,
  type: QUERY_TEXT,
  /** Login of the caller, or a tag of the caller's tailnet node. */
  user: QUERY_TEXT,
  /** Name or id of the source or destination tailnet node. */
  node: QUERY_TEXT,
  cluster: QUERY_TEXT,
  namespace: QUERY_TEXT,
  resource: QUERY_TEXT,
  verb: QUERY_TEXT,
  name: QUERY_TEXT,
  /** Time range: `from` is inclusive (default: 31 days before `to`), `to` is exclusive (default: now). */
  from: QUERY_TIME,
  to: QUERY_TIME,
});

export interface EventQuery extends Readonly<z.output<typeof EVENT_QUERY>> {
  /** Id of the recording that a viewer accessed. */
  readonly recording?: string;
}

export interface EventPage {
  /**
   * Events as JSON texts, newest first. Stored events have the additional fields of a {@link Trust}. Events in the
   * spool of this recorder have no trust level.
   */
  readonly events: readonly string[];
  readonly next?: string;
  /** Names of skipped batches and days: a batch is skipped if it is too large, a day if it has too many batches. */
  readonly skipped: readonly string[];
}

/** The newest events that match a query. */
export interface NewestEvents {
  /** Events as in an {@link EventPage}. */
  readonly events: readonly string[];
  /** True if further events match, or if batches were not read. */
  readonly isPartial: boolean;
}

/** Search for events in stored and pending batches. */
export type EventSearch = ReturnType<typeof createEventSearch>;

/**
 * Limits of one search. They apply to batches with a trusted signature, and separately to all other batches, because
 * anyone with write access to the store can add many batches.
 */
interface ScanLimits {
  readonly batches: number;
  readonly bytes: number;
  readonly ms: number;
}

/** Limits for one page. A page that reaches a limit ends with a cursor. */
const PAGE_LIMITS: ScanLimits = { batches: 200, bytes: 64 * 1024 ** 2, ms: Infinity };
/** Limits for {@link EventSearch.newest}, which returns a single page. The viewer waits for the result. */
const NEWEST_LIMITS: ScanLimits = { batches: 20_000, bytes: 512 * 1024 ** 2, ms: 3_000 };
/**
 * Maximum number of batches of a day. A day with more batches is skipped. A recorder writes at most a few thousand
 * batches per day.
 */
const MAX_LISTED = 100_000;
/** Number of lines between two turns of the event loop. */
const LINES_PER_TURN = 100;
const DAY_MS = 86_400_000;
/** Default and maximum length of the time range, in days. */
export const DEFAULT_DAYS = 31;
const MAX_DAYS = 400;
/** Maximum duration of a batch, in nanoseconds. */
const LONGEST_BATCH_NS = 120_000_000_000n;

interface EventSource {
  readonly store: DocumentStore;
  readonly batches: Pick<EventBatches, 'waiting'>;
  readonly trusted: ReadonlyMap<string, PublicKey>;
  readonly nowMs: () => number;
  readonly monotonicMs: () => number;
}

/** An event, or the end of a search that reached a limit. */
interface Scanned {
  /** Undefined at the end of the search. */
  readonly event: string | undefined;
  /** True if a trusted recorder signed the event, or if it is in the spool of this recorder. */
  readonly isTrusted: boolean;
  readonly cursor: string;
}

/**
 * Creates the search.
 *
 * @param trusted public keys of the trusted recorders, with key ids as map keys
 * @param nowMs returns milliseconds since the epoch
 * @param onOversized called with the name of each batch or day that is skipped
 * @param monotonicMs returns the time of a monotonic clock, in milliseconds
 */
export function createEventSearch(
  store: DocumentStore,
  batches: Pick<EventBatches, 'waiting'>,
  trusted: ReadonlyMap<string, PublicKey>,
  nowMs: () => number,
  onOversized: (name: string) => void,
  monotonicMs: () => number = () => performance.now(),
) {
  const source = { store, batches, trusted, nowMs, monotonicMs };

  return {
    /** Finds one page. @throws TailcastError `USAGE` if the cursor is not valid; the reason of `signal` */
    async find(query: EventQuery, signal?: AbortSignal): Promise<EventPage> {
      const events: string[] = [];
      const skipped: string[] = [];
      const skip = (name: string): void => {
        skipped.push(name);
        onOversized(name);
      };
      for await (const { event, cursor } of scan(source, query, PAGE_LIMITS, skip, signal)) {
        if (event === undefined || events.length >= query.limit) return { events, skipped, next: cursor };
        events.push(event);
      }
      return { events, skipped };
    },

    /**
     * Finds the newest events. The limit of the query applies to trusted events, and separately to all other events.
     * @throws the reason of `signal`
     */
    async newest(query: EventQuery, signal?: AbortSignal): Promise<NewestEvents> {
      const events: string[] = [];
      const counts = { trusted: 0, others: 0 };
      let isPartial = false;
      const skip = (name: string): void => {
        isPartial = true;
        onOversized(name);
      };
      for await (const { event, isTrusted } of scan(source, query, NEWEST_LIMITS, skip, signal)) {
        const kind = isTrusted ? 'trusted' : 'others';
        const isFull = counts[kind] >= query.limit;
        if (event === undefined || isFull) isPartial = true;
        if (event === undefined || (isFull && isTrusted)) break;
        if (isFull) continue;
        counts[kind] += 1;
        events.push(event);
      }
      return { events, isPartial };
    },
  };
}

/** Yields the matching events, newest first. A search that reaches a limit ends with an item without an event. */
async function* scan(
  source: EventSource,
  query: EventQuery,
  limits: ScanLimits,
  skip: (name: string) => void,
  signal: AbortSignal | undefined,
): AsyncGenerator<Scanned> {
  const position = parseCursor(query.cursor);
  const waiting = await source.batches.waiting();
  const turns = createLoopTurns(undefined, LINES_PER_TURN);
  const budget = createBudget(limits);
  for await (const name of namesOf(source, query, waiting, skip)) {
    signal?.throwIfAborted();
    if (position !== undefined && name > position.name) continue;
    if (budget.isOver()) {
      yield { event: undefined, isTrusted: false, cursor: `${name}#${Number.MAX_SAFE_INTEGER}` };
      return;
    }
    const begin = source.monotonicMs();
    const batch = await readText(source, name, waiting.get(name));
    if (batch === undefined) {
      skip(name);
      budget.spend(false, MAX_BATCH_BYTES, source.monotonicMs() - begin);
      continue;
    }
    const { text, trust } = batch;
    const isTrusted = (trust?.trust ?? 'verified') === 'verified';
    const last = name === position?.name ? Math.min(position.end, text.length) : text.length;
    for await (const { object, end } of eventsOf(text, last, query, turns))
      yield { event: withTrust(object, trust), isTrusted, cursor: `${name}#${end}` };
    budget.spend(isTrusted, text.length, source.monotonicMs() - begin);
  }
}

function createBudget(limits: ScanLimits): {
  isOver(): boolean;
  spend(isTrusted: boolean, bytes: number, ms: number): void;
} {
  const trusted = { batches: 0, bytes: 0, ms: 0 };
  const others = { batches: 0, bytes: 0, ms: 0 };
  return {
    isOver: () =>
      [trusted, others].some(
        ({ batches, bytes, ms }) => batches >= limits.batches || bytes >= limits.bytes || ms >= limits.ms,
      ),
    spend(isTrusted, bytes, ms) {
      const use = isTrusted ? trusted : others;
      use.batches += 1;
      use.bytes += bytes;
      use.ms += ms;
    },
  };
}

/** Yields the names of batches, newest first. Each day is listed on demand. */
async function* namesOf(
  { store, nowMs }: EventSource,
  query: EventQuery,
  waiting: ReadonlyMap<string, ReadWaiting>,
  skip: (name: string) => void,
): AsyncGenerator<string> {
  const to = query.to === undefined ? nowMs() + DAY_MS : Number(query.to / 1_000_000n);
  const from =
    query.from === undefined ? to - DEFAULT_DAYS * DAY_MS : Number(query.from / 1_000_000n) - DAY_MS;
  for (let day = to; day > Math.max(from, to - MAX_DAYS * DAY_MS); day -= DAY_MS) {
    const prefix = batchPrefix(new Date(day).toISOString().slice(0, 10));
    const unstored = [...waiting.keys()].filter((name) => name.startsWith(prefix));
    const stored = await listLimited(store, prefix, MAX_LISTED);
    if (stored === OVERSIZED) skip(prefix);
    yield* [...new Set([...(stored === OVERSIZED ? [] : stored), ...unstored])]
      .filter((name) => isInRange(name, query))
      .toSorted()
      .toReversed();
  }
}

async function readText(
  { store, trusted }: EventSource,
  name: string,
  readWaiting: ReadWaiting | undefined,
): Promise<{ readonly text: string; readonly trust?: Trust } | undefined> {
  const waiting = await readWaiting?.();
  if (waiting !== undefined) return { text: waiting };
  const content = await readLimited(store, name, MAX_BATCH_BYTES);
  if (content === OVERSIZED) return undefined;
  return readBatch(name, content ?? new Uint8Array(), trusted);
}

/** Yields the matching events before offset `last`, newest first, and the offset where the line of each event ends. */
async function* eventsOf(
  text: string,
  last: number,
  query: EventQuery,
  turns: LoopTurns,
): AsyncGenerator<{ readonly object: JsonObjectText; readonly end: number }> {
  let end = last;
  for (let start; end > 0; end = start) {
    if (turns.isDue()) await turns.turn();
    start = end < 2 ? 0 : text.lastIndexOf('\n', end - 2) + 1;
    const event = text.slice(start, end - 1);
    const object = includesText(event, query) ? readJsonObject(event) : undefined;
    if (object !== undefined && matches(object, query)) yield { object, end };
  }
}

/** @throws TailcastError `USAGE` if the cursor did not come from the field `next` of a page */
function parseCursor(
  cursor: string | undefined,
): { readonly name: string; readonly end: number } | undefined {
  if (cursor === undefined) return undefined;
  const [, name, end] = /^([^#]+)#(\d{1,16})$/.exec(cursor) ?? [];
  // Report an error instead of returning the first page, because a client would then never reach the later pages.
  if (name === undefined || batchTime(name) === undefined)
    throw new TailcastError('USAGE', 'the cursor is not valid: start without a cursor');
  return { name, end: Number(end) };
}

function isInRange(name: string, { from, to }: EventQuery): boolean {
  const time = batchTime(name);
  if (time === undefined) return false;
  return (from === undefined || time + LONGEST_BATCH_NS >= from) && (to === undefined || time < to);
}

/** Returns an event with its trust fields, which replace fields of the same name. */
function withTrust(object: JsonObjectText, of: Trust | undefined): string {
  if (of === undefined) return object.text;
  const { trust, trustReason = '' } = of;
  const members = { trust, ...(trust === 'verified' ? {} : { trustReason }) };
  return spliceMembers(
    object,
    new Map(Object.entries(members).map(([name, value]) => [name, JSON.stringify(value)])),
  );
}

function includesText(line: string, { text }: EventQuery): boolean {
  return text === undefined || line.toLowerCase().includes(text.toLowerCase());
}

function matches({ value }: JsonObjectText, query: EventQuery): boolean {
  const event = memberOf(value, 'event');
  if (event === undefined || !isAtTime(event, query)) return false;
  const kubernetes = memberOf(event, 'kubernetes');
  const source = memberOf(event, 'source');
  const destination = memberOf(event, 'destination');
  const nodes = [source, destination].flatMap((at) => [at?.get('node'), at?.get('nodeID')]);
  const found: readonly (readonly [string | undefined, readonly unknown[]])[] = [
    [query.type, [event.get('type')]],
    [query.user, [source?.get('nodeUser'), source?.get('nodeTags')].flat()],
    [query.node, nodes],
    [query.cluster, [event.get('cluster')]],
    [query.namespace, [kubernetes?.get('Namespace')]],
    [query.resource, [kubernetes?.get('Resource')]],
    [query.verb, [kubernetes?.get('Verb')]],
    [query.name, [kubernetes?.get('Name')]],
    [query.recording, [event.get('recording')]],
  ];
  return found.every(([wanted, values]) => wanted === undefined || values.includes(wanted));
}

/** True if the event is within the time range. The timestamps of events are in seconds. */
function isAtTime(event: ReadonlyMap<string, unknown>, { from, to }: EventQuery): boolean {
  const seconds = event.get('timestamp');
  if (typeof seconds !== 'number' || !Number.isSafeInteger(seconds))
    return from === undefined && to === undefined;
  const time = BigInt(seconds) * 1_000_000_000n;
  return (from === undefined || time + 1_000_000_000n > from) && (to === undefined || time < to);
}

function memberOf(
  value: ReadonlyMap<string, unknown> | undefined,
  name: string,
): ReadonlyMap<string, unknown> | undefined {
  const member = value?.get(name);
  return typeof member === 'object' && member !== null && !Array.isArray(member)
    ? new Map(Object.entries(member))
    : undefined;
}
