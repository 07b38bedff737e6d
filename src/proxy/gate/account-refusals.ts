/** Determines whether the API server refuses the gateway's own account, and caches the result for a second. */
import { BoundedMap } from '../../bounded-map.ts';
import { TailcastError } from '../../errors.ts';
import type { ImpersonationTarget } from '../../impersonation/target.ts';
import { isAlwaysMarked, mayBeAccountRefusal } from '../../kube/account-refusal.ts';
import type { Admission } from './gate.ts';

/** Result of a review. */
export interface AccountReview {
  /** Sentence with which the API server refuses the gateway's account; undefined if it does not. */
  readonly refusal: string | undefined;
  /** True if the API server accepts the account, and priority and fairness marks its responses. */
  readonly marks: boolean;
}

/** Sends a request as `caller` to which only the API server responds. */
export type AskAccountRefusal = (caller: ImpersonationTarget, signal: AbortSignal) => Promise<AccountReview>;

export interface AccountRefusals {
  /**
   * Returns undefined if a response cannot be a refusal of the gateway's account. Otherwise resolves with
   * `UPSTREAM_REFUSED_ACCOUNT` if the API server refuses the account, or refused it before its rules were loaded. It
   * resolves with undefined if neither is proven, or if too many such requests are in flight. Never rejects.
   *
   * @param headers of the response, flat list
   */
  find(
    admission: Pick<Admission, 'impersonation' | 'info'>,
    status: number,
    headers: readonly string[],
  ): Promise<TailcastError | undefined> | undefined;
}

const REMEMBERED_MS = 1_000;
const TIMEOUT_MS = 5_000;
const MAX_IN_FLIGHT = 64;
const MAX_REMEMBERED = 1_000;

export function createAccountRefusals(ask: AskAccountRefusal, monotonicMs: () => number): AccountRefusals {
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
      // without proof the response is relayed unchanged
      return { refusal: undefined, marks: false };
    } finally {
      inFlight -= 1;
    }
  }

  return {
    find({ impersonation, info }, status, headers) {
      // the API server of another cluster is not trusted
      if (impersonation === undefined || info.clusterPrefix !== '') return undefined;
      if (!mayBeAccountRefusal(status, headers)) return undefined;
      const decide = ({ refusal, marks }: AccountReview): TailcastError | undefined => {
        if (refusal !== undefined) return new TailcastError('UPSTREAM_REFUSED_ACCOUNT', refusal);
        // the API server refused the account before the review, or priority and fairness would have marked the response
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
