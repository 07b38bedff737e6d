/** Describes the access that a granted request gives to an API request. Pure. */
import { ELEVATION_EXTRA } from '../kube/audit-extras.ts';
import type { Elevation, Petition } from '../proxy/gate/elevation.ts';
import type { AccessRule } from '../tailnet/access-rules.ts';
import type { AccessRecord } from './record.ts';
import { describeAsk, validApprovals } from './rules.ts';

/** Returns the access, with the user extras for the audit log. */
export function elevationOf(petition: Petition, record: AccessRecord, rule: AccessRule): Elevation {
  const { own, ask } = petition;
  const { id, requester, expiresMs } = record;
  const approvers = (rule.approvers === undefined ? [] : validApprovals(record, rule.approvers)).map(
    ({ by }) => by.name,
  );
  const extra = [
    ...own.extra,
    [ELEVATION_EXTRA.request, id] as const,
    [ELEVATION_EXTRA.requester, requester.name] as const,
    ...approvers.map((name) => [ELEVATION_EXTRA.approver, name] as const),
  ];
  const by = approvers.length === 0 ? '' : `, approved by ${approvers.join(', ')}`;
  return {
    id,
    petition,
    target: { user: ask.user ?? own.user, groups: ask.writes ? own.groups : petition.groups, extra },
    approvers,
    enforceRecorder: rule.enforceRecorder,
    warning: `access to ${describeAsk(ask)} until ${new Date(expiresMs).toISOString()} (request ${id}${by})`,
  };
}
