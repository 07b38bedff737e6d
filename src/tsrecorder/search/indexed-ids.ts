/** All sessions of an index, a page after the other. */
import type { IndexedSession } from '../../search/search-index.ts';
import type { IndexClient } from './index-client.ts';

const PAGE = 5000;

/** @param operation `ids` of a process that writes, `versions` of one that reads. @returns in the order of ids */
export async function* indexedPages(
  index: Pick<IndexClient, 'ask'>,
  operation: 'ids' | 'versions',
): AsyncGenerator<readonly IndexedSession[]> {
  for (let after = ''; ;) {
    const page = await index.ask(operation, { after, limit: PAGE });
    yield page;
    const last = page.at(-1);
    if (last === undefined || page.length < PAGE) return;
    after = last.id;
  }
}
