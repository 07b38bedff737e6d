/** Steps of access requests as events in a recorder's signed log. */
import { encodeAccessEvent } from '../wire/recorder-api/access-event.ts';
import type { AccessStep } from './requests.ts';

/** Returns the event of a step. */
export function encodeStep({ step, record, by }: AccessStep, unixMs: number): string {
  const { id, requester, groups, user, writes, namespaces, reason, durationMs, expiresMs, decisions } =
    record;
  return encodeAccessEvent({
    timestamp: Math.floor(unixMs / 1000),
    request: id,
    step,
    requester: requester.name,
    node: requester.node,
    groups,
    user,
    writes,
    namespaces,
    reason,
    durationSeconds: Math.round(durationMs / 1000),
    expires: new Date(expiresMs).toISOString(),
    approvers: decisions.filter(({ verdict }) => verdict === 'approved').map((one) => one.by.name),
    comment: decisions.at(-1)?.reason ?? '',
    source: {
      node: by.node,
      nodeID: by.nodeId,
      ...(by.kind === 'user' ? { nodeUser: by.name } : {}),
    },
  });
}
