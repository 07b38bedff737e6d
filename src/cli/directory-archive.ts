/** The archive of `--store`: a recorder's directory or bucket, read without a recorder. Nothing in it is written. */
import { stat } from 'node:fs/promises';
import { TailcastError } from '../errors.ts';
import type { CatalogQuery } from '../tsrecorder/library/catalog-query.ts';
import { createCatalog } from '../tsrecorder/library/catalog.ts';
import { readCast } from '../tsrecorder/library/replay.ts';
import { createArchiveStore } from '../tsrecorder/store/archive-store.ts';
import { createDiskStore } from '../tsrecorder/store/disk.ts';
import { parseTime } from '../tsrecorder/store/key.ts';
import type { RecordingStore } from '../tsrecorder/store/store.ts';
import { findRecording, type Archive, type ArchiveQuery } from './archive.ts';
import { MAX_LINE_BYTES } from './archive.ts';
import { readTextLines } from '../wire/lines.ts';
import { RECORDING_STATES } from '../wire/recorder-api/recording.ts';

const PAGE_SIZE = 200;

/**
 * Opens a directory. What is only in a running recorder's spool is not seen here: ask the recorder for that.
 *
 * @throws TailcastError `USAGE` when there is no such directory.
 */
export async function openDirectoryArchive(directory: string, signal: AbortSignal): Promise<Archive> {
  const found = await stat(directory).catch(() => undefined);
  if (found?.isDirectory() !== true) throw new TailcastError('USAGE', `${directory} is not a directory`);
  return openStoreArchive(
    createArchiveStore(await createDiskStore(directory, { readOnly: true }), 'plain'),
    signal,
  );
}

/** The archive in a store that is open. */
export function openStoreArchive(store: RecordingStore, signal: AbortSignal): Archive {
  const catalog = createCatalog({
    store,
    live: () => [],
    refreshMs: 1000,
    maxCached: 10_000,
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
