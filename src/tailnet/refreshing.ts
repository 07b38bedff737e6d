/** A value that is loaded when it is first needed, kept, and loaded again in the background before it is too old. */

export interface Refreshing<T> {
  /** The value: at once while the kept one is usable, else after loading. Concurrent callers share one load. */
  get(): Promise<T>;
}

export interface RefreshingOptions<T> {
  /** `kept` is the value so far. */
  readonly load: (kept: T | undefined) => Promise<T>;
  /** Whether a kept value may still be handed out. */
  readonly usable: (kept: T) => boolean;
  /** A kept value older than this is loaded again while it goes on being used. */
  readonly refreshAfterMs: number;
  /** After a failure, for this long: the kept value if usable, else the same failure again. */
  readonly retryAfterMs: number;
  /** Monotonic milliseconds. */
  readonly now: () => number;
  /** Told about failures that nobody waits for. */
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
