/** Converts access requests to the form that the page and the commands show. */
import type { Caller } from '../proxy/gate/gate.ts';
import { isRequester, type AccessRecord } from './record.ts';
import { mayDecideAbout, type Decider } from './requests.ts';
import { accessOf, describeAsk, describeWindows, stateAt } from './rules.ts';

/** Returns an access request in the form that this viewer sees. */
export function requestView(record: AccessRecord, viewer: Decider, unixMs: number): object {
  const state = stateAt(record, unixMs);
  const isMine = isRequester(record, viewer.identity);
  const decides = mayDecideAbout(record, viewer);
  return {
    id: record.id,
    state,
    access: describeAsk(accessOf(record)),
    requester: record.requester.name,
    node: record.requester.node,
    ...(record.cluster === '' ? {} : { cluster: record.cluster }),
    namespaces: record.namespaces,
    reason: record.reason,
    call: record.call,
    durationSeconds: Math.round(record.durationMs / 1000),
    createdAt: new Date(record.createdMs).toISOString(),
    expiresAt: new Date(record.expiresMs).toISOString(),
    approvalsNeeded: record.approvers?.count ?? 0,
    decisions: record.decisions.map(({ verdict, by, atMs, reason }) => ({
      verdict,
      by: by.name,
      at: new Date(atMs).toISOString(),
      reason,
    })),
    isMine,
    mayDecide: decides && state === 'pending',
    mayRevoke: (decides || isMine) && (state === 'granted' || (isMine && state === 'pending')),
  };
}

/** Returns the groups and users that a caller may request. */
export function requestable({ access = [] }: Caller): readonly object[] {
  return access.map(
    ({ groups, users, writes, namespaces, maxDurationMs, requireReason, approvers, ...rule }) => ({
      groups,
      users,
      writes,
      namespaces,
      maxDurationSeconds: Math.round(maxDurationMs / 1000),
      requireReason,
      approvals: approvers?.count ?? 0,
      ...(rule.windows.length === 0 ? {} : { windows: describeWindows(rule) }),
    }),
  );
}
