/**
 * A review of our own before roads to a program: the cluster is asked, as the caller, whether it allows the session.
 *
 * Kubernetes asks itself, but follows the method of the request: an exec over WebSocket is a `get`, and so is a command run
 * by the kubelet, so that a right to read is enough for them in versions before 1.35. Here sessions always take `create`.
 * And it asks once: here the question is asked again while a session lasts.
 */
import { TailcastError } from '../../errors.ts';
import type { ImpersonationTarget } from '../../impersonation/target.ts';
import type { RequestInfo } from '../../kube/request-info.ts';
import type { PolicyClass } from './policy.ts';

/** The attributes of a SelfSubjectAccessReview. */
export type AccessQuestion =
  | {
      /** `RequestInfo.clusterPrefix`: the cluster that has to answer. */
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
 * Asks the API server as `caller`.
 * @returns whether it allows it
 * @throws whatever keeps it from answering
 */
export type AskAccess = (
  question: AccessQuestion,
  caller: ImpersonationTarget,
  signal: AbortSignal,
) => Promise<boolean>;

export interface AccessReviews {
  /** @throws TailcastError `ACCESS_REVIEW_REFUSED`, `ACCESS_REVIEW_FAILED` */
  assertAllowed(question: AccessQuestion, caller: ImpersonationTarget, signal: AbortSignal): Promise<void>;
}

/** How long an answer counts, and a question may take. */
export const REVIEW_TTL_MS = 5_000;
const REVIEW_TIMEOUT_MS = 5_000;
/** Answers that are kept; beyond that the oldest goes. */
export const MAX_REVIEWS = 10_000;

/** Sessions, whatever method brings them. */
const SESSIONS: ReadonlySet<PolicyClass> = new Set([
  'exec',
  'attach',
  'portForward',
  'kubeletExec',
  'podProxyUpgrade',
  'serviceProxyUpgrade',
  'opaqueUpgrade',
]);
/** Requests to programs and other APIs: what their method says. */
const REQUESTS: ReadonlySet<PolicyClass> = new Set([
  'kubeletRead',
  'podProxyRequest',
  'serviceProxyRequest',
  'otherProxy',
]);

/** The question that a request of a class takes; undefined: none. */
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

/** One per gateway. The same question at the same time is asked once; a question without an answer is not kept. */
export function createAccessReviews(ask: AskAccess, monotonicMs: () => number): AccessReviews {
  const kept = new Map<string, Kept>();

  function answerTo(question: AccessQuestion, caller: ImpersonationTarget): Promise<boolean> {
    const id = JSON.stringify([caller.user, caller.groups, caller.extra, question]);
    const known = kept.get(id);
    if (known !== undefined && monotonicMs() < known.untilMs) return known.answer;
    // whoever asked first may leave: others wait for the same answer
    const answer = ask(question, caller, AbortSignal.timeout(REVIEW_TIMEOUT_MS));
    const entry: Kept = { answer, untilMs: monotonicMs() + REVIEW_TTL_MS };
    kept.delete(id);
    kept.set(id, entry);
    answer.catch(() => {
      if (kept.get(id) === entry) kept.delete(id);
    });
    const [oldest] = kept.keys();
    if (kept.size > MAX_REVIEWS && oldest !== undefined) kept.delete(oldest);
    return answer;
  }

  return {
    async assertAllowed(question, caller, signal) {
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
