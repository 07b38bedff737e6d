/**
 * The read API: lists, recordings, and the page with the player. Routes are `GET` unless stated otherwise.
 *
 * ```
 * /api/v1/recordings                 {recordings, next?, search?: true if search is available, noRuleFor?: name of a
 *                                    viewer without a matching rule}; limit, cursor, text,
 *                                    node, user, tag, cluster, namespace, pod, container, kind, state, result,
 *                                    trust, from, to (RFC 3339), sort (newest; with an index: oldest, longest, largest)
 * /api/v1/thumbnails                 {thumbnails: {[id]: rows}}; ids, separated by commas: see screen/thumbnail.ts.
 *                                    A missing thumbnail may exist after some seconds
 * /api/v1/recordings/:id             one recording
 * /api/v1/recordings/:id/cast        asciicast; Range, ETag; ?normalise=1 adapted for players; ?follow=1 continues
 *                                    until the session ends
 * /api/v1/recordings/:id/playback    play index: see screen/play-index.ts; 202 {progress} during its build;
 *                                    ?frame=N screen at a keyframe, a JSON string
 * /api/v1/recordings/:id/transcript  {version, rows: [[seconds, text]], isPartial}: see search/transcript.ts;
 *                                    202 {progress} during its build
 *     ?view=1 on the four routes above: sent by a player. Repeated requests cause only one access event
 * /api/v1/recordings/:id/evidence    facts and the result of the signature check: see api-evidence.ts
 * /api/v1/recordings/:id/live        the cast over a WebSocket: see live-socket.ts
 * /api/v1/recordings/:id/sidecar     sidecar of the first upload of the session
 * /api/v1/recordings/:id/notes       annotations of the session, one JSON object per line
 * /api/v1/recordings/:id/review      comments, tags and reviewer: see api-reviews.ts
 * /api/v1/recordings/:id/orders      {isPossible, mayGive, isModerated}; POST …/orders/end: see api-orders.ts
 * /api/v1/events                     {events, next?, skipped?}; limit, cursor, text, type, user, node, cluster,
 *                                    namespace, resource, verb, name, from, to
 * /api/v1/search  …/search/facets    /api/v1/index… and /api/v1/recordings/:id/search: see api-search.ts, api-index.ts
 * /api/v1/searches                   saved searches: see api-saved-searches.ts
 * /healthz  /readyz                  liveness; readiness of the store
 * /                                  the player
 * ```
 */
import { Readable } from 'node:stream';
import { createGunzip } from 'node:zlib';
import fastifyStatic from '@fastify/static';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { z } from 'zod';
import { forEachConcurrent } from '../../async/for-each-concurrent.ts';
import { settledWithin } from '../../async/with-timeout.ts';
import { TailcastError, errorText } from '../../errors.ts';
import type { Logger } from '../../observe/logger.ts';
import { parseRange } from './byte-range.ts';
import type { CatalogEntry } from '../library/catalog-entry.ts';
import { addEvidenceApi } from './api-evidence.ts';
import { REBUILD_PATH } from './api-index.ts';
import { addOrderApi, ORDER_PATH } from './api-orders.ts';
import { addReviewApi, REVIEW_PATH, withReviews } from './api-reviews.ts';
import { addSavedSearchApi, SEARCHES_PATH } from './api-saved-searches.ts';
import { addSearchApi } from './api-search.ts';
import { addCompression, acceptsGzip } from './compression.ts';
import type { Hosts } from './hosts.ts';
import type { Reviews } from '../evidence/reviews.ts';
import { openSavedSearches } from '../evidence/saved-searches.ts';
import type { PublicKey, SigningKey } from '../evidence/signing-key.ts';
import type { PlayIndexes } from '../playback/play-indexes.ts';
import { STORED_WAIT_MS } from '../library/cast-pieces.ts';
import { castBytes, followCast, presentationOf, presentCast, readCast } from '../library/replay.ts';
import type { ObjectKind, RecordingStore } from '../store/store.ts';
import type { AccessAction } from './viewer-access.ts';
import { type ListsApiOptions, addLists } from './api-lists.ts';
import { parse, signalOf, untilAnswered, viewerNameOf, viewerOf } from './api-requests.ts';
import { ownerOf } from './viewing.ts';

