/** Encodes the steps of access requests as events, which a recorder stores in its signed log. */
import { encodeAccessEvent } from '../wire/recorder-api/access-event.ts';
import type { AccessStep } from './requests.ts';

/** Returns the event of a step. */
export function encodeStep({ step, record, by }: AccessStep, unixMs: number): string {
  const { id, requester, groups, user, writes, cluster, namespaces, reason, call, durationMs, expiresMs } =
    record;
  const { approvers, decisions } = record;
  const approved = decisions.filter(({ verdict }) => verdict === 'approved').map((one) => one.by.name);
  return encodeAccessEvent({
    timestamp: Math.floor(unixMs / 1000),
    request: id,
    step,
    requester: requester.name,
    node: requester.node,
    groups,
    user,
    writes,
    ...(cluster === '' ? {} : { cluster }),
    namespaces,
    reason,
    call,
    durationSeconds: Math.round(durationMs / 1000),
    expires: new Date(expiresMs).toISOString(),
    approvers: approved,
    approvalsMissing: Math.max(0, (approvers?.count ?? 0) - approved.length),
    comment: decisions.at(-1)?.reason ?? '',
    source: {
      node: by.node,
      nodeID: by.nodeId,
      ...(by.kind === 'user' ? { nodeUser: by.name } : {}),
    },
  });
}
