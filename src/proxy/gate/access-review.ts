/**
 * Access reviews: before a session, or before a request to a kubelet, pod or Service, the gateway impersonates the
 * caller and sends a SelfSubjectAccessReview to the API server.
 *
 * Kubernetes derives the verb from the HTTP method. An exec over WebSocket, or a command through the kubelet, is a GET.
 * Before Kubernetes 1.35, the right to `get` is therefore sufficient for such a request. The gateway always checks
 * `create` for sessions, and repeats the check during a session.
 */
import { BoundedMap } from '../../bounded-map.ts';
import { TailcastError } from '../../errors.ts';
import type { ImpersonationTarget } from '../../impersonation/target.ts';
import type { RequestInfo } from '../../kube/request-info.ts';
import type { PolicyClass } from './policy.ts';

/** Attributes of a SelfSubjectAccessReview. */
export type AccessQuestion =
  | {
      /** Path prefix of the cluster, from `RequestInfo.clusterPrefix`. */
      readonly clusterPrefix?: string;
      readonly verb: string;
      readonly group: string;
      readonly version: string;
      readonly namespace: string;
      readonly resource: string;
      readonly subresource: string;
      readonly name: string;
    }
  | { readonly verb: string; readonly path: string };

/**
 * Sends a review to the API server as `caller`.
 * @returns true if the API server allows the access
 * @throws Error if there is no response
 */
export type AskAccess = (
  question: AccessQuestion,
  caller: ImpersonationTarget,
  signal: AbortSignal,
) => Promise<boolean>;

export type AccessReviews = ReturnType<typeof createAccessReviews>;

/** Time for which a result is cached, and timeout of a review, in milliseconds. */
export const REVIEW_TTL_MS = 5_000;
const REVIEW_TIMEOUT_MS = 5_000;
/** Maximum number of cached results. The oldest result is removed first. */
export const MAX_REVIEWS = 10_000;

/**
 * Classes of sessions. Access reviews of sessions check the verb `create` for resources, whatever the HTTP method is.
 */
const SESSIONS: ReadonlySet<PolicyClass> = new Set([
  'exec',
  'attach',
  'portForward',
  'kubeletExec',
  'podProxyUpgrade',
  'serviceProxyUpgrade',
  'opaqueUpgrade',
]);
/**
 * Classes of requests to programs and other APIs. Access reviews of these requests check the verb of the HTTP method.
 */
const REQUESTS: ReadonlySet<PolicyClass> = new Set([
  'kubeletRead',
  'podProxyRequest',
  'serviceProxyRequest',
  'otherProxy',
]);

/** Returns the review for a class of requests; undefined if none is needed. */
export function questionOf(
  policyClass: PolicyClass | undefined,
  info: RequestInfo,
): AccessQuestion | undefined {
  if (policyClass === undefined) return undefined;
  const isSession = SESSIONS.has(policyClass);
  if (!isSession && !REQUESTS.has(policyClass)) return undefined;
  if (!info.isResourceRequest) return { verb: info.verb, path: info.path };
  return {
    ...(info.clusterPrefix === '' ? {} : { clusterPrefix: info.clusterPrefix }),
    verb: isSession ? 'create' : info.verb,
    group: info.apiGroup,
    version: info.apiVersion,
    namespace: info.namespace,
    resource: info.resource,
    subresource: info.subresource,
    name: info.name,
  };
}

interface Kept {
  readonly answer: Promise<boolean>;
  readonly untilMs: number;
}

/**
 * Creates the reviews of one gateway. If several requests need the same review at the same time, the gateway sends the
 * review once. Failed reviews are not cached.
 */
export function createAccessReviews(ask: AskAccess, monotonicMs: () => number) {
  const kept = new BoundedMap<Kept>(MAX_REVIEWS);

  function answerTo(question: AccessQuestion, caller: ImpersonationTarget): Promise<boolean> {
    const id = JSON.stringify([caller.user, caller.groups, caller.extra, question]);
    const known = kept.get(id);
    if (known !== undefined && monotonicMs() < known.untilMs) return known.answer;
    // the signal of the caller is not used, because other requests may wait for the same result
    const answer = ask(question, caller, AbortSignal.timeout(REVIEW_TIMEOUT_MS));
    const entry: Kept = { answer, untilMs: monotonicMs() + REVIEW_TTL_MS };
    kept.set(id, entry);
    answer.catch(() => {
      if (kept.get(id) === entry) kept.delete(id);
    });
    return answer;
  }

  return {
    /** @throws TailcastError `ACCESS_REVIEW_REFUSED`, `ACCESS_REVIEW_FAILED` */
    async assertAllowed(
      question: AccessQuestion,
      caller: ImpersonationTarget,
      signal: AbortSignal,
    ): Promise<void> {
      let isAllowed: boolean;
      try {
        isAllowed = await answerTo(question, caller);
      } catch (error) {
        throw new TailcastError('ACCESS_REVIEW_FAILED', undefined, { cause: error });
      }
      signal.throwIfAborted();
      if (!isAllowed) throw new TailcastError('ACCESS_REVIEW_REFUSED', describe(question));
    },
  };
}

function describe(question: AccessQuestion): string {
  if ('path' in question) return `${question.verb} ${question.path}`;
  const { verb, group, resource, subresource, namespace } = question;
  const what = [resource, ...(subresource === '' ? [] : [subresource])].join('/');
  const where = namespace === '' ? '' : ` in ${namespace}`;
  return `${verb} ${what}${group === '' ? '' : `.${group}`}${where}`;
}
