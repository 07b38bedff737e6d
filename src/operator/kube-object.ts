/** Kubernetes objects in JSON with their common fields, and the kinds that the operator uses. */
import { hash } from 'node:crypto';
import { z } from 'zod';

const ownerReferenceSchema = z.object({
  apiVersion: z.string(),
  kind: z.string(),
  name: z.string(),
  uid: z.string(),
  controller: z.boolean().optional(),
  blockOwnerDeletion: z.boolean().optional(),
});

const managedFieldsSchema = z.looseObject({
  manager: z.string().optional(),
  operation: z.string().optional(),
  subresource: z.string().optional(),
  fieldsV1: z.record(z.string(), z.unknown()).optional(),
});

const textMap = z.record(z.string(), z.string());

const metadataSchema = z.looseObject({
  name: z.string(),
  namespace: z.string().optional(),
  uid: z.string().optional(),
  resourceVersion: z.string().optional(),
  generation: z.number().optional(),
  labels: textMap.optional(),
  annotations: textMap.optional(),
  ownerReferences: z.array(ownerReferenceSchema).optional(),
  finalizers: z.array(z.string()).optional(),
  creationTimestamp: z.string().optional(),
  deletionTimestamp: z.string().optional(),
  managedFields: z.array(managedFieldsSchema).optional(),
});

const objectSchema = z.looseObject({
  apiVersion: z.string(),
  kind: z.string(),
  metadata: metadataSchema,
});

export type OwnerReference = z.infer<typeof ownerReferenceSchema>;
export type ManagedFields = z.infer<typeof managedFieldsSchema>;
export type KubeObject = z.infer<typeof objectSchema>;

/** A desired object: only the fields that the operator sets. */
export interface DesiredObject {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: {
    readonly name: string;
    /** Undefined for cluster-scoped kinds. */
    readonly namespace?: string | undefined;
    readonly labels: Readonly<Record<string, string>>;
    readonly annotations?: Readonly<Record<string, string>>;
    readonly ownerReferences?: readonly OwnerReference[];
  };
}

/** A kind of object, and its API path. */
export interface ResourceKind {
  readonly apiVersion: string;
  readonly kind: string;
  readonly plural: string;
  readonly namespaced: boolean;
}

const kind = (apiVersion: string, name: string, plural: string, namespaced = true): ResourceKind => ({
  apiVersion,
  kind: name,
  plural,
  namespaced,
});

/**
 * Finalizer that delays the deletion of a resource until the objects that the operator created for it are deleted.
 * ProxyGroups of type kube-apiserver use another finalizer.
 */
export const FINALIZER = 'tailscale.com/finalizer';

/** The kinds that the operator reads or writes. */
export const KINDS = {
  recorder: kind('tailscale.com/v1alpha1', 'Recorder', 'recorders', false),
  proxyGroup: kind('tailscale.com/v1alpha1', 'ProxyGroup', 'proxygroups', false),
  tailnet: kind('tailscale.com/v1alpha1', 'Tailnet', 'tailnets', false),
  connector: kind('tailscale.com/v1alpha1', 'Connector', 'connectors', false),
  proxyClass: kind('tailscale.com/v1alpha1', 'ProxyClass', 'proxyclasses', false),
  dnsConfig: kind('tailscale.com/v1alpha1', 'DNSConfig', 'dnsconfigs', false),
  proxyGroupPolicy: kind('tailscale.com/v1alpha1', 'ProxyGroupPolicy', 'proxygrouppolicies'),
  service: kind('v1', 'Service', 'services'),
  secret: kind('v1', 'Secret', 'secrets'),
  configMap: kind('v1', 'ConfigMap', 'configmaps'),
  endpointSlice: kind('discovery.k8s.io/v1', 'EndpointSlice', 'endpointslices'),
  serviceAccount: kind('v1', 'ServiceAccount', 'serviceaccounts'),
  pod: kind('v1', 'Pod', 'pods'),
  event: kind('v1', 'Event', 'events'),
  role: kind('rbac.authorization.k8s.io/v1', 'Role', 'roles'),
  roleBinding: kind('rbac.authorization.k8s.io/v1', 'RoleBinding', 'rolebindings'),
  statefulSet: kind('apps/v1', 'StatefulSet', 'statefulsets'),
  deployment: kind('apps/v1', 'Deployment', 'deployments'),
  ingress: kind('networking.k8s.io/v1', 'Ingress', 'ingresses'),
  ingressClass: kind('networking.k8s.io/v1', 'IngressClass', 'ingressclasses', false),
  gatewayClass: kind('gateway.networking.k8s.io/v1', 'GatewayClass', 'gatewayclasses', false),
  gateway: kind('gateway.networking.k8s.io/v1', 'Gateway', 'gateways'),
  httpRoute: kind('gateway.networking.k8s.io/v1', 'HTTPRoute', 'httproutes'),
  disruptionBudget: kind('policy/v1', 'PodDisruptionBudget', 'poddisruptionbudgets'),
  lease: kind('coordination.k8s.io/v1', 'Lease', 'leases'),
  admissionPolicy: kind(
    'admissionregistration.k8s.io/v1',
    'ValidatingAdmissionPolicy',
    'validatingadmissionpolicies',
    false,
  ),
  admissionPolicyBinding: kind(
    'admissionregistration.k8s.io/v1',
    'ValidatingAdmissionPolicyBinding',
    'validatingadmissionpolicybindings',
    false,
  ),
} as const satisfies Record<string, ResourceKind>;

