/** A value that is loaded at its first use, cached, and reloaded in the background before it becomes too old. */

export interface Refreshing<T> {
  /** Returns the cached value if it is usable, otherwise loads it. Concurrent callers share one load. */
  get(): Promise<T>;
}

export interface RefreshingOptions<T> {
  /** Loads the value. `kept` is the cached value. */
  readonly load: (kept: T | undefined) => Promise<T>;
  /** Returns true if a cached value may still be used. */
  readonly usable: (kept: T) => boolean;
  /** Age after which a cached value is reloaded while it stays in use, in milliseconds. */
  readonly refreshAfterMs: number;
  /**
   * Time after a failure for which the value is not loaded again, in milliseconds. Calls then return the cached value,
   * if it is usable, or the same failure.
   */
  readonly retryAfterMs: number;
  /** Monotonic clock, in milliseconds. */
  readonly now: () => number;
  /** Called for failures of background loads. */
  readonly onBackgroundFailure: (error: unknown) => void;
}

export function createRefreshing<T extends object>(options: RefreshingOptions<T>): Refreshing<T> {
  const { now } = options;
  let kept: T | undefined;
  let refreshAtMs = 0;
  let failure: { readonly error: unknown; readonly untilMs: number } | undefined;
  let loading: Promise<T> | undefined;

  async function load(): Promise<T> {
    try {
      kept = await options.load(kept);
      refreshAtMs = now() + options.refreshAfterMs;
      failure = undefined;
      return kept;
    } catch (error) {
      failure = { error, untilMs: now() + options.retryAfterMs };
      throw error;
    } finally {
      loading = undefined;
    }
  }

  return {
    async get() {
      const resting = failure !== undefined && now() < failure.untilMs;
      if (kept !== undefined && options.usable(kept)) {
        if (now() >= refreshAtMs && !resting && loading === undefined) {
          loading = load();
          loading.catch(options.onBackgroundFailure);
        }
        return kept;
      }
      if (resting) throw failure?.error;
      loading ??= load();
      return await loading;
    },
  };
}
