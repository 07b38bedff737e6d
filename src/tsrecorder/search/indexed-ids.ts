/** Reads all sessions of an index page by page. */
import type { IndexedSession } from '../../search/search-index.ts';
import type { IndexClient } from './index-client.ts';

const PAGE = 5000;

/** Yields pages in the order of ids. @param operation `ids` for the writer process, `versions` for a query process */
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
