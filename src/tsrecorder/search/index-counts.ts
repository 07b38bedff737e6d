/**
 * Caches the counts that the writer process reports about the index. A search waits at most `WAIT_MS` for new counts.
 */
import { settledWithin } from '../../async/with-timeout.ts';
import type { IndexStatus } from '../../search/search-index.ts';
import type { IndexClient } from './index-client.ts';

/** Interval between two requests for the counts, in milliseconds. */
const STATUS_MS = 1000;
/** Maximum age of cached counts, in milliseconds. A search waits up to `WAIT_MS` for newer counts. */
const MAX_STATUS_AGE_MS = 5000;
const WAIT_MS = 1000;

interface Counted {
  readonly client: IndexClient;
  readonly at: number;
  readonly asked: Promise<void>;
  isAsking: boolean;
}

/** Counts of one index. */
export class IndexCounts {
  readonly #now: () => number;
  #counted: Counted | undefined;
  #last: { readonly client: IndexClient; readonly status: IndexStatus; readonly at: number } | undefined;

  /** @param now monotonic clock, in milliseconds */
  constructor(now: () => number) {
    this.#now = now;
  }

  /** Returns the last known counts; undefined if there are none yet. */
  async of(client: IndexClient): Promise<IndexStatus | undefined> {
    const known = this.#counted?.client === client ? this.#counted : undefined;
    const isFresh = known !== undefined && (known.isAsking || this.#now() - known.at < STATUS_MS);
    const { asked } = isFresh ? known : this.#ask(client);
    const last = this.#lastOf(client);
    if (last === undefined || this.#now() - last.at >= MAX_STATUS_AGE_MS) await settledWithin(WAIT_MS, asked);
    return this.#lastOf(client)?.status;
  }

  #lastOf(client: IndexClient): { readonly status: IndexStatus; readonly at: number } | undefined {
    return this.#last?.client === client ? this.#last : undefined;
  }

  #ask(client: IndexClient): Counted {
    const at = this.#now();
    const asked = client.ask('status', null).then(
      (status) => void (this.#last = { client, status, at }),
      () => undefined,
    );
    const counted: Counted = { client, at, asked, isAsking: true };
    this.#counted = counted;
    void asked.then(() => (counted.isAsking = false));
    return counted;
  }
}
