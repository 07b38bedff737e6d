/** The RBAC objects for a gateway's account that may only impersonate. Pure. */
import { AUDIT_EXTRA } from './audit-extras.ts';

export interface ImpersonationRights {
  /** Users that the account may impersonate; an empty list stands for all users. */
  readonly users: readonly string[];
  /** Groups that the account may impersonate; an empty list stands for all groups. */
  readonly groups: readonly string[];
  /**
   * True if the gateway uses constrained impersonation (KEP-5284; Kubernetes 1.36 and newer) instead of the older
   * verb.
   */
  readonly constrained: boolean;
  /** True if the gateway adds user extras for the audit log to requests. */
  readonly auditExtras: boolean;
  readonly namespace: string;
  /** Name of the service account. */
  readonly account: string;
}

type KubernetesObject = Readonly<Record<string, unknown>>;

const RBAC = 'rbac.authorization.k8s.io';
const AUTHENTICATION = 'authentication.k8s.io';
/** Verbs that an impersonated user may need. A `*` would also grant all rights to the account itself. */
const VERBS = ['get', 'list', 'watch', 'create', 'update', 'patch', 'delete', 'deletecollection'] as const;
/** Verbs for paths without a resource. */
const PATH_VERBS = ['get', 'head', 'post'] as const;

/**
 * Returns the ServiceAccount, ClusterRole and ClusterRoleBinding. If users and groups are listed, the account may
 * impersonate only these.
 */
export function impersonationRbac(rights: ImpersonationRights): readonly KubernetesObject[] {
  const { account, namespace, constrained } = rights;
  const name = constrained ? `${account}-constrained` : account;
  return [
    { apiVersion: 'v1', kind: 'ServiceAccount', metadata: { name: account, namespace } },
    {
      apiVersion: `${RBAC}/v1`,
      kind: 'ClusterRole',
      metadata: { name },
      rules: constrained ? constrainedRules(rights) : rules(rights),
    },
    {
      apiVersion: `${RBAC}/v1`,
      kind: 'ClusterRoleBinding',
      metadata: { name },
      roleRef: { apiGroup: RBAC, kind: 'ClusterRole', name },
      subjects: [{ kind: 'ServiceAccount', name: account, namespace }],
    },
  ];
}

function rules({ users, groups, auditExtras }: ImpersonationRights): readonly KubernetesObject[] {
  const verbs = ['impersonate'];
  return [
    { apiGroups: [''], resources: ['users'], verbs, ...named(users) },
    { apiGroups: [''], resources: ['groups'], verbs, ...named(groups) },
    ...(auditExtras ? [{ apiGroups: [AUTHENTICATION], resources: EXTRAS, verbs }] : []),
  ];
}

function constrainedRules({ users, groups, auditExtras }: ImpersonationRights): readonly KubernetesObject[] {
  const verbs = ['impersonate:user-info'];
  const apiGroups = [AUTHENTICATION];
  const on = (verb: string): string => `impersonate-on:user-info:${verb}`;
  return [
    { apiGroups, resources: ['users'], verbs, ...named(users) },
    { apiGroups, resources: ['groups'], verbs, ...named(groups) },
    ...(auditExtras ? [{ apiGroups, resources: EXTRAS, verbs }] : []),
    { apiGroups: ['*'], resources: ['*'], verbs: VERBS.map(on) },
    { nonResourceURLs: ['*'], verbs: PATH_VERBS.map(on) },
  ];
}

const EXTRAS = Object.values(AUDIT_EXTRA).map((key) => `userextras/${key}`);

function named(names: readonly string[]): { readonly resourceNames?: readonly string[] } {
  return names.length === 0 ? {} : { resourceNames: [...new Set(names)].toSorted() };
}