export interface ApiOptions extends ListsApiOptions {
  readonly store: RecordingStore;
  /** Returns the free bytes. Rejects if the store is unusable. */
  readonly freeBytes: () => Promise<number | undefined>;
  /** Returns the time in milliseconds since the epoch. */
  readonly nowMs: () => number;
  readonly playIndexes: PlayIndexes;
  readonly reviews: Reviews;
  /** Key of this recorder. */
  readonly key: SigningKey;
  /** Public keys of trusted recorders. Map keys: key id. */
  readonly trusted: ReadonlyMap<string, PublicKey>;
  readonly hosts: Hosts;
  readonly log: Logger;
  /** Directory of the built player; undefined if this recorder has no player. */
  readonly playerDirectory: string | undefined;
}

/** Security headers: the page loads no content of other origins and no inline scripts. */
export const SECURITY_HEADERS = {
  'content-security-policy': [
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "img-src 'self' data:",
    "font-src 'self' data:",
    "connect-src 'self'",
    "worker-src 'self'",
    "manifest-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
  ].join('; '),
  'x-content-type-options': 'nosniff',
  // `isOwnPage` needs the `Referer` header.
  'referrer-policy': 'same-origin',
  'cross-origin-opener-policy': 'same-origin',
  'cross-origin-resource-policy': 'same-origin',
  'permissions-policy': 'camera=(), geolocation=(), microphone=()',
} as const;

const HEALTH = ['/healthz', '/readyz'];

const CAST_TYPE = 'application/x-asciicast';

const flag = z.enum(['0', '1']).default('0');

const castQuery = z.strictObject({ follow: flag, normalise: flag, view: flag });

const playbackQuery = z.strictObject({
  view: flag,
  frame: z.coerce.number().int().min(0).max(1_000_000).exactOptional(),
});
const MAX_THUMBNAILS = 50;
/** Maximum number of recordings that one request for thumbnails looks up concurrently. */
const THUMBNAIL_LOOKUPS = 4;

const thumbnailQuery = z.strictObject({
  ids: z
    .string()
    .max(200 * MAX_THUMBNAILS)
    .transform((ids) => [...new Set(ids.split(','))].slice(0, MAX_THUMBNAILS)),
});
const RETRY_AFTER_SECONDS = 1;

const parameters = z.object({ id: z.string() });

/** Adds the health checks of a listener. The checks report whether the process is alive and the store is usable. */
export function addHealth(
  app: FastifyInstance,
  { freeBytes, log }: Pick<ApiOptions, 'freeBytes' | 'log'>,
): void {
  addCompression(app);
  app.setErrorHandler((error, request, reply) => answerError(log, error, request, reply));
  app.setNotFoundHandler(async (_request, reply) =>
    reply
      .code(404)
      .headers(SECURITY_HEADERS)
      .send({ code: 'RECORDING_UNKNOWN', message: 'there is nothing under this path' }),
  );
  app.get('/healthz', async () => ({ status: 'ok' }));
  app.get('/readyz', async () => {
    try {
      await freeBytes();
    } catch (error) {
      throw new TailcastError('RECORDER_BUSY', 'the store cannot be used', { cause: error });
    }
    return { status: 'ok' };
  });
}

function addThumbnails(
  app: FastifyInstance,
  { access, catalog, playIndexes }: Pick<ApiOptions, 'access' | 'catalog' | 'playIndexes'>,
): void {
  app.get('/api/v1/thumbnails', async (request, reply) => {
    const viewer = await viewerOf(access, request, reply);
    const { ids } = parse(thumbnailQuery, request.query);
    const scope = access.scope(viewer);
    const entries: CatalogEntry[] = [];
    // Limit the concurrency, because for a restricted viewer, the lookup of each id is a query of the index.
    await forEachConcurrent(ids, THUMBNAIL_LOOKUPS, async (id) => {
      const entry = await catalog.find(id, scope, ownerOf(viewer));
      if (entry !== undefined) entries.push(entry);
    });
    await access.saw(viewer, 'thumbnails', request);
    const found = await playIndexes.thumbnails(entries);
    return { thumbnails: Object.fromEntries(found) };
  });
}

