/**
 * Checks at the start that the gateway's account may only impersonate. If the account had more rights, the API server
 * would accept a request that lost its impersonation headers. The result is only a warning, because an administrator
 * may have reasons for more rights.
 */
import { createApiClient } from '../doctor/api-client.ts';
import { runChecks } from '../doctor/checks.ts';
import { permissionChecks } from '../doctor/permission-checks.ts';
import type { ApiServer } from '../kube/api-server.ts';
import type { Logger } from '../observe/logger.ts';

export interface RightsOptions {
  readonly apiServer: ApiServer;
  readonly mode: 'auth' | 'noauth';
  readonly podName: string | undefined;
  readonly log: Logger;
}

/** Resolves after the check; never rejects. */
export async function warnOfRights(options: RightsOptions, signal: AbortSignal): Promise<void> {
  const { apiServer, mode, podName, log } = options;
  if (mode === 'noauth') return;
  const client = createApiClient(apiServer, Date.now);
  const checks = permissionChecks({
    client: () => Promise.resolve(client),
    mode,
    namespace: 'default',
    podName,
  });
  try {
    for (const finding of await runChecks(checks, signal)) {
      if (finding.status === 'warning' || finding.status === 'failed') {
        const { id, summary, remedy } = finding;
        log.warn({ check: id, summary, remedy }, 'the gateway’s own account is not as it should be');
      }
    }
  } catch {
    // the gateway is stopping
  }
}
