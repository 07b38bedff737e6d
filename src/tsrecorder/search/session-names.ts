/**
 * Creates the *names* of a recording: the index fields that come from its description, such as user and pod. Pure
 * functions.
 */
import type { IndexedText } from '../../search/moments.ts';
import type { SessionDoc, SessionListing, SessionNames } from '../../search/search-index.ts';
import type { Recording } from '../../wire/recorder-api/recording.ts';
import type { CatalogEntry } from '../library/catalog-entry.ts';
import { searchedText } from '../library/catalog-query.ts';
import { orderOf, parseRecordingId, parseTime } from '../store/key.ts';
import { indexRevision } from './layout.ts';

/** Returns the names of a recording. */
export function sessionNames(recording: Recording): SessionNames {
  const { id, startedAt, source, destination, cluster, kubernetes, kind, state, command } = recording;
  const { durationSeconds, result, trust } = recording;
  // Use the time in the id, because lists are sorted by this time. The header of the cast may contain another time.
  const time = parseTime(parseRecordingId(id)?.time ?? startedAt) ?? 0n;
  return {
    id,
    startedAtMs: Number(time) / 1e6,
    ...(source.user === undefined ? {} : { user: source.user }),
    tags: source.tags ?? [],
    ...(cluster === undefined ? {} : { cluster }),
    ...(kubernetes === undefined
      ? {}
      : { namespace: kubernetes.namespace, pod: kubernetes.pod, container: kubernetes.container }),
    nodes: [source.node, source.nodeId, destination.node, destination.nodeId].filter((name) => name !== ''),
    kind,
    state,
    ...(command === undefined ? {} : { command }),
    ...(durationSeconds === undefined ? {} : { durationSeconds }),
    ...(result === undefined ? {} : { result }),
    ...(trust === undefined ? {} : { trust }),
  };
}

/** Returns the index entry of a stored recording. */
export function sessionDoc(
  entry: CatalogEntry,
  { text, trusted }: { readonly text: IndexedText; readonly trusted?: string },
): SessionDoc {
  const listing = sessionListing(entry);
  return {
    names: sessionNames(entry.recording),
    version: `${entry.version}${indexRevision(text, trusted)}`,
    text,
    ...(listing === undefined ? {} : { listing }),
  };
}

/**
 * Returns the list entry of a recording for the index.
 *
 * @returns undefined if the recording still grows, or if viewers see different parts of it. Lists then read the
 *   recording from the store
 */
export function sessionListing({
  recording,
  key,
  version,
  isSeenApart,
}: CatalogEntry): SessionListing | undefined {
  if (version === undefined || isSeenApart) return undefined;
  return {
    order: orderOf(key),
    version,
    recording: JSON.stringify(recording),
    searched: searchedText(recording),
    bytes: recording.bytes,
  };
}
