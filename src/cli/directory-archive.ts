/** The archive of `--store`: a recorder's directory or bucket, read without a recorder. Nothing in it is written. */
import { TailcastError } from '../errors.ts';
import type { CatalogQuery } from '../tsrecorder/library/catalog-query.ts';
import { mergeRemotes } from '../tsrecorder/intake/siblings.ts';
import { createCatalog, storedElsewhere, type RemoteRecording } from '../tsrecorder/library/catalog.ts';
import { readCast } from '../tsrecorder/library/replay.ts';
import { parseTime } from '../tsrecorder/store/key.ts';
import type { ReadableStore } from '../tsrecorder/store/store.ts';
import { findRecording, type Archive, type ArchiveQuery } from './archive.ts';
import { MAX_LINE_BYTES } from './archive.ts';
import { readTextLines } from '../wire/lines.ts';
import { RECORDING_STATES } from '../wire/recorder-api/recording.ts';

const PAGE_SIZE = 200;

const MAX_CACHED = 10_000;

/** The archive in a store that is open. */
export function openStoreArchive(store: ReadableStore, signal: AbortSignal): Archive {
  return openJoinedArchive(store, [], signal);
}

/**
 * The archive in several places at once: a session whose parts are in several of them is one recording.
 *
 * @param store one of them.
 * @param elsewhere what is in the others; a recording that several have is shown once.
 */
export function openJoinedArchive(
  store: ReadableStore,
  elsewhere: readonly (() => Promise<readonly RemoteRecording[]>)[],
  signal: AbortSignal,
): Archive {
  const catalog = createCatalog({
    store,
    remote: mergeRemotes(elsewhere),
    live: () => [],
    refreshMs: 1000,
    maxCached: MAX_CACHED,
    now: () => performance.now(),
  });
  const archive: Archive = {
    async *list(query) {
      for (let cursor: string | undefined, first = true; first || cursor !== undefined; first = false) {
        signal.throwIfAborted();
        const page = await catalog.list({
          ...catalogQuery(query),
          limit: PAGE_SIZE,
          ...(cursor === undefined ? {} : { cursor }),
        });
        yield* page.recordings;
        cursor = page.next;
      }
    },
    find: (id) => findRecording(archive, id),
    async *lines({ id }) {
      const entry = await catalog.find(id);
      if (entry === undefined) throw new TailcastError('RECORDING_UNKNOWN', id);
      yield* readTextLines(readCast(entry, { start: 0, end: entry.recording.bytes }), MAX_LINE_BYTES);
    },
    bytes: ({ id, bytes }) => ({
      bytes,
      async read(start, end) {
        const entry = await catalog.find(id);
        if (entry === undefined) throw new TailcastError('RECORDING_UNKNOWN', id);
        const parts: Uint8Array[] = [];
        for await (const part of readCast(entry, { start, end })) parts.push(part);
        return Buffer.concat(parts);
      },
    }),
  };
  return archive;
}

/** @param text RFC 3339; undefined: no bound. */
function timeOf(name: 'from' | 'to', text: string | undefined): Pick<CatalogQuery, 'from' | 'to'> {
  const nanoseconds = text === undefined ? undefined : parseTime(text);
  return nanoseconds === undefined ? {} : { [name]: nanoseconds };
}

/** What is in a store that is open, for {@link openJoinedArchive}. */
export function elsewhereInStore(store: ReadableStore): () => Promise<readonly RemoteRecording[]> {
  return storedElsewhere(store, MAX_CACHED);
}

function catalogQuery(query: ArchiveQuery): Omit<CatalogQuery, 'limit' | 'cursor'> {
  const state = RECORDING_STATES.find((name) => name === query['state']);
  if (query['state'] !== undefined && state === undefined) {
    throw new TailcastError('USAGE', `--state is one of ${RECORDING_STATES.join(', ')}`);
  }
  return {
    ...(query['user'] === undefined ? {} : { user: query['user'] }),
    ...(query['namespace'] === undefined ? {} : { namespace: query['namespace'] }),
    ...(query['pod'] === undefined ? {} : { pod: query['pod'] }),
    ...(query['text'] === undefined ? {} : { text: query['text'] }),
    ...timeOf('from', query['from']),
    ...timeOf('to', query['to']),
    ...(state === undefined ? {} : { state }),
  };
}
