/** Checks that the search index is readable. */
import { errorText } from '../errors.ts';
import { failed, ok, skipped, type Check } from './checks.ts';

export interface SearchFacts {
  /** Location of the search index, for messages; undefined if no spool directory is known. */
  readonly place: string | undefined;
  /** Reads the index in the same way as the recorder. @returns true if the index contains a session */
  readonly read: (place: string) => Promise<boolean>;
  /** Advice if the index is unreadable. Default: the advice for an index in files. */
  readonly remedy?: string;
}

const FILES =
  'use the Node of the package or the image, which has FTS5; delete a damaged index, and the recorder builds it again';

export function searchCheck({ place, read, remedy = FILES }: SearchFacts): Check {
  return {
    id: 'search',
    title: 'search index',
    remedy,
    async run() {
      if (place === undefined) return skipped('no spool directory is named');
      try {
        return ok((await read(place)) ? `${place} is readable` : `${place} has no session yet`);
      } catch (error) {
        return failed(errorText(error), remedy);
      }
    },
  };
}
