/** Reads the records file from a mounted ConfigMap. */
import { openFollowedFile, type FileToFollow, type FollowedFile } from '../followed-file.ts';
import { MAX_RECORDS_BYTES, parseRecords, type NameRecords } from './records.ts';

export type RecordsFile = FollowedFile<NameRecords>;

/** Resolves after the file has been read once; see `openFollowedFile`. */
export function openRecordsFile(options: FileToFollow): Promise<RecordsFile> {
  return openFollowedFile({
    ...options,
    setting: 'records',
    maxBytes: MAX_RECORDS_BYTES,
    read: parseRecords,
    words: { read: 'names read', kept: 'names not read; the last valid ones stay in use' },
    describe: ({ size }) => ({ names: size }),
  });
}
