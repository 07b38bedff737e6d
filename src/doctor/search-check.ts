/** Can this Node keep a search index, and can the one that is there be read? */
import { errorText } from '../errors.ts';
import { failed, ok, skipped, type Check } from './checks.ts';

export interface SearchFacts {
  /** Where the index is; undefined: sessions are not searched. */
  readonly directory: string | undefined;
  /** Reads the first session of it, as the recorder's processes do. @returns whether there is one */
  readonly look: (directory: string) => Promise<boolean>;
}

export function searchCheck({ directory, look }: SearchFacts): Check {
  const remedy =
    'use the Node of the package or the image: others lack FTS5; an index that is damaged may be deleted, it is made of the recordings again';
  return {
    id: 'search',
    title: 'search index',
    remedy,
    async run() {
      if (directory === undefined) return skipped('off; sessions can be searched with --search true');
      try {
        return ok((await look(directory)) ? `${directory} can be read` : `${directory} has no session yet`);
      } catch (error) {
        return failed(errorText(error), remedy);
      }
    },
  };
}
