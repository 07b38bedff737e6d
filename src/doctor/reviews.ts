/** Reviews of the account's own access rights at the API server. */
import { z } from 'zod';
import type { ApiClient } from './api-client.ts';

const texts = z
  .array(z.string())
  .nullish()
  .transform((value) => value ?? []);
const RULES = z.object({
  status: z.object({
    resourceRules: z
      .array(z.object({ verbs: texts, apiGroups: texts, resources: texts, resourceNames: texts }))
      .nullish()
      .transform((value) => value ?? []),
    incomplete: z.boolean().nullish(),
  }),
});
const ACCESS = z.object({ status: z.object({ allowed: z.boolean() }) });

export type Rule = z.infer<typeof RULES>['status']['resourceRules'][number];

/** An action to review. If the namespace is undefined, the review applies to all namespaces. */
export interface Access {
  readonly verb: string;
  readonly group: string;
  readonly resource: string;
  readonly subresource?: string;
  readonly namespace?: string;
  /** Name of one object; undefined stands for all objects. */
  readonly name?: string;
}

/** Returns true if the account may perform an action. */
export async function may(client: ApiClient, access: Access, signal: AbortSignal): Promise<boolean> {
  const answer = await client.post(
    '/apis/authorization.k8s.io/v1/selfsubjectaccessreviews',
    {
      apiVersion: 'authorization.k8s.io/v1',
      kind: 'SelfSubjectAccessReview',
      spec: { resourceAttributes: access },
    },
    signal,
  );
  const parsed = ACCESS.safeParse(answer.body);
  if (!parsed.success) throw new Error(`the API server answered the access review with ${answer.status}`);
  return parsed.data.status.allowed;
}

/**
 * Returns the rules for the account's rights in a namespace. `incomplete` is true if the API server cannot list all
 * rules.
 */
export async function readRules(
  client: ApiClient,
  namespace: string,
  signal: AbortSignal,
): Promise<{ readonly rules: readonly Rule[]; readonly incomplete: boolean }> {
  const answer = await client.post(
    '/apis/authorization.k8s.io/v1/selfsubjectrulesreviews',
    { apiVersion: 'authorization.k8s.io/v1', kind: 'SelfSubjectRulesReview', spec: { namespace } },
    signal,
  );
  const parsed = RULES.safeParse(answer.body);
  if (!parsed.success) throw new Error(`the API server answered the rules review with ${answer.status}`);
  const { resourceRules, incomplete } = parsed.data.status;
  return { rules: resourceRules, incomplete: incomplete === true };
}