/** Adds all routes to `app`, including the health checks. */
export function addApi(app: FastifyInstance, options: ApiOptions): void {
  const { catalog, store, hosts, access, key, reviews } = options;

  app.addHook('onRequest', async (request, reply) => {
    // Routes of casts, transcripts and files replace this value, because browsers may keep their responses.
    reply.headers(SECURITY_HEADERS).header('cache-control', 'no-store');
    checkHostAndMethod(request, hosts);
  });
  addHealth(app, options);

  /** Finds a recording for a viewer, and stores the access event before the response. */
  async function find(
    request: FastifyRequest,
    reply: FastifyReply,
    action: AccessAction,
  ): Promise<CatalogEntry> {
    const viewer = await viewerOf(access, request, reply);
    const { id } = parse(parameters, request.params);
    const entry = await catalog.find(id, access.scope(viewer), ownerOf(viewer));
    if (entry === undefined) throw new TailcastError('RECORDING_UNKNOWN');
    await access.saw(viewer, action, request, entry);
    return entry;
  }

  addLists(app, options, reviews);
  app.get('/api/v1/recordings/:id', async (request, reply) => {
    const { recording } = await find(request, reply, isPlayed(request) ? 'play' : 'show');
    return (await withReviews(reviews, [recording]))[0];
  });
  addThumbnails(app, options);
  app.get('/api/v1/recordings/:id/cast', async (request, reply) =>
    sendCast(access, await find(request, reply, isPlayed(request) ? 'play' : 'download'), request, reply),
  );
  app.get('/api/v1/recordings/:id/playback', async (request, reply) =>
    sendPlayback(options.playIndexes, await find(request, reply, 'play'), request, reply),
  );
  app.get('/api/v1/recordings/:id/transcript', async (request, reply) => {
    const entry = await find(request, reply, isPlayed(request) ? 'play' : 'download');
    reply.header('cache-control', 'private, no-cache').type('application/json');
    const found = await options.playIndexes.transcript(entry);
    if ('progress' in found) return reply.code(202).send(found);
    const isCompressed = acceptsGzip(request.headers['accept-encoding']);
    reply.header('vary', 'accept-encoding');
    if (isCompressed) return reply.header('content-encoding', 'gzip').send(found);
    const text = createGunzip();
    text.end(found);
    return reply.send(text);
  });
  app.get('/api/v1/recordings/:id/sidecar', async (request, reply) =>
    sendObject(store, await find(request, reply, 'download'), 'sidecar', 'application/json', reply),
  );
  app.get('/api/v1/recordings/:id/notes', async (request, reply) =>
    sendNotes(store, await find(request, reply, 'download'), reply),
  );
  addOrderApi(app, { access, find });
  addReviewApi(app, { ...options, reviews, find });
  addEvidenceApi(app, {
    ...options,
    ownKey: key.public,
    async find(request, reply) {
      const entry = await find(request, reply, isPlayed(request) ? 'play' : 'show');
      return { entry, scope: access.scope(await access.viewer(request.raw)) };
    },
  });
  addSearchApi(app, { ...options, reviews });
  addSavedSearchApi(app, { access, searches: openSavedSearches(options) });
  if (options.playerDirectory !== undefined) addPlayer(app, options.playerDirectory);
}

/**
 * Throws an error if the host name is unknown, if the method is unsupported, or if a page of another site uses the API.
 * Such a page could not read the responses, but it could measure the time of searches, and cause access events in the
 * name of the viewer.
 */
