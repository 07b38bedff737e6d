/** Determines the purpose of a Service. Pure. */
import { isIP } from 'node:net';
import { isForeignHost } from '../../kube/cluster-objects.ts';
import { isLocalAddress } from '../../kube/local-address.ts';
import { isDnsLabel } from '../kube-object.ts';
import type { PacketDuty } from '../workload/workload.ts';
import { ANNOTATIONS, groupIn, isOurLoadBalancer } from './predicates.ts';
import type { Service } from './resource.ts';

export type Purpose =
  /** The Service needs no proxy. If a proxy for this Service exists, the operator deletes it. */
  | { readonly kind: 'none' }
  | { readonly kind: 'invalid'; readonly message: string }
  | { readonly kind: 'proxy'; readonly duty: PacketDuty };

/** Returns the purpose of a Service: the kind of proxy that it needs, or none. */
export function purposeOf(service: Service, servesUnclassed: boolean): Purpose {
  const { annotations } = service.metadata;
  // A Service of a ProxyGroup has no proxy of its own.
  if (isOfGroup(service)) return { kind: 'none' };
  const name = annotations[ANNOTATIONS.targetName];
  const address = addressIn(annotations);
  const outward = name !== undefined || address !== undefined;
  if (!outward && !isExposed(service, servesUnclassed)) return { kind: 'none' };
  const message = outward ? egressProblemOf(service, servesUnclassed) : problemOfNames(annotations);
  if (message !== undefined) return { kind: 'invalid', message };
  if (address !== undefined) return proxy({ kind: 'egress-address', target: address });
  if (name !== undefined) return proxy({ kind: 'egress-name', target: withDot(name) });
  return inwardPurpose(service);
}

/** Target of an egress Service. A valid target has either an address or a name. */
export interface TailnetTarget {
  readonly ip: string;
  readonly fqdn: string;
}

/** Returns the target in the annotations of a Service. */
export function targetOf(annotations: Readonly<Record<string, string>>): TailnetTarget {
  return { ip: addressIn(annotations) ?? '', fqdn: annotations[ANNOTATIONS.targetName] ?? '' };
}

function addressIn(annotations: Readonly<Record<string, string>>): string | undefined {
  return annotations[ANNOTATIONS.targetAddress] ?? annotations[ANNOTATIONS.targetAddressOld];
}

/** Returns true for an egress Service, whose annotations contain a target in the tailnet. */
export function leadsOut(annotations: Readonly<Record<string, string>>): boolean {
  const { ip, fqdn } = targetOf(annotations);
  return ip !== '' || fqdn !== '';
}

/** True if the Service is exposed to the tailnet. */
export function isExposed({ metadata, spec }: Service, servesUnclassed: boolean): boolean {
  return isOurLoadBalancer(spec, servesUnclassed) || metadata.annotations[ANNOTATIONS.expose] === 'true';
}

/** Returns the problem of an egress Service, or undefined. */
export function egressProblemOf(service: Service, servesUnclassed: boolean): string | undefined {
  return problemOfNames(service.metadata.annotations) ?? problemOfTarget(service, servesUnclassed);
}

/** Returns the purpose of a Service that is exposed to the tailnet. */
function inwardPurpose({ spec }: Service): Purpose {
  if (spec.type === 'ExternalName') {
    const name = spec.externalName;
    if (!isForeignHost(name.replace(/\.$/, ''))) return proxy({ kind: 'ingress-name', target: name });
    const message =
      `spec.externalName: ${JSON.stringify(name)} is an address of the proxy's own machine or link: name ` +
      'another host';
    return { kind: 'invalid', message };
  }
  if (spec.clusterIP === 'None') {
    return {
      kind: 'invalid',
      message: 'headless Services cannot be exposed: there is no address to forward to. Give it a clusterIP',
    };
  }
  // When the API server assigns an address, this change of the Service starts a new reconciliation.
  if (spec.clusterIP === '') return { kind: 'invalid', message: 'the Service has no clusterIP' };
  return proxy({ kind: 'ingress', target: spec.clusterIP });
}

