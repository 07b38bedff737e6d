/**
 * Recognises the API server's refusal of the gateway's own right to impersonate. Kubernetes answers such a
 * request with 403, as if the caller had no right, and clients treat a 403 as final.
 *
 * The response is no proof, because a pod, a kubelet or an aggregated API may have written it. The gateway
 * therefore sends a review as the same caller, to which only the API server responds.
 */
import { z } from 'zod';
import type { RequestInfo } from './request-info.ts';

/** The review request of the gateway. Every authenticated user may create it. */
export const ACCOUNT_REVIEW = {
  path: '/apis/authorization.k8s.io/v1/selfsubjectaccessreviews',
  body: {
    apiVersion: 'authorization.k8s.io/v1',
    kind: 'SelfSubjectAccessReview',
    spec: { nonResourceAttributes: { path: '/version', verb: 'get' } },
  },
} as const;

/**
 * Returns true if a response may be such a refusal. The impersonation filter runs before priority and fairness,
 * which marks all later responses.
 *
 * @param headers flat list
 */
export function mayBeAccountRefusal(status: number, headers: readonly string[]): boolean {
  return status === 403 && !isMarked(headers);
}

/**
 * True if priority and fairness of the API server marked a response.
 *
 * @param headers flat list
 */
export function isMarked(headers: readonly string[]): boolean {
  return headers.some((name, index) => index % 2 === 0 && name.toLowerCase().startsWith('x-kubernetes-pf-'));
}

/**
 * True if priority and fairness marks all responses to a request. It skips requests that may last long.
 * Source: `BasicLongRunningRequestCheck` in `k8s.io/apiserver/pkg/endpoints/filters`.
 */
export function isAlwaysMarked({ verb, subresource }: Pick<RequestInfo, 'verb' | 'subresource'>): boolean {
  return verb !== 'proxy' && !UNMARKED_SUBRESOURCES.has(subresource);
}

const UNMARKED_SUBRESOURCES: ReadonlySet<string> = new Set(['attach', 'exec', 'log', 'portforward', 'proxy']);

/**
 * Returns the API server's sentence about the gateway's account, such as `users "alice" is forbidden: User
 * "gateway" cannot impersonate …`; undefined for every other response. A caller without the right to create the
 * review gets a 403 as well, which says `cannot create`.
 *
 * @param status of the response to {@link ACCOUNT_REVIEW}
 * @param body of the response, as parsed JSON
 */
export function accountRefusal(status: number, body: unknown): string | undefined {
  const refusal = status === 403 ? REFUSAL.safeParse(body).data : undefined;
  return refusal?.message.slice(0, MAX_SENTENCE_LENGTH);
}

const MAX_SENTENCE_LENGTH = 512;

/** Go's `%q`: quotes and backslashes within the text are escaped. */
const QUOTED = String.raw`"(?:[^"\\]|\\.)*"`;
/**
 * The verb is `impersonate`, or with constrained impersonation for example `impersonate-on:user-info:create`.
 * Source: `k8s.io/apiserver/pkg/endpoints/handlers/responsewriters/errors.go`.
 */
const SENTENCE = new RegExp(`^[a-z0-9.]+(?: ${QUOTED})? is forbidden: User ${QUOTED} cannot impersonate`);
const REFUSAL = z.looseObject({
  kind: z.literal('Status'),
  reason: z.literal('Forbidden'),
  message: z.string().regex(SENTENCE),
});
