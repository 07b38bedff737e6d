/**
 * Store in a bucket, with the same layout as a directory (`key.ts`). Several recorders may share the bucket.
 *
 * The bucket contains no index object, because all recorders would have to write to it concurrently. Instead, recorders
 * list the bucket. S3 lists names in order, so listing the recordings of a tailnet node after a given time needs one
 * request per thousand objects. The sidecars contain all data that a list of recordings needs, and the catalogue caches
 * them.
 */
import { TailcastError } from '../../errors.ts';
import type { Bucket } from './bucket.ts';
import { isDocumentName, joinDocument, type DocumentStore } from './document-store.ts';
import { SESSIONS_FOLDER, eventKey, markName, objectKey, recordingId, EVENTS_MARKER } from './key.ts';
import { S3Listing, type S3ListingOptions } from './s3-listing.ts';
import type { RecordingStore } from './store.ts';
import { hasNotesAndSidecar } from './stored-copy.ts';

export interface S3StoreOptions extends S3ListingOptions {
  readonly bucket: Bucket;
}

export const S3_LISTING = { recentMs: 24 * 3_600_000, fullListMs: 300_000 } as const;

/** Creates the store of a bucket. The store sends no request before the first call. */
export function createS3Store(options: S3StoreOptions): RecordingStore {
  const { bucket } = options;
  const listing = new S3Listing(options);
  let eventsMarked = false;

  const stat: RecordingStore['stat'] = (key, kind) => bucket.stat(objectKey(key, kind));
  const read: RecordingStore['read'] = (key, kind, range) => bucket.get(objectKey(key, kind), range);

  return {
    async finish(upload) {
      const { key } = upload;
      const retain = { retain: true };
      const hasCast = (await bucket.stat(objectKey(key, 'cast'))) !== undefined;
      if (!hasCast) {
        if (upload.notesPath !== undefined) {
          await bucket.putFile(objectKey(key, 'notes'), upload.notesPath, upload.notesBytes, retain);
        }
        await bucket.put(objectKey(key, 'sidecar'), Buffer.from(upload.sidecar), retain);
        if (upload.sessionMark !== undefined) {
          await bucket.put(SESSIONS_FOLDER + markName(key, upload.sessionMark), new Uint8Array());
        }
      }
      const once = { retain: true, once: true };
      await bucket.putFile(objectKey(key, 'cast'), upload.castPath, upload.castBytes, once);
      if (hasCast && !(await hasNotesAndSidecar({ stat, read }, upload))) {
        throw new TailcastError('UPLOAD_CONFLICT', 'another recording has this key');
      }
      listing.changed(key);
    },
    async putEvent(key, content) {
      await bucket.put(eventKey(key), Buffer.from(content), { retain: true });
      if (eventsMarked) return;
      await bucket.put(EVENTS_MARKER, new Uint8Array());
      eventsMarked = true;
    },
    list: () => listing.list(),
    stat,
    read,
    async remove(key) {
      for await (const { objects } of bucket.list({ prefix: `${SESSIONS_FOLDER}${recordingId(key)}~` })) {
        for (const { name } of objects) await bucket.remove(name);
      }
      for (const kind of ['notes', 'sidecar', 'cast'] as const) await bucket.remove(objectKey(key, kind));
      listing.forget();
    },
    ...createDocuments(bucket),
    // Buckets have no size limit.
    freeBytes: () => Promise.resolve(undefined),
  };
}

/** Creates the document store: documents are objects. */
function createDocuments(bucket: Bucket): DocumentStore {
  const checked = (name: string): string => {
    if (!isDocumentName(name)) throw new TailcastError('STORE_FAILED', 'this is not a valid document name');
    return name;
  };
  return {
    async putDocument(name, content) {
      await bucket.put(checked(name), content, { once: true, retain: true });
    },
    async claimDocument(name, content) {
      try {
        await bucket.put(checked(name), content, { once: true });
        return true;
      } catch (error) {
        if (error instanceof TailcastError && error.code === 'UPLOAD_CONFLICT') return false;
        throw error;
      }
    },
    async replaceDocument(name, content, retain = false) {
      await bucket.put(checked(name), content, { retain });
    },
    async listDocuments(prefix, maximum = Infinity) {
      const names: string[] = [];
      for await (const { objects } of bucket.list({ prefix: `${checked(prefix.slice(0, -1))}/` })) {
        names.push(...objects.map(({ name }) => name).filter(isDocumentName));
        if (names.length >= maximum) break;
      }
      return names.toSorted().slice(0, maximum);
    },
    async readDocument(name, maxBytes) {
      const range = maxBytes === undefined ? undefined : { start: 0, end: maxBytes };
      try {
        return await joinDocument(bucket.get(checked(name), range));
      } catch (error) {
        if (error instanceof TailcastError && error.code === 'RECORDING_UNKNOWN') return undefined;
        throw error;
      }
    },
    async removeDocument(name) {
      await bucket.remove(checked(name));
    },
  };
}