/** True if the Service has the annotation for a ProxyGroup. */
export function isOfGroup({ metadata }: Pick<Service, 'metadata'>): boolean {
  return groupIn(metadata.annotations) !== '';
}

function proxy(duty: PacketDuty): Purpose {
  return { kind: 'proxy', duty };
}

const TAG = /^tag:[a-zA-Z][a-zA-Z0-9-]*$/;

/** Returns the tags in the annotations of a Service; an empty list stands for the default tags. */
export function tagsIn(annotations: Readonly<Record<string, string>>): readonly string[] {
  const text = annotations[ANNOTATIONS.tags] ?? '';
  return text
    .split(',')
    .map((tag) => tag.trim())
    .filter((tag) => tag !== '');
}

/** Returns the problem with the hostname or the tags in the annotations, or undefined. */
export function problemOfNames(annotations: Readonly<Record<string, string>>): string | undefined {
  const hostname = annotations[ANNOTATIONS.hostname];
  if (hostname !== undefined && !isAnyCaseLabel(hostname)) {
    return (
      `${ANNOTATIONS.hostname}: ${JSON.stringify(hostname)} is not a DNS label: at most 63 letters, digits ` +
      'and hyphens, beginning and ending with a letter or digit'
    );
  }
  const bad = tagsIn(annotations).find((tag) => !TAG.test(tag));
  return bad === undefined
    ? undefined
    : `${ANNOTATIONS.tags}: ${JSON.stringify(bad)} is not a tag: write tag: and a name of letters, digits and ` +
        'hyphens, with commas between tags';
}

function problemOfTarget(service: Service, servesUnclassed: boolean): string | undefined {
  const { annotations } = service.metadata;
  const name = annotations[ANNOTATIONS.targetName];
  const address = addressIn(annotations);
  if (isExposed(service, servesUnclassed)) {
    return (
      `the Service requests exposure and a tailnet target: remove ${ANNOTATIONS.expose} and the load ` +
      `balancer class, or ${name === undefined ? ANNOTATIONS.targetAddress : ANNOTATIONS.targetName}`
    );
  }
  if (name !== undefined && address !== undefined) {
    return `only one of ${ANNOTATIONS.targetName} and ${ANNOTATIONS.targetAddress} can be set`;
  }
  if (name !== undefined && !isFullName(name)) {
    return `${ANNOTATIONS.targetName}: ${JSON.stringify(name)} is not a full MagicDNS name such as db.example.ts.net`;
  }
  if (address !== undefined && isIP(address) === 0) {
    return `${ANNOTATIONS.targetAddress}: ${JSON.stringify(address)} is not an IP address`;
  }
  if (address !== undefined && isLocal(address)) {
    return (
      `${ANNOTATIONS.targetAddress}: ${JSON.stringify(address)} is a loopback, link-local, unspecified or multicast ` +
      'address: name the address of a tailnet node'
    );
  }
  return service.spec.type === 'LoadBalancer'
    ? `the Service leads to the tailnet and is of type LoadBalancer: make it ExternalName`
    : undefined;
}

/**
 * Returns true for an address that is never reached through the tailnet. An unprivileged proxy would connect to its
 * own pod or machine instead. Only local addresses have a zone, such as fe80::1%eth0.
 */
function isLocal(address: string): boolean {
  return address.includes('%') || isLocalAddress(address);
}

/**
 * Returns true for a domain name with at least three labels. The suffix is not checked, because the domain of the
 * tailnet depends on the control server.
 */
function isFullName(name: string): boolean {
  const labels = name.replace(/\.$/, '').split('.');
  return labels.join('.').length <= 253 && labels.length >= 3 && labels.every(isAnyCaseLabel);
}

/**
 * True for a DNS label of ASCII characters in upper or lower case. NOTE: `toLowerCase` turns some other letters, such
 * as U+212A, into ASCII.
 */
function isAnyCaseLabel(text: string): boolean {
  return /^[\x20-\x7e]*$/.test(text) && isDnsLabel(text.toLowerCase());
}

function withDot(name: string): string {
  return name.endsWith('.') ? name : `${name}.`;
}
