/** What the API server says that the account which asks may do. */
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

/** One thing that can be done; without a namespace: in all of them. */
export interface Access {
  readonly verb: string;
  readonly group: string;
  readonly resource: string;
  readonly subresource?: string;
  readonly namespace?: string;
  /** Of the object; without it: of all. */
  readonly name?: string;
}

/** Whether the account that asks may do something. */
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

/** What the account that asks may do in a namespace, as far as the API server can list it. */
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
