/** Storage formats of recordings: see `tsrecorder/store/archive-store.ts`. */
export const ARCHIVE_FORMATS = ['plain', 'zstd', 'sealed'] as const;
