/**
 * Detects that the API server refused a request because the gateway's own account may not impersonate. Kubernetes
 * responds to such a request with 403, as if the caller lacked a right. Clients treat a 403 as final.
 *
 * The 403 does not prove this cause, because a pod, a kubelet or an aggregated API may have sent it. The gateway
 * therefore sends an access review that impersonates the same caller. Only the API server responds to access reviews.
 */
import { z } from 'zod';
import type { RequestInfo } from './request-info.ts';

/** The access review that the gateway sends. Every authenticated user may create such a review. */
export const ACCOUNT_REVIEW = {
  path: '/apis/authorization.k8s.io/v1/selfsubjectaccessreviews',
  body: {
    apiVersion: 'authorization.k8s.io/v1',
    kind: 'SelfSubjectAccessReview',
    spec: { nonResourceAttributes: { path: '/version', verb: 'get' } },
  },
} as const;

/**
 * Returns true if a response may mean that the API server refused the gateway's own account. Such a refusal lacks the
 * headers of API Priority and Fairness, because the API server checks impersonation first.
 *
 * @param headers flat list
 */
export function mayBeAccountRefusal(status: number, headers: readonly string[]): boolean {
  return status === 403 && !isMarked(headers);
}

/**
 * True if a response has the headers of the API server's Priority and Fairness.
 *
 * @param headers flat list
 */
export function isMarked(headers: readonly string[]): boolean {
  return headers.some((name, index) => index % 2 === 0 && name.toLowerCase().startsWith('x-kubernetes-pf-'));
}

/**
 * True if API Priority and Fairness adds its headers to all responses to this request. API Priority and Fairness skips
 * long-running requests. Source: `BasicLongRunningRequestCheck` in `k8s.io/apiserver/pkg/endpoints/filters`.
 */
export function isAlwaysMarked({ verb, subresource }: Pick<RequestInfo, 'verb' | 'subresource'>): boolean {
  return verb !== 'proxy' && !UNMARKED_SUBRESOURCES.has(subresource);
}

const UNMARKED_SUBRESOURCES: ReadonlySet<string> = new Set(['attach', 'exec', 'log', 'portforward', 'proxy']);

/**
 * Returns the API server's message about the gateway's account, such as `users "alice" is forbidden: User "gateway"
 * cannot impersonate …`; undefined for every other response. A caller who may not create the review gets a 403 as
 * well, but its message contains `cannot create`.
 *
 * @param status status of the response to {@link ACCOUNT_REVIEW}
 * @param body body of this response, as parsed JSON
 */
export function accountRefusal(status: number, body: unknown): string | undefined {
  const refusal = status === 403 ? REFUSAL.safeParse(body).data : undefined;
  return refusal?.message.slice(0, MAX_SENTENCE_LENGTH);
}

const MAX_SENTENCE_LENGTH = 512;

/** Text in Go's format `%q`, in which quotes and backslashes are escaped. */
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