function checkHostAndMethod(
  { url, method, headers, socket, routeOptions }: FastifyRequest,
  hosts: ApiOptions['hosts'],
): void {
  if (HEALTH.includes(url)) return;
  if (!hosts.accepts(headers.host, socket.localAddress)) throw new TailcastError('HOST_REFUSED');
  const isRead = method === 'GET' || method === 'HEAD';
  const isWritable =
    method === 'POST' &&
    (url === REBUILD_PATH || url === SEARCHES_PATH || REVIEW_PATH.test(url) || ORDER_PATH.test(url));
  if (!isRead && !isWritable) throw new TailcastError('METHOD_REFUSED');
  // The router decodes `%61pi`, so the raw address does not show whether a request uses the API.
  if (routeOptions.url?.startsWith('/api/') === true && !isOwnPage(headers, hosts, isRead))
    throw new TailcastError('VIEW_REFUSED', 'the request comes from a page of another site');
}

/**
 * Returns false if a browser sends the request for a page of another site. Browsers send `Sec-Fetch-Site` only with
 * HTTPS and to loopback addresses. Without this header, a browser must name an own page in `Origin` or `Referer`.
 */
function isOwnPage(
  { origin, host, referer, 'user-agent': agent, 'sec-fetch-site': site }: FastifyRequest['headers'],
  hosts: ApiOptions['hosts'],
  isRead: boolean,
): boolean {
  if (!hosts.acceptsOrigin(origin, host)) return false;
  // A browser sends `none` if the user enters the address.
  if (site !== undefined) return site === 'same-origin' || (site === 'none' && isRead);
  if (origin !== undefined || agent === undefined || !/^Mozilla\/(?!.*PowerShell)/.test(agent)) return true;
  return hosts.acceptsOrigin(URL.parse(referer ?? '')?.origin ?? 'null', host);
}

function addPlayer(app: FastifyInstance, playerDirectory: string): void {
  app.register(fastifyStatic, {
    root: playerDirectory,
    index: ['index.html'],
    list: false,
    redirect: false,
    serveDotFiles: false,
    dotfiles: 'ignore',
    maxAge: 0,
    preCompressed: true,
    setHeaders(reply, path) {
      // The name of an asset changes with its content, so browsers may cache the asset.
      if (/[\\/]assets[\\/][^\\/]+$/.test(path))
        reply.header('cache-control', 'private, max-age=86400, immutable');
    },
  });
}

/** Returns true if a player sent the request, and false if a tool requests the stored data. */
function isPlayed({ query }: FastifyRequest): boolean {
  const { normalise, follow, view } = castQuery.safeParse(query).data ?? {};
  return normalise === '1' || follow === '1' || view === '1';
}

/** Sends the play index of a recording, the progress of its build, or one of its keyframes. */
async function sendPlayback(
  playIndexes: PlayIndexes,
  entry: CatalogEntry,
  request: FastifyRequest,
  reply: FastifyReply,
): Promise<FastifyReply> {
  const { frame } = parse(playbackQuery, request.query);
  reply.header('cache-control', 'private, no-cache').type('application/json');
  if (frame !== undefined) return reply.send(await playIndexes.frame(entry, frame));
  const index = await playIndexes.find(entry);
  return reply.code('progress' in index ? 202 : 200).send(index);
}

async function sendCast(
  access: ApiOptions['access'],
  entry: CatalogEntry,
  request: FastifyRequest,
  reply: FastifyReply,
): Promise<FastifyReply> {
  const query = parse(castQuery, request.query);
  const presentation = query.normalise === '1' ? presentationOf(entry) : undefined;
  const follow = query.follow === '1' && entry.live !== undefined;
  reply.type(CAST_TYPE).header('cache-control', 'private, no-cache');
  if (follow || presentation !== undefined) {
    if (follow)
      untilAnswered(
        request,
        reply,
        access.watch(request.raw, entry, () => reply.raw.destroy()),
      );
    const cast = follow ? followCast(entry, signalOf(request, reply)) : readCast(entry, rangeOf(entry));
    return reply.send(streamOf(presentation === undefined ? cast : presentCast(cast, presentation)));
  }
  return sendStored(entry, request, reply);
}

