/** Services and Ingresses of an ingress group (*members*). Pure. */
import { isIP } from 'node:net';
import { hostnameOf, INGRESS_CLASS, parseIngress, type Ingress } from '../ingress/resource.ts';
import { KINDS, type KubeObject, type ResourceKind } from '../kube-object.ts';
import { dnsLabel } from '../workload/workload.ts';
import { ANNOTATIONS, groupIn, MEMBER_FINALIZERS } from '../service/predicates.ts';
import { isExposed, leadsOut, problemOfNames, tagsIn } from '../service/classify.ts';
import { parseService, type Service } from '../service/resource.ts';

interface Common {
  /** Key of the member: `<type>/<namespace>/<name>`. */
  readonly key: string;
  readonly kind: ResourceKind;
  readonly finalizer: string;
  /** Name of the member's group; empty for none. */
  readonly group: string;
  /** True if the Service or Ingress requests exposure by the operator. */
  readonly isRequested: boolean;
  /** First label of the member's name in the tailnet. */
  readonly hostname: string;
  readonly tags: readonly string[];
  readonly metadata: Ingress['metadata'];
}

export interface ServiceMember extends Common {
  readonly type: 'svc';
  readonly resource: Service;
}

export interface IngressMember extends Common {
  readonly type: 'ingress';
  readonly resource: Ingress;
}

export type GroupMember = ServiceMember | IngressMember;

/** @param servesUnclassed true if the operator serves LoadBalancer Services without a `loadBalancerClass` */
export function serviceMember(object: KubeObject, servesUnclassed: boolean): ServiceMember {
  const resource = parseService(object);
  const { metadata } = resource;
  const { annotations, namespace = '', name } = metadata;
  return {
    type: 'svc',
    key: `svc/${namespace}/${name}`,
    kind: KINDS.service,
    finalizer: MEMBER_FINALIZERS.svc,
    group: groupIn(annotations),
    // A Service with a target in the tailnet is an egress Service. If such a Service also requests exposure, the
    // reconciler of egress Services reports the conflict.
    isRequested: isExposed(resource, servesUnclassed) && !leadsOut(annotations),
    hostname: (annotations[ANNOTATIONS.hostname] ?? dnsLabel(`${namespace}-${name}`)).toLowerCase(),
    tags: tagsIn(annotations),
    metadata,
    resource,
  };
}

export function ingressMember(object: KubeObject): IngressMember {
  const resource = parseIngress(object);
  const { metadata, spec } = resource;
  const { namespace = '', name } = metadata;
  return {
    type: 'ingress',
    key: `ingress/${namespace}/${name}`,
    kind: KINDS.ingress,
    finalizer: MEMBER_FINALIZERS.ingress,
    group: groupIn(metadata.annotations),
    isRequested: spec.ingressClassName === INGRESS_CLASS,
    hostname: hostnameOf(resource),
    tags: tagsIn(metadata.annotations),
    metadata,
    resource,
  };
}

/** Parses the current object of a member. */
export function refreshed({ type }: GroupMember, object: KubeObject): GroupMember {
  return type === 'svc' ? serviceMember(object, true) : ingressMember(object);
}

/** True if the member requests exposure through a group and is not being deleted. */
export function isGroupMember({ isRequested, group, metadata }: GroupMember): boolean {
  return isRequested && group !== '' && metadata.deletionTimestamp === undefined;
}

/** Returns the reason why no group can serve the member, or undefined. */
export function problemOfMember(member: GroupMember): string | undefined {
  const problem = problemOfNames(member.metadata.annotations);
  if (problem !== undefined || member.type === 'ingress') return problem;
  const { type } = member.resource.spec;
  if (type === 'ExternalName') {
    return (
      'spec.type: a ProxyGroup forwards to addresses, and an ExternalName has none: remove ' +
      `${ANNOTATIONS.proxyGroup}, and the Service gets its own node`
    );
  }
  return clusterAddresses(member).length > 0
    ? undefined
    : 'spec.clusterIP: headless Services cannot be exposed: there is no address to forward to. Give it a clusterIP';
}

/** Returns the cluster addresses of a Service, one for each family. */
export function clusterAddresses({ resource: { spec } }: ServiceMember): readonly string[] {
  const all = spec.clusterIPs.length > 0 ? spec.clusterIPs : [spec.clusterIP];
  return all.filter((address) => isIP(address) !== 0);
}

/** Returns the key of a member, which names the member in log messages. */
export function keyOfMember({ key }: { readonly key: string }): string {
  return key;
}

/** Returns the members, oldest first. If several members request the same free name, the oldest gets it. */
export function inOrderOfAge(members: readonly GroupMember[]): readonly GroupMember[] {
  const age = ({ metadata, key }: GroupMember): string => `${metadata.creationTimestamp} ${key}`;
  return members.toSorted((a, b) => (age(a) < age(b) ? -1 : 1));
}
