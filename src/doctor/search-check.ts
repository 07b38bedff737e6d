/** Can a search index be kept, and can the one that is there be read? */
import { errorText } from '../errors.ts';
import { failed, ok, skipped, type Check } from './checks.ts';

export interface SearchFacts {
  /** Where the index is, as people name it; undefined: sessions are not searched. */
  readonly place: string | undefined;
  /** Reads it, as the recorder's processes do. @returns whether there is anything in it */
  readonly look: (place: string) => Promise<boolean>;
  /** What to do when it cannot be read. Default: of an index in files */
  readonly remedy?: string;
}

const FILES =
  'use the Node of the package or the image, which has FTS5; delete a damaged index, and the recorder builds it again';

export function searchCheck({ place, look, remedy = FILES }: SearchFacts): Check {
  return {
    id: 'search',
    title: 'search index',
    remedy,
    async run() {
      if (place === undefined) return skipped('off; enable it with --search true');
      try {
        return ok((await look(place)) ? `${place} is readable` : `${place} has no session yet`);
      } catch (error) {
        return failed(errorText(error), remedy);
      }
    },
  };
}
