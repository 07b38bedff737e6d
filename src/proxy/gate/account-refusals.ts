/** Determines whether the API server refuses the gateway's own account, and caches the result for a second. */
import { BoundedMap } from '../../bounded-map.ts';
import { TailcastError } from '../../errors.ts';
import type { ImpersonationTarget } from '../../impersonation/target.ts';
import { mayBeAccountRefusal } from '../../kube/account-refusal.ts';
import type { Admission } from './gate.ts';

/**
 * Sends a request as `caller` to which only the API server responds.
 *
 * @returns the sentence with which the API server refuses the gateway's account, or undefined
 */
export type AskAccountRefusal = (
  caller: ImpersonationTarget,
  signal: AbortSignal,
) => Promise<string | undefined>;

export interface AccountRefusals {
  /**
   * Returns undefined if a response cannot be a refusal of the gateway's account. Otherwise resolves with
   * `UPSTREAM_REFUSED_ACCOUNT` if the API server refuses the account, and with undefined if it does not, if it does
   * not respond, or if too many such requests are in flight. Never rejects.
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
    readonly found: Promise<TailcastError | undefined>;
  }>(MAX_REMEMBERED);
  let inFlight = 0;

  async function askOnce(caller: ImpersonationTarget): Promise<TailcastError | undefined> {
    inFlight += 1;
    try {
      const refusal = await ask(caller, AbortSignal.timeout(TIMEOUT_MS));
      return refusal === undefined ? undefined : new TailcastError('UPSTREAM_REFUSED_ACCOUNT', refusal);
    } catch {
      // without proof the response is relayed unchanged
      return undefined;
    } finally {
      inFlight -= 1;
    }
  }

  return {
    find({ impersonation, info }, status, headers) {
      // the API server of another cluster is not trusted
      if (impersonation === undefined || info.clusterPrefix !== '') return undefined;
      if (!mayBeAccountRefusal(status, headers)) return undefined;
      const key = JSON.stringify([impersonation.user, impersonation.groups]);
      const last = known.get(key);
      if (last !== undefined && monotonicMs() < last.untilMs) return last.found;
      if (inFlight >= MAX_IN_FLIGHT) return undefined;
      const found = askOnce(impersonation);
      known.set(key, { untilMs: monotonicMs() + REMEMBERED_MS, found });
      return found;
    },
  };
}
