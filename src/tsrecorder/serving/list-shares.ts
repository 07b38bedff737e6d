/**
 * Limits the lists of each viewer. A list with filters that the index does not support reads descriptions of up to 5000
 * recordings, so one viewer could keep the recorder busy.
 */
import { createLimiter } from '../../async/limiter.ts';
import { TailcastError } from '../../errors.ts';
import { createKeyedRate } from '../../keyed-rate.ts';
import type { CatalogQuery } from '../library/catalog-query.ts';
import type { Catalog, CatalogPage } from '../library/catalog.ts';
import type { Scope } from '../library/scope.ts';

/** Limits of concurrent lists. Many viewers request lists, and a list from the index is fast, so the queue is long. */
const LIMITS = { maxActive: 4, maxActivePerOwner: 2, maxWaiting: 256 };
/**
 * Number of recordings that do not match the filters and that the lists of one viewer may read at once. Reading 5000
 * recordings takes up to 1.5 s.
 */
const MAX_UNMATCHED = 100_000;
/** Number of such recordings that the lists of one viewer may read per second after that. */
const UNMATCHED_PER_SECOND = 1000;

/** Creates a limited version of `catalog.list`. @param monotonicMs returns milliseconds of a monotonic clock */
export function createListShares(
  catalog: Pick<Catalog, 'list'>,
  monotonicMs: () => number = () => performance.now(),
) {
  const limiter = createLimiter({
    ...LIMITS,
    full: () => new TailcastError('SEARCH_BUSY', 'you have too many lists in progress'),
  });
  const spend = createKeyedRate({ perSecond: UNMATCHED_PER_SECOND, burst: MAX_UNMATCHED, monotonicMs });
  /**
   * Returns one page. The lists of different owners take turns.
   * @throws TailcastError like `catalog.list`; `SEARCH_BUSY` if the owner has too many lists in progress, or if the
   *   owner's lists read too many recordings without a match
   */
  return (query: CatalogQuery, scope: Scope, owner: string, signal: AbortSignal): Promise<CatalogPage> =>
    limiter.run(
      async () => {
        if (spend(owner, 0) > 0)
          throw new TailcastError('SEARCH_BUSY', 'your filters excluded too many recordings');
        const page = await catalog.list(query, scope, owner);
        spend(owner, page.unmatched);
        return page;
      },
      signal,
      owner,
    );
}
