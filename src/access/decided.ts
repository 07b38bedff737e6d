/** Applies decisions to the records of access requests. Pure. */
import { accessRefused } from './messages.ts';
import { mayBeSamePerson, type AccessDecision, type AccessRecord } from './record.ts';
import { decidedMs, isApproved, isSameAccess, mayDecide, stateAt, storedDecision } from './rules.ts';

/**
 * Returns the record after a decision.
 * @param all all known records, some of which a revocation ends
 * @throws TailcastError `ACCESS_REQUEST_REFUSED`
 */
export function decided(
  record: AccessRecord,
  decision: AccessDecision,
  nowMs: number,
  all: readonly AccessRecord[],
): AccessRecord {
  checkDecision(record, decision, nowMs);
  const { verdict } = decision;
  if (verdict === 'revoked') return revoked(record, decision, nowMs, all);
  const next = withDecision(record, decision);
  if (verdict === 'denied') return { ...next, state: verdict };
  if (!isApproved(next, { approvers: record.approvers ?? undefined })) return next;
  return { ...next, state: 'granted', expiresMs: nowMs + record.durationMs };
}

/**
 * Returns the record after a revocation. The revocation also ends overlapping access that a gateway with a faster clock
 * has granted, and lasts until all overlapping access would have expired.
 */
function revoked(
  record: AccessRecord,
  decision: AccessDecision,
  nowMs: number,
  all: readonly AccessRecord[],
): AccessRecord {
  // a requester who withdraws a pending request ends no access
  if (record.state === 'pending' && mayBeSamePerson(record.requester, decision.by))
    return { ...withDecision(record, decision), state: 'revoked', expiresMs: nowMs };
  const grants = all.filter((one) => one.state === 'granted' && isSameAccess(one, record));
  const atMs = Math.max(decision.atMs, ...grants.map(decidedMs));
  const expiresMs = Math.max(nowMs + record.maxDurationMs, ...grants.map((one) => one.expiresMs));
  return { ...withDecision(record, { ...decision, atMs }), state: 'revoked', expiresMs };
}

function withDecision(record: AccessRecord, decision: AccessDecision): AccessRecord {
  const { revision, decisions, approvers } = record;
  const stored = storedDecision(decision, approvers);
  return { ...record, revision: revision + 1, decisions: [...decisions, stored] };
}

function checkDecision(record: AccessRecord, decision: AccessDecision, nowMs: number): void {
  const { approvers, requester, decisions, id } = record;
  const { verdict, by } = decision;
  const state = stateAt(record, nowMs);
  const isOpen = state === 'pending' || (state === 'granted' && verdict === 'revoked');
  if (!isOpen) throw accessRefused(`request ${id} is ${state} already`);
  const isOwn = mayBeSamePerson(requester, by);
  if (isOwn && verdict !== 'revoked') throw accessRefused('a requester cannot decide about the own request');
  if (!isOwn && (approvers === null || !mayDecide(approvers, requester, decision)))
    throw accessRefused(`you may not decide about request ${id}`);
  if (verdict === 'approved' && decisions.some((one) => mayBeSamePerson(one.by, by)))
    throw accessRefused(`you have approved request ${id} already`);
}
