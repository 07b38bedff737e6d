/**
 * Sends access reviews that detect missing rights of the gateway's own account, over separate connections to the API
 * server.
 */
import { createApiClient } from '../doctor/api-client.ts';
import { ACCOUNT_REVIEW, accountRefusal, isMarked } from '../kube/account-refusal.ts';
import type { ApiServer } from '../kube/api-server.ts';
import { AUDIT_EXTRA } from '../kube/audit-extras.ts';
import { createAccountRefusals, type AccountRefusals } from '../proxy/gate/account-refusals.ts';

/**
 * @param auditExtras true if requests have user extras for the audit log; the account then needs the right to set
 *   extras
 * @param prefix start of the path of a review, for example the path of a kcp workspace
 */
export function openAccountRefusals(
  { auditExtras }: { readonly auditExtras: boolean },
  apiServer: ApiServer,
  prefix = '',
): AccountRefusals {
  // A gateway that sends the caller's identity in request headers has no account that could lack rights.
  if (apiServer.requestHeader === true) return { find: () => undefined };
  const client = createApiClient(apiServer, Date.now, prefix);
  const extra = auditExtras ? Object.values(AUDIT_EXTRA).map((key) => [key, 'tailcast'] as const) : [];
  return createAccountRefusals(
    async ({ user, groups }, signal) => {
      const { path, body } = ACCOUNT_REVIEW;
      const answer = await client.post(path, body, signal, { user, groups, extra });
      if (answer.status === 401) apiServer.refused();
      return {
        refusal: accountRefusal(answer.status, answer.body),
        marks: answer.status === 201 && isMarked(answer.headers),
      };
    },
    () => performance.now(),
  );
}
