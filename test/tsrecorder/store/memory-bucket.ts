/** An in-memory bucket that behaves like S3, for tests of code that uses buckets. */
import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { TailcastError } from '../../../src/errors.ts';
import type { Bucket, BucketObject } from '../../../src/tsrecorder/store/bucket.ts';
import type { ObjectStat } from '../../../src/tsrecorder/store/store.ts';

export interface MemoryBucket extends Bucket {
  readonly objects: Map<string, { content: Buffer; modifiedAtMs: number }>;
  /**
   * Called before every request. If `before` throws, the request fails with that error. @param request name of the
   * operation
   */
  before: (request: string, name: string) => void;
}

export function createMemoryBucket(nowMs: () => number = () => Date.now(), pageSize = 1000): MemoryBucket {
  const objects: MemoryBucket['objects'] = new Map();
  const write = (name: string, content: Buffer, once: boolean | undefined): void => {
    const known = objects.get(name);
    if (once === true && known !== undefined && !known.content.equals(content)) {
      throw new TailcastError('UPLOAD_CONFLICT');
    }
    objects.set(name, { content, modifiedAtMs: nowMs() });
  };
  const bucket: MemoryBucket = {
    objects,
    before: () => undefined,
    async put(name, content, options = {}) {
      bucket.before('put', name);
      if (options.once === true && objects.has(name)) throw new TailcastError('UPLOAD_CONFLICT');
      write(name, Buffer.from(content), false);
    },
    async putFile(name, path, bytes, options = {}) {
      bucket.before('put', name);
      write(name, (await readFile(path)).subarray(0, bytes), options.once);
    },
    async stat(name) {
      bucket.before('stat', name);
      const found = objects.get(name);
      return found && statOf(found);
    },
    async *get(name, range) {
      bucket.before('get', name);
      const found = objects.get(name);
      if (found === undefined) throw new TailcastError('RECORDING_UNKNOWN');
      yield found.content.subarray(range?.start ?? 0, range?.end);
    },
    async remove(name) {
      bucket.before('remove', name);
      objects.delete(name);
    },
    async *list({ prefix, startAfter = '', folders = false }) {
      bucket.before('list', prefix);
      const names = [...objects.keys()]
        .filter((name) => name.startsWith(prefix) && name > startAfter)
        .toSorted();
      const groups = new Set<string>();
      const found: BucketObject[] = [];
      for (const name of names) {
        const slash = name.indexOf('/', prefix.length);
        const object = objects.get(name);
        if (folders && slash >= 0) groups.add(name.slice(0, slash + 1));
        else if (object !== undefined) {
          found.push({ name, ...statOf(object) });
        }
      }
      for (let start = 0; start < found.length || start === 0; start += pageSize) {
        yield { objects: found.slice(start, start + pageSize), folders: start === 0 ? [...groups] : [] };
      }
    },
    sweepUploads: () => Promise.resolve(0),
  };
  return bucket;
}

function statOf({ content, modifiedAtMs }: { content: Buffer; modifiedAtMs: number }): ObjectStat {
  const identity = createHash('md5').update(content).digest('hex');
  return { bytes: content.length, modifiedAtMs, identity };
}
