/** Checks that an operator holds the Lease of the leader election. */
import { KINDS, type KubeObject } from '../../operator/kube-object.ts';
import { leaseSchema } from '../../operator/leader.ts';
import { failed, ok, skipped, type Check, type CheckVerdict } from '../checks.ts';
import type { ClusterView } from './cluster-view.ts';

export interface LeadingFacts {
  readonly view: ClusterView;
  readonly namespace: string;
  /** Undefined if leader election is disabled. */
  readonly lease: string | undefined;
  readonly unixMs: () => number;
}

/** Tolerance for the difference between the clocks of two machines, in milliseconds. */
const SKEW_MS = 30_000;
const START =
  'check that its pod runs and that its log contains “leading” (kubectl -n <namespace> get pods, logs)';

export function leaderCheck(facts: LeadingFacts): Check {
  const { view, namespace, lease: name } = facts;
  const remedy = START.replace('<namespace>', namespace);
  return {
    id: 'leader',
    title: 'leader',
    needs: ['credential'],
    remedy,
    async run() {
      if (name === undefined) return skipped('no election: --lease=off');
      return leaseVerdict(await view.get(KINDS.lease, { namespace, name }), facts, remedy);
    },
  };
}

function leaseVerdict(
  lease: KubeObject | undefined,
  { lease: name, unixMs }: LeadingFacts,
  remedy: string,
): CheckVerdict {
  if (lease === undefined) return failed(`there is no Lease ${name}: no operator has started yet`, remedy);
  const { holderIdentity, leaseDurationSeconds, renewTime, acquireTime, leaseTransitions } =
    leaseSchema.parse(lease).spec;
  if (holderIdentity === '') return failed('no operator leads: the last one released the Lease', remedy);
  const overdueMs = unixMs() - Date.parse(renewTime) - leaseDurationSeconds * 1000;
  if (!(overdueMs < SKEW_MS))
    return failed(
      `${holderIdentity} has not renewed its Lease since ${renewTime}, so no operator leads`,
      remedy,
    );
  return ok(`${holderIdentity} since ${acquireTime}, after ${leaseTransitions} others`);
}
