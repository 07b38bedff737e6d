/**
 * Schema of the `ProxyGroupPolicy` custom resource (`tailscale.com/v1alpha1`).
 * CRD: `deploy/crds/proxygrouppolicy.yaml`.
 */
import { z } from 'zod';

const policySchema = z.object({
  spec: z
    .object({ ingress: z.array(z.string()).default([]), egress: z.array(z.string()).default([]) })
    .prefault({}),
});

/** Names of the ProxyGroups that objects of the namespace may use, for ingress and for egress. */
export type ProxyGroupPolicySpec = z.infer<typeof policySchema>['spec'];

/** @throws ZodError if the cluster has another version of the CRD */
export function parsePolicySpec(object: unknown): ProxyGroupPolicySpec {
  return policySchema.parse(object).spec;
}
