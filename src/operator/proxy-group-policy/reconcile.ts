/** Reconciles the ProxyGroupPolicies of a namespace: writes or removes its admission policies. Effects only. */
import { KINDS, knownKindOf } from '../kube-object.ts';
import { applyChanged } from '../workload/apply.ts';
import { removeExact } from '../workload/cleanup.ts';
import { isActive, type Reconciler, type ReconcilerDeps } from '../workload/reconciler.ts';
import { admissionObjects, POLICY_LABEL, policyNames } from './admission-specs.ts';
import { parsePolicySpec } from './resource.ts';

/**
 * Creates the reconciler. Each of its keys is a namespace, because all ProxyGroupPolicies of a namespace share its
 * admission policies.
 */
export function createProxyGroupPolicyReconciler(
  deps: Pick<ReconcilerDeps, 'client' | 'leaving'>,
): Reconciler {
  const { client } = deps;
  return {
    async reconcile(namespace) {
      const { items } = await client.list(KINDS.proxyGroupPolicy, { namespace });
      const policies = items.filter((policy) => isActive(deps, policy));
      if (policies.length === 0) await removeAll(namespace);
      else
        for (const desired of admissionObjects(namespace, policies.map(parsePolicySpec))) {
          const { name } = desired.metadata;
          await applyChanged(client, desired, await client.get(knownKindOf(desired), { name }));
        }
      return undefined;
    },
  };

  async function removeAll(namespace: string): Promise<void> {
    for (const name of policyNames(namespace))
      for (const kind of [KINDS.admissionPolicyBinding, KINDS.admissionPolicy]) {
        const existing = await client.get(kind, { name });
        if (existing?.metadata.labels?.[POLICY_LABEL] === namespace) await removeExact(deps, existing);
      }
  }
}
