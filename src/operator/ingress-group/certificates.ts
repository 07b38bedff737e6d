/**
 * Objects for a certificate that all nodes of a group share: a Secret, which the first node fills, and a Role and
 * RoleBinding for this Secret. The names and labels are those of containerboot and the reference (Tailscale's
 * operator). Pure.
 */
import { labelValue, type DesiredObject, type KubeObject } from '../kube-object.ts';
import type { NodeGroup } from '../workload/workload.ts';
import { secretData } from '../workload/node-state.ts';
import { metadataOf } from '../workload/object-specs.ts';

const DOMAIN = 'tailscale.com/domain';
const TYPE = 'tailscale.com/secret-type';

/** Label selector of the certificate Secrets of all groups. */
export const CERTIFICATES = `${TYPE}=certs`;

/** Returns the labels of the certificate Secrets of a group, which differ from the labels of node Secrets. */
export function certificateLabels(group: string): Readonly<Record<string, string>> {
  return { 'tailscale.com/managed': 'true', 'tailscale.com/proxy-group': group, [TYPE]: 'certs' };
}

interface Place {
  readonly namespace: string;
}

/**
 * Returns the objects of a certificate. The Secret must be created first, because the first node stores the
 * certificate in it.
 */
export function certificateObjects(
  group: NodeGroup,
  options: Place,
  domain: string,
): readonly (DesiredObject & { readonly [key: string]: unknown })[] {
  const { [TYPE]: _type, ...common } = certificateLabels(group.name);
  const labels = { ...common, [DOMAIN]: labelValue(domain) };
  const metadata = (more: Readonly<Record<string, string>> = {}): DesiredObject['metadata'] => ({
    ...metadataOf(group, options, domain),
    // Certificate objects do not have the labels of the group's nodes, because those labels select node Secrets.
    labels: { ...labels, ...more },
  });
  const rbac = 'rbac.authorization.k8s.io';
  return [
    {
      apiVersion: 'v1',
      kind: 'Secret',
      metadata: metadata({ [TYPE]: 'certs' }),
      type: 'kubernetes.io/tls',
      data: { 'tls.crt': '', 'tls.key': '' },
    },
    {
      apiVersion: `${rbac}/v1`,
      kind: 'Role',
      metadata: metadata(),
      rules: [
        {
          apiGroups: [''],
          resources: ['secrets'],
          verbs: ['get', 'list', 'patch', 'update'],
          resourceNames: [domain],
        },
      ],
    },
    {
      apiVersion: `${rbac}/v1`,
      kind: 'RoleBinding',
      metadata: metadata(),
      subjects: [{ kind: 'ServiceAccount', name: group.account.name, namespace: options.namespace }],
      roleRef: { apiGroup: rbac, kind: 'Role', name: domain },
    },
  ];
}

/** True if the Secret contains a certificate. */
export function isFilled(secret: KubeObject | undefined): boolean {
  const data = secretData(secret);
  return (data.get('tls.crt') ?? '') !== '' && (data.get('tls.key') ?? '') !== '';
}
