/** A cache of one credential that a kubeconfig's exec plugin or OpenID Connect provider issues. */

/** Options of credentials that a user of a kubeconfig gets from another program. */
export interface UserCredentialOptions {
  /** Path of the kubeconfig that contains the user. Relative paths are relative to its directory. */
  readonly file: string;
  readonly userName: string;
  /** Wall clock, in milliseconds since 1970, for absolute expiry times. */
  readonly wallClock: () => number;
  /** Maximum time until the credentials arrive, in milliseconds. */
  readonly timeoutMs?: number;
}

/** A bearer token, a client certificate, or both. */
export interface Credential {
  readonly token: string | undefined;
  /** Client certificate and its key, in PEM. */
  readonly certificate: { readonly cert: string; readonly key: string } | undefined;
}

export interface TimedCredential extends Credential {
  /** Expiry time, in milliseconds since 1970; infinite if the issuer reports none. */
  readonly expiresAtMs: number;
}

export type CredentialSource = ReturnType<typeof cacheCredential>;

/** Time before the expiry of a credential at which it is replaced, in milliseconds. */
const EXPIRY_MARGIN_MS = 5_000;

/**
 * Creates a cache for the results and errors of `issue`.
 *
 * @param wallClock milliseconds since 1970
 * @param minIntervalMs minimum time between two calls of `issue`, also after a failed call
 */
export function cacheCredential(
  issue: () => Promise<TimedCredential>,
  wallClock: () => number,
  minIntervalMs: number,
) {
  let last: { readonly result: Promise<TimedCredential>; readonly startedAtMs: number } | undefined;
  let validUntilMs = 0;

  function start(): Promise<TimedCredential> {
    const startedAtMs = wallClock();
    validUntilMs = Number.POSITIVE_INFINITY;
    const result = issue().then(
      (timed) => {
        validUntilMs = Math.max(timed.expiresAtMs - EXPIRY_MARGIN_MS, wallClock() + minIntervalMs);
        return timed;
      },
      (error: unknown) => {
        validUntilMs = wallClock() + minIntervalMs;
        throw error;
      },
    );
    last = { result, startedAtMs };
    return result;
  }

  return {
    /**
     * Returns the cached credential while it is valid. Otherwise requests a new credential, with a single request for
     * all waiting callers.
     */
    async credential(): Promise<Credential> {
      const { token, certificate } = await (last !== undefined && wallClock() < validUntilMs
        ? last.result
        : start());
      return { token, certificate };
    },
    /** Called after the API server refused the cached credential, to discard it. */
    forget(): void {
      if (last !== undefined && wallClock() - last.startedAtMs >= minIntervalMs) validUntilMs = 0;
    },
  };
}