/** Sends the cast or a range of it. */
function sendStored(entry: CatalogEntry, request: FastifyRequest, reply: FastifyReply): FastifyReply {
  const { headers } = request;
  const bytes = rangeOf(entry).end;
  const tag = entry.version === undefined ? undefined : `"${entry.version}"`;
  if (tag !== undefined) reply.header('etag', tag);
  if (tag !== undefined && headers['if-none-match'] === tag) return reply.code(304).send();
  const condition = headers['if-range'];
  const mayBePart = condition === undefined || condition === tag;
  const range = mayBePart ? parseRange(headers.range, bytes) : 'whole';
  reply.header('accept-ranges', 'bytes');
  if (range === 'unsatisfiable') {
    return reply
      .code(416)
      .type('application/json')
      .header('content-range', `bytes */${bytes}`)
      .send({ code: 'USAGE', message: 'the range is outside of the recording' });
  }
  const part = range === 'whole' ? { start: 0, end: bytes } : range;
  if (range !== 'whole') {
    reply.code(206).header('content-range', `bytes ${part.start}-${part.end - 1}/${bytes}`);
  }
  reply.header('content-length', part.end - part.start);
  return reply.send(streamOf(readCast(entry, part)));
}

const NOTES_TYPE = 'application/x-ndjson';

async function sendNotes(
  store: RecordingStore,
  entry: CatalogEntry,
  reply: FastifyReply,
): Promise<FastifyReply> {
  const { joinedNotes, live } = entry;
  if (joinedNotes === undefined || live?.isOpen() === true)
    return sendObject(store, entry, 'notes', NOTES_TYPE, reply);
  reply.type(NOTES_TYPE).header('cache-control', 'private, no-cache');
  return reply.send(streamOf(joinedNotes()));
}

async function sendObject(
  store: RecordingStore,
  { key, live }: CatalogEntry,
  kind: ObjectKind,
  type: string,
  reply: FastifyReply,
): Promise<FastifyReply> {
  // For a short time after a session has ended, lists show its recording as finished although the recording is not yet
  // in the store.
  const isMoving = live?.isOpen() === false && (await settledWithin(STORED_WAIT_MS, live.stored));
  const storedAs = (isMoving ? await live.stored : undefined) ?? key;
  const stat = live?.isOpen() === true ? undefined : await store.stat(storedAs, kind);
  if (stat === undefined) throw new TailcastError('RECORDING_UNKNOWN', `it has no ${kind}`);
  reply.type(type).header('cache-control', 'private, no-cache').header('content-length', stat.bytes);
  return reply.send(streamOf(store.read(storedAs, kind)));
}

function rangeOf(entry: CatalogEntry): { readonly start: number; readonly end: number } {
  return { start: 0, end: castBytes(entry) };
}

function streamOf(chunks: AsyncIterable<Uint8Array>): Readable {
  return Readable.from(chunks, { objectMode: false });
}

function answerError(
  log: Logger,
  error: unknown,
  request: FastifyRequest,
  reply: FastifyReply,
): FastifyReply {
  const status = clientStatus(error);
  if (error instanceof TailcastError) {
    if (error.entry.status === 429 || error.entry.status === 503)
      reply.header('retry-after', RETRY_AFTER_SECONDS);
    const viewer = error.entry.status === 403 ? viewerNameOf(request) : undefined;
    return reply
      .code(error.entry.status)
      .send({ code: error.code, message: error.message, ...(viewer === undefined ? {} : { viewer }) });
  }
  if (status !== undefined) return reply.code(status).send({ code: 'USAGE', message: errorText(error) });
  // The viewer disconnected, so `signalOf` aborted the work for the request.
  const isAborted = error instanceof Error && error.name === 'AbortError' && request.raw.socket.destroyed;
  if (!isAborted) log.error({ error: errorText(error), route: request.routeOptions.url }, 'request failed');
  return reply.code(500).send({ code: 'INTERNAL', message: 'internal error in tailcast' });
}

/** Returns the HTTP status if Fastify reports that the request is invalid. */
function clientStatus(error: unknown): number | undefined {
  if (!(error instanceof Error) || !('statusCode' in error)) return undefined;
  const { statusCode } = error;
  return typeof statusCode === 'number' && statusCode >= 400 && statusCode < 500 ? statusCode : undefined;
}
