/**
 * API for facts about a recording: its signature check, the user and the grant of the session, accesses of viewers to
 * the recording, and other activity of the user. The signature check runs on request.
 *
 * ```
 * /api/v1/recordings/:id/evidence    {evidence, session?, gaps, gapCount, parts, related, accesses?, events?,
 *                                     accessesIncomplete?, eventsIncomplete?}; view
 * ```
 *
 * Only viewers who may see all recordings get `accesses` and `events`, because these concern other recordings too.
 */
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { createLimiter } from '../../async/limiter.ts';
import { TailcastError } from '../../errors.ts';
import { DEFAULT_DAYS, type EventSearch } from '../events/event-query.ts';
import { describeEvidence } from '../evidence/check-evidence.ts';
import type { PublicKey } from '../evidence/signing-key.ts';
import type { Catalog } from '../library/catalog.ts';
import type { CatalogEntry } from '../library/catalog-entry.ts';
import { API_EVENT_TYPE } from '../../wire/recorder-api/api-event.ts';
import type { Recording } from '../../wire/recorder-api/recording.ts';
import type { Scope } from '../library/scope.ts';
import { listedRecording } from '../library/listed-recording.ts';
import type { RecordingStore } from '../store/store.ts';
import { STORE_READ_LIMITS } from './api-lists.ts';
import { signalOf } from './api-requests.ts';
import type { ViewerAccess } from './viewer-access.ts';
import { ownerOf } from './viewing.ts';

export interface EvidenceApiOptions {
  readonly access: Pick<ViewerAccess, 'viewer'>;
  readonly store: RecordingStore;
  readonly catalog: Pick<Catalog, 'list'>;
  readonly search: EventSearch;
  /** Public key of this recorder. */
  readonly ownKey: PublicKey;
  /** Public keys of trusted recorders. Map keys: key id. */
  readonly trusted: ReadonlyMap<string, PublicKey>;
  /** Returns the time in milliseconds since the epoch. */
  readonly nowMs: () => number;
  /** Finds the requested recording for a viewer, and records the access. */
  readonly find: (
    request: FastifyRequest,
    reply: FastifyReply,
  ) => Promise<{ readonly entry: CatalogEntry; readonly scope: Scope }>;
}

const MAX_RELATED = 10;
const MAX_EVENTS = 50;
const DAY_NS = 86_400_000_000_000n;
/** Time before and after a session, in nanoseconds. API events within this time count as part of the session. */
const AROUND_NS = 60_000_000_000n;
/**
 * Time from the start of a session during which API events are returned, in seconds. Later events of longer sessions
 * are omitted.
 */
const MAX_SPAN_SECONDS = 4 * 3600;

/** Adds the routes to `app`. */
export function addEvidenceApi(app: FastifyInstance, options: EvidenceApiOptions): void {
  const limiter = createLimiter({
    ...STORE_READ_LIMITS,
    full: () =>
      new TailcastError('SEARCH_BUSY', 'too many signature checks are running; try again in a moment'),
  });
  app.get('/api/v1/recordings/:id/evidence', async (request, reply) => {
    const { entry, scope } = await options.find(request, reply);
    const owner = ownerOf(await options.access.viewer(request.raw));
    const signal = signalOf(request, reply);
    return limiter.run(() => factsOf(entry, { scope, owner }, { ...options, signal }), signal, owner);
  });
}

interface Asking {
  readonly scope: Scope;
  readonly owner: string;
}

async function factsOf(
  entry: CatalogEntry,
  asking: Asking,
  options: EvidenceApiOptions & { readonly signal: AbortSignal },
): Promise<object> {
  const [known, related] = await Promise.all([
    describeEvidence(entry, options),
    findRelated(entry, asking, options.catalog),
  ]);
  const shared = asking.scope === 'everything' ? await findEvents(entry, options) : {};
  return { ...known, related, ...shared };
}

/** Finds other sessions of the same user or in the same pod, within a day. */
async function findRelated(
  { recording }: CatalogEntry,
  { scope, owner }: Asking,
  catalog: EvidenceApiOptions['catalog'],
): Promise<{ readonly caller: readonly Recording[]; readonly pod: readonly Recording[] }> {
  const at = BigInt(Date.parse(recording.startedAt)) * 1_000_000n;
  const near = { from: at - DAY_NS, to: at + DAY_NS, limit: MAX_RELATED + 1 };
  const { source, kubernetes } = recording;
  const caller = source.user === undefined ? { node: source.nodeId } : { user: source.user };
  const list = async (query: object): Promise<readonly Recording[]> =>
    (await catalog.list({ ...near, ...query }, scope, owner)).recordings
      .filter(({ id }) => id !== recording.id)
      .slice(0, MAX_RELATED)
      .map(listedRecording);
  return {
    caller: await list(caller),
    pod: kubernetes === undefined ? [] : await list({ namespace: kubernetes.namespace, pod: kubernetes.pod }),
  };
}

/** Stored events. The lists contain the newest events; `true` marks a list that may lack events. */
interface SharedFacts {
  readonly accesses: readonly unknown[];
  readonly accessesIncomplete?: boolean;
  readonly events: readonly unknown[];
  readonly eventsIncomplete?: boolean;
}

/**
 * Finds stored events: accesses to the recording, and API requests that the user of the session sent during the session
 * or within a minute of it.
 */
async function findEvents(
  { recording }: CatalogEntry,
  { search, nowMs, signal }: EvidenceApiOptions & { readonly signal: AbortSignal },
): Promise<SharedFacts> {
  const start = BigInt(Date.parse(recording.startedAt)) * 1_000_000n;
  const isOld = BigInt(Math.floor(nowMs())) * 1_000_000n - start > BigInt(DEFAULT_DAYS) * DAY_NS;
  const { durationSeconds = 0 } = recording;
  const seconds = Math.min(durationSeconds, MAX_SPAN_SECONDS);
  const end = start + BigInt(Math.ceil(seconds)) * 1_000_000_000n;
  const { user, tags } = recording.source;
  const who = user ?? tags?.[0];
  const [accesses, events] = await Promise.all([
    search.newest(
      {
        type: 'tailcast-recording-access',
        recording: recording.id,
        limit: MAX_EVENTS,
        ...(isOld ? {} : { from: start - AROUND_NS }),
      },
      signal,
    ),
    who === undefined
      ? { events: [], isPartial: false }
      : search.newest(
          {
            type: API_EVENT_TYPE,
            user: who,
            from: start - AROUND_NS,
            to: end + AROUND_NS,
            limit: MAX_EVENTS,
          },
          signal,
        ),
  ]);
  const read = (line: string): unknown => JSON.parse(line);
  return {
    accesses: accesses.events.map(read),
    ...(accesses.isPartial || isOld ? { accessesIncomplete: true } : {}),
    events: events.events.map(read),
    ...(events.isPartial || durationSeconds > MAX_SPAN_SECONDS ? { eventsIncomplete: true } : {}),
  };
}
