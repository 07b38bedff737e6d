/** What an index knows a recording by. Pure. */
import type { SessionListing, SessionNames } from '../../search/search-index.ts';
import type { Recording } from '../../wire/recorder-api/recording.ts';
import type { CatalogEntry } from '../library/catalog-entry.ts';
import { searchedText } from '../library/catalog-query.ts';
import { orderOf, parseRecordingId, parseTime } from '../store/key.ts';

export function sessionNames(recording: Recording): SessionNames {
  const { id, startedAt, source, destination, kubernetes, kind, state, command, durationSeconds } = recording;
  const { result, trust } = recording;
  // in the order of the list, which is that of the keys: what a document says of the time may be something else
  const time = parseTime(parseRecordingId(id)?.time ?? startedAt) ?? 0n;
  return {
    id,
    startedAtMs: Number(time) / 1e6,
    ...(source.user === undefined ? {} : { user: source.user }),
    tags: source.tags ?? [],
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

/**
 * What a list shows of a recording.
 *
 * @returns undefined while it grows, and when that depends on who looks: then a list looks at the recording itself
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