/** Reference to one object. If `name` is undefined, the reference is to all objects of the kind. */
export interface ObjectReference {
  /** Undefined for cluster-scoped kinds. */
  readonly namespace?: string | undefined;
  readonly name?: string | undefined;
  readonly subresource?: 'status' | undefined;
}

/** Returns the request path of an object or a collection. */
export function pathOf({ apiVersion, plural }: ResourceKind, reference: ObjectReference): string {
  const { namespace, name, subresource } = reference;
  const root = apiVersion.includes('/') ? `/apis/${apiVersion}` : `/api/${apiVersion}`;
  const scope = namespace === undefined ? '' : `/namespaces/${encodeURIComponent(namespace)}`;
  const rest = [name, subresource].filter((part) => part !== undefined).map(encodeURIComponent);
  return [`${root}${scope}/${plural}`, ...rest].join('/');
}

/** Returns the entry of {@link KINDS} for an object. */
export function kindOf(object: Pick<KubeObject, 'apiVersion' | 'kind'>): ResourceKind | undefined {
  return Object.values(KINDS).find(
    ({ apiVersion, kind: name }) => apiVersion === object.apiVersion && name === object.kind,
  );
}

/** Returns the entry of {@link KINDS} for an object. @throws TypeError for another kind */
export function knownKindOf(object: Pick<KubeObject, 'apiVersion' | 'kind'>): ResourceKind {
  const known = kindOf(object);
  if (known === undefined) throw new TypeError(`${object.apiVersion} ${object.kind} is not a known kind`);
  return known;
}

/**
 * Checks that a value from the API server has the common fields.
 *
 * @throws ZodError
 */
export function parseObject(value: unknown): KubeObject {
  return objectSchema.parse(value);
}

/** Returns the owner reference with `controller: true`, if there is one. */
export function controllerOf(object: KubeObject): OwnerReference | undefined {
  return object.metadata.ownerReferences?.find(({ controller }) => controller === true);
}

/** Returns true if the key is a valid annotation key. Like Kubernetes, the check permits upper case in the prefix. */
export function isAnnotationKey(key: string): boolean {
  const [first = '', second, ...more] = key.split('/');
  if (more.length > 0) return false;
  const [prefix, name] = second === undefined ? [undefined, first] : [first, second];
  const subdomain = /^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$/;
  const validPrefix = prefix === undefined || (prefix.length <= 253 && subdomain.test(prefix.toLowerCase()));
  return validPrefix && name.length <= 63 && /^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$/.test(name);
}

/** Maximum length of a label's value. */
const MAX_LABEL = 63;

/**
 * Shortens a text to at most `limit` characters. A long text ends with a hash of the complete text, so that texts with
 * the same prefix stay different.
 */
export function shortened(text: string, limit: number): string {
  if (text.length <= limit) return text;
  const ending = hash('sha256', text).slice(0, 8);
  return `${text.slice(0, limit - ending.length - 1).replace(/[^A-Za-z0-9]+$/, '')}-${ending}`;
}

/** Returns the label value for an object's name. Long names are shortened. */
export function labelValue(name: string): string {
  return shortened(name, MAX_LABEL);
}

/** True if the text is a DNS label in lower case, such as a hostname. */
export function isDnsLabel(text: string): boolean {
  return /^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/.test(text);
}

/** True if Kubernetes accepts the text as the value of a label. */
export function isLabelValue(value: string): boolean {
  return (
    value === '' || (value.length <= MAX_LABEL && /^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$/.test(value))
  );
}
