/** Creates the client for a gateway's access reviews. The client uses separate connections to the API server. */
import { z } from 'zod';
import { createApiClient } from '../doctor/api-client.ts';
import { TailcastError } from '../errors.ts';
import type { ApiServer } from '../kube/api-server.ts';
import { createAccessReviews, type AccessReviews } from '../proxy/gate/access-review.ts';

const PATH = '/apis/authorization.k8s.io/v1/selfsubjectaccessreviews';
const ANSWER = z.looseObject({
  status: z.looseObject({ allowed: z.boolean(), denied: z.boolean().exactOptional() }),
});

/**
 * @returns undefined if the settings disable reviews
 * @throws TailcastError `CONFIG_INVALID` in noauth mode, because the gateway then does not know the Kubernetes user
 */
export function openAccessReviews(
  config: { readonly accessReview: boolean; readonly mode: 'auth' | 'noauth' },
  apiServer: ApiServer,
): AccessReviews | undefined {
  if (!config.accessReview) return undefined;
  assertReviewable(config);
  const client = createApiClient(apiServer, Date.now);
  return createAccessReviews(
    async (question, caller, signal) => {
      const { clusterPrefix = '', ...attributes } =
        'path' in question ? { ...question, clusterPrefix: '' } : question;
      const spec =
        'path' in attributes ? { nonResourceAttributes: attributes } : { resourceAttributes: attributes };
      const review = { apiVersion: 'authorization.k8s.io/v1', kind: 'SelfSubjectAccessReview', spec };
      const { status, body } = await client.post(`${clusterPrefix}${PATH}`, review, signal, caller);
      if (status === 401) apiServer.refused();
      if (status !== 201) throw new Error(`the API server answered ${status}`);
      const { allowed, denied } = ANSWER.parse(body).status;
      return allowed && denied !== true;
    },
    () => performance.now(),
  );
}

/** @throws TailcastError `CONFIG_INVALID` for reviews in noauth mode */
export function assertReviewable({
  accessReview,
  mode,
}: {
  readonly accessReview: boolean;
  readonly mode: 'auth' | 'noauth';
}): void {
  if (!accessReview || mode === 'auth') return;
  throw new TailcastError(
    'CONFIG_INVALID',
    'accessReview needs mode=auth: in noauth mode the API server checks the right of the caller itself',
  );
}
