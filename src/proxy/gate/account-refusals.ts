/** Determines whether the API server refuses the gateway's own account, and caches the result for a second. */
import { BoundedMap } from '../../bounded-map.ts';
import { TailcastError } from '../../errors.ts';
import type { ImpersonationTarget } from '../../impersonation/target.ts';
import { isAlwaysMarked, mayBeAccountRefusal } from '../../kube/account-refusal.ts';
import type { Admission } from './gate.ts';

/** Result of the check of the gateway's account. */
export interface AccountReview {
  /**
   * Error message with which the API server refuses the gateway's account; undefined if it accepts the
   * account.
   */
  readonly refusal: string | undefined;
  /**
   * True if the API server accepts the account, and its API Priority and Fairness adds headers to responses.
   */
  readonly marks: boolean;
}

/**
 * Sends a request as `caller`. Only the API server itself serves this request, not an aggregated API server or a pod.
 */
export type AskAccountRefusal = (caller: ImpersonationTarget, signal: AbortSignal) => Promise<AccountReview>;

export type AccountRefusals = ReturnType<typeof createAccountRefusals>;

const REMEMBERED_MS = 1_000;
const TIMEOUT_MS = 5_000;
const MAX_IN_FLIGHT = 64;
const MAX_REMEMBERED = 1_000;

export function createAccountRefusals(ask: AskAccountRefusal, monotonicMs: () => number) {
  const known = new BoundedMap<{
    readonly untilMs: number;
    readonly review: Promise<AccountReview>;
  }>(MAX_REMEMBERED);
  let inFlight = 0;

  async function askOnce(caller: ImpersonationTarget): Promise<AccountReview> {
    inFlight += 1;
    try {
      return await ask(caller, AbortSignal.timeout(TIMEOUT_MS));
    } catch {
      // a failed check proves nothing, so the gateway relays the response unchanged
      return { refusal: undefined, marks: false };
    } finally {
      inFlight -= 1;
    }
  }

  return {
    /**
     * Returns undefined if a response cannot be a refusal of the gateway's account, or if too many checks are in
     * flight. Otherwise checks the account. Resolves with `UPSTREAM_REFUSED_ACCOUNT` if the check proves that the API
     * server refuses the account, or that it refused the account while it had not loaded its RBAC rules yet. Resolves
     * with undefined without such a proof. Never rejects.
     *
     * @param headers headers of the response, as a flat list
     */
    find(
      { impersonation, info }: Pick<Admission, 'impersonation' | 'info'>,
      status: number,
      headers: readonly string[],
    ): Promise<TailcastError | undefined> | undefined {
      // the API server of another cluster is not trusted
      if (impersonation === undefined || info.clusterPrefix !== '') return undefined;
      if (!mayBeAccountRefusal(status, headers)) return undefined;
      const decide = ({ refusal, marks }: AccountReview): TailcastError | undefined => {
        if (refusal !== undefined) return new TailcastError('UPSTREAM_REFUSED_ACCOUNT', refusal);
        // The API server accepts the account now, but this response is a refusal of the account. The response has no
        // headers of API Priority and Fairness, so it comes from the impersonation check, which is an earlier step.
        return marks && isAlwaysMarked(info) ? new TailcastError('UPSTREAM_REFUSED_ACCOUNT') : undefined;
      };
      const key = JSON.stringify([impersonation.user, impersonation.groups]);
      const last = known.get(key);
      if (last !== undefined && monotonicMs() < last.untilMs) return last.review.then(decide);
      if (inFlight >= MAX_IN_FLIGHT) return undefined;
      const review = askOnce(impersonation);
      known.set(key, { untilMs: monotonicMs() + REMEMBERED_MS, review });
      return review.then(decide);
    },
  };
}
