/**
 * Looks at start-up whether the gateway's own account may do more than impersonate: then a request that lost its
 * impersonation would not be refused but answered. Only a warning: an administrator may have reasons, and may be told.
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

/** Resolves when it has said what there is to say; never rejects. */
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
    // the gateway has ended
  }
}
