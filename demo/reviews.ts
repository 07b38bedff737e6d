import type { UserInfo } from './authentication.ts';
import { objectAt, type ApiObject } from './json.ts';
import { apiVersionOf, type Resource } from './resources.ts';

/**
 * Responds to an access review with the identity of the caller, or with the caller's rights. The rights are
 * unrestricted in this cluster. Source: k8s.io/api authentication/v1 and authorization/v1.
 */
export function answerReview(resource: Resource, body: ApiObject, user: UserInfo): ApiObject {
  const answer = {
    kind: resource.kind,
    apiVersion: apiVersionOf(resource),
    metadata: { creationTimestamp: null },
  };
  switch (resource.kind) {
    case 'SelfSubjectReview':
      return { ...answer, status: { userInfo: describeUser(user) } };
    case 'SelfSubjectRulesReview': {
      const everything = { verbs: ['*'], apiGroups: ['*'], resources: ['*'] };
      const paths = { verbs: ['*'], nonResourceURLs: ['*'] };
      const status = { resourceRules: [everything], nonResourceRules: [paths], incomplete: false };
      return { ...answer, spec: objectAt(body, 'spec'), status };
    }
    default:
      return {
        ...answer,
        spec: objectAt(body, 'spec'),
        status: { allowed: true, reason: 'everyone may do everything in the demo cluster' },
      };
  }
}

function describeUser({ username, uid, groups, extra }: UserInfo): ApiObject {
  return {
    username,
    ...(uid === '' ? {} : { uid }),
    groups,
    ...(Object.keys(extra).length === 0 ? {} : { extra }),
  };
}
