/**
 * The archive of `--store`: the directory or bucket of a recorder, read without the recorder. This module never
 * writes to the directory.
 */
import { TailcastError } from '../errors.ts';
import type { CatalogQuery } from '../tsrecorder/library/catalog-query.ts';
import type { RemoteRecording } from '../tsrecorder/library/sessions.ts';
import { Catalog, remoteCandidates } from '../tsrecorder/library/catalog.ts';
import type { TrustOf } from '../tsrecorder/library/describe-stored.ts';
import type { CatalogEntry } from '../tsrecorder/library/catalog-entry.ts';
import { readCast } from '../tsrecorder/library/replay.ts';
import { parseTime, recordingId } from '../tsrecorder/store/key.ts';
import type { EvidenceStore } from '../tsrecorder/evidence/check-evidence.ts';
import { withStoredSources } from '../tsrecorder/playback/bundle-sources.ts';
import type { PublicKey } from '../tsrecorder/evidence/signing-key.ts';
import { trustOf } from '../tsrecorder/evidence/trust.ts';
import { createSilentLogger } from '../observe/logger.ts';
import { findRecording, type Archive, type ArchivedRecording, type ArchiveQuery } from './archive.ts';
import { MAX_LINE_BYTES } from './archive.ts';
import { readTextLines } from '../wire/lines.ts';
import type { Recording } from '../wire/recorder-api/recording.ts';
import {
  isRecordingResult,
  RECORDING_STATES,
  RESULT_VALUES,
  TRUST_LEVELS,
} from '../wire/recorder-api/recording-status.ts';

const PAGE_SIZE = 200;

const MAX_CACHED = 10_000;

/** Trusted public keys of recorders. Map keys: key id. */
export type TrustedKeys = ReadonlyMap<string, PublicKey>;

const NO_KEYS: TrustedKeys = new Map();

/**
 * Returns the archive in an open store.
 *
 * @param trusted public keys of recorders; an empty list makes all recordings unverified
 */
export function openStoreArchive(
  store: EvidenceStore,
  signal: AbortSignal,
  trusted: TrustedKeys = NO_KEYS,
): Archive {
  return openJoinedArchive(store, [], signal, trusted);
}

/**
 * Returns the function that verifies signatures, or no function if no key is trusted. Keys from the store itself are
 * not trusted, because everybody with write access to the store can add a key.
 */
function trustBy(trusted: TrustedKeys): { readonly trustOf?: TrustOf } {
  if (trusted.size === 0) return {};
  return { trustOf: (sidecar, key, bytes) => trustOf(sidecar, key, bytes, trusted) };
}

/** Marks a recording as unverified, because the user did not specify a public key. */
function withTrust(recording: Recording): ArchivedRecording {
  if (recording.trust !== undefined) return recording;
  return {
    ...recording,
    isUnchecked: true,
    trust: 'unverified',
    trustReason: 'no public key of a recorder was given (--recorder-keys)',
  };
}

/**
 * Returns one archive for several stores and recorders. If several stores or recorders contain parts of one session,
 * the archive joins the parts into one recording.
 *
 * @param store one of the stores
 * @param otherSources content of other stores and recorders; a recording that several sources contain is listed once
 * @param trusted public keys of recorders; an empty list makes all recordings of a store unverified
 */
export function openJoinedArchive(
  store: EvidenceStore,
  otherSources: readonly (() => Promise<readonly RemoteRecording[]>)[],
  signal: AbortSignal,
  trusted: TrustedKeys = NO_KEYS,
): Archive {
  const catalog = new Catalog({
    store,
    ...trustBy(trusted),
    remote: () => mergeRemotes(otherSources),
    live: () => [],
    refreshMs: 1000,
    maxCached: MAX_CACHED,
    now: () => performance.now(),
  });
  async function entryOf(id: string): Promise<CatalogEntry> {
    const entry = await catalog.find(id);
    if (entry === undefined) throw new TailcastError('RECORDING_UNKNOWN', id);
    return entry;
  }
  const archive: Archive = {
    async *list(query) {
      for (let cursor: string | undefined, first = true; first || cursor !== undefined; first = false) {
        signal.throwIfAborted();
        const page = await catalog.list({
          ...catalogQuery(query),
          limit: PAGE_SIZE,
          ...(cursor === undefined ? {} : { cursor }),
        });
        const recordings = page.recordings.map(withTrust);
        yield* recordings.filter(({ trust }) => query['trust'] === undefined || trust === query['trust']);
        cursor = page.next;
      }
    },
    find: (id) => findRecording(archive, id),
    async *lines({ id }) {
      const entry = await entryOf(id);
      yield* readTextLines(readCast(entry, { start: 0, end: entry.recording.bytes }), MAX_LINE_BYTES);
    },
    bytes: ({ id, bytes }) => ({
      bytes,
      read: async (start, end) =>
        Buffer.concat(await Array.fromAsync(readCast(await entryOf(id), { start, end }))),
    }),
    async withSources(recording, use) {
      const options = { store, signal, nowMs: () => Date.now(), log: createSilentLogger() };
      const entry = await entryOf(recording.id);
      return withStoredSources(entry, options, (sources) => use({ ...sources, recording }));
    },
  };
  return archive;
}

/** @param text a time in RFC 3339; undefined for no limit */
function timeOf(name: 'from' | 'to', text: string | undefined): Pick<CatalogQuery, 'from' | 'to'> {
  const nanoseconds = text === undefined ? undefined : parseTime(text);
  return nanoseconds === undefined ? {} : { [name]: nanoseconds };
}

/**
 * Merges the sessions of several sources. The data of a session comes from the first source that contains the session.
 */
async function mergeRemotes(
  sources: readonly (() => Promise<readonly RemoteRecording[]>)[],
): Promise<readonly RemoteRecording[]> {
  const all = (await Promise.all(sources.map((list) => list()))).flat();
  const byId = new Map(all.toReversed().map((recording) => [recordingId(recording.key), recording]));
  return [...byId.values()];
}

/** Returns the content of an open store, for {@link openJoinedArchive}. */
export function remoteOfStore(
  store: EvidenceStore,
  trusted: TrustedKeys = NO_KEYS,
): () => Promise<readonly RemoteRecording[]> {
  return remoteCandidates(store, MAX_CACHED, trustBy(trusted).trustOf);
}

function catalogQuery(query: ArchiveQuery): Omit<CatalogQuery, 'limit' | 'cursor'> {
  const { state, result } = query;
  // `withTrust` marks recordings without a trust level as unverified.
  const trust = TRUST_LEVELS.find((level) => level === query['trust'] && level !== 'unverified');
  const known = RECORDING_STATES.find((name) => name === state);
  if (state !== undefined && known === undefined)
    throw new TailcastError('USAGE', `--state is one of ${RECORDING_STATES.join(', ')}`);
  if (result !== undefined && !isRecordingResult(result))
    throw new TailcastError('USAGE', `--result is ${RESULT_VALUES}`);
  return {
    ...(query['user'] === undefined ? {} : { user: query['user'] }),
    ...(query['cluster'] === undefined ? {} : { cluster: query['cluster'] }),
    ...(query['namespace'] === undefined ? {} : { namespace: query['namespace'] }),
    ...(query['pod'] === undefined ? {} : { pod: query['pod'] }),
    ...(query['text'] === undefined ? {} : { text: query['text'] }),
    ...timeOf('from', query['from']),
    ...timeOf('to', query['to']),
    ...(known === undefined ? {} : { state: known }),
    ...(result === undefined ? {} : { result }),
    ...(trust === undefined ? {} : { trust }),
  };
}
