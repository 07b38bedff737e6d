/** Admission policies that enforce the ProxyGroupPolicies of a namespace. Pure. */
import { ANNOTATIONS } from '../service/predicates.ts';
import type { DesiredObject } from '../kube-object.ts';
import type { ProxyGroupPolicySpec } from './resource.ts';

const API_VERSION = 'admissionregistration.k8s.io/v1';
/** Label of the admission policies. Its value is the namespace to which the policies apply. */
export const POLICY_LABEL = 'tailcast.dev/proxy-group-policy';

type AdmissionObject = DesiredObject & { readonly spec: object };
type Direction = 'ingress' | 'egress';
const DIRECTIONS: readonly Direction[] = ['ingress', 'egress'];

/**
 * CEL expression: true for a Service that is exposed to the tailnet. All other Services with a group are egress
 * Services.
 */
const EXPOSED =
  '(has(object.spec.loadBalancerClass) && object.spec.loadBalancerClass == "tailscale") || ' +
  `(has(object.metadata.annotations) && "${ANNOTATIONS.expose}" in object.metadata.annotations && ` +
  `object.metadata.annotations["${ANNOTATIONS.expose}"] == "true")`;
/**
 * CEL expression: false for an update of the status that changes no annotation. Controllers can therefore write the
 * status of an object whose group is no longer allowed.
 */
const CHANGES_ANNOTATIONS =
  '!has(request.subResource) || request.subResource != "status" || ' +
  'has(object.metadata.annotations) != has(oldObject.metadata.annotations) || ' +
  '(has(object.metadata.annotations) && object.metadata.annotations != oldObject.metadata.annotations)';
/** CEL expression: value of the annotation that names the group. */
const GROUP = `object.metadata.annotations["${ANNOTATIONS.proxyGroup}"]`;

/**
 * Returns the name of the admission policy, and of its binding, for one direction (ingress or egress). The reference
 * (Tailscale's operator) uses the same name.
 */
function policyName(direction: Direction, namespace: string): string {
  return `ts-${direction}-${namespace}`;
}

/** Returns the names of the admission policies of a namespace. Each binding has the name of its policy. */
export function policyNames(namespace: string): readonly string[] {
  return DIRECTIONS.map((direction) => policyName(direction, namespace));
}

/**
 * Returns the admission policies and bindings of a namespace. The policies admit an object that names a ProxyGroup only
 * if a ProxyGroupPolicy of the object's namespace lists this group for the direction.
 *
 * @param specs specs of all ProxyGroupPolicies in the namespace; at least one
 */
export function admissionObjects(
  namespace: string,
  specs: readonly ProxyGroupPolicySpec[],
): readonly DesiredObject[] {
  return DIRECTIONS.flatMap((direction) => {
    const names = [...new Set(specs.flatMap((spec) => spec[direction]))].filter(isResourceName).toSorted();
    const metadata = { name: policyName(direction, namespace), labels: { [POLICY_LABEL]: namespace } };
    return [policy(direction, names, metadata), binding(namespace, metadata)];
  });
}

/**
 * True if Kubernetes allows this name for a resource. Other names are left out, because no ProxyGroup can have them.
 */
function isResourceName(name: string): boolean {
  return name.length <= 253 && /^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$/.test(name);
}

function policy(
  direction: Direction,
  names: readonly string[],
  metadata: DesiredObject['metadata'],
): AdmissionObject {
  // updates of the status can change annotations too
  const services = { apiGroups: [''], apiVersions: ['v1'], resources: ['services', 'services/status'] };
  const ingresses = {
    apiGroups: ['networking.k8s.io'],
    apiVersions: ['*'],
    resources: ['ingresses', 'ingresses/status'],
  };
  const rules = direction === 'ingress' ? [ingresses, services] : [services];
  const isListed = [
    '!has(object.metadata.annotations)',
    `!("${ANNOTATIONS.proxyGroup}" in object.metadata.annotations)`,
    `${GROUP} in [${names.map((name) => `"${name}"`).join(', ')}]`,
  ].join(' || ');
  const isOther = direction === 'ingress' ? `request.kind.kind == "Service" && !(${EXPOSED})` : EXPOSED;
  const allowed = names.length === 0 ? 'none' : names.join(', ');
  return {
    apiVersion: API_VERSION,
    kind: 'ValidatingAdmissionPolicy',
    metadata,
    spec: {
      failurePolicy: 'Fail',
      matchConstraints: {
        resourceRules: rules.map((rule) => ({ ...rule, operations: ['CREATE', 'UPDATE'] })),
      },
      matchConditions: [{ name: 'not-only-status', expression: CHANGES_ANNOTATIONS }],
      validations: [
        {
          expression: `(${isOther}) || ${isListed}`,
          message: `No ProxyGroupPolicy of this namespace allows this group. Allowed for ${direction}: ${allowed}.`,
          reason: 'Forbidden',
        },
      ],
    },
  };
}

function binding(namespace: string, metadata: DesiredObject['metadata']): AdmissionObject {
  return {
    apiVersion: API_VERSION,
    kind: 'ValidatingAdmissionPolicyBinding',
    metadata,
    spec: {
      policyName: metadata.name,
      validationActions: ['Deny'],
      matchResources: {
        namespaceSelector: { matchLabels: { 'kubernetes.io/metadata.name': namespace } },
      },
    },
  };
}
