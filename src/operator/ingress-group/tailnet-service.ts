/**
 * The Tailscale Service of a member: one name and address that all nodes of a group answer for, and those of other clusters
 * as well. Who has a part in it is written into it in the reference's words; the last one removes it. Pure.
 */
import type { TailnetService } from '../auth-keys.ts';
import { OWNERS, ownersOf, type ServiceDecision } from '../proxy-group/service.ts';
import type { GroupMember } from './member.ts';

const COMMENT = 'This Tailscale Service is managed by the tailcast operator';
/** Every port is forwarded, and which these are is the Service's business. */
const ANY_PORT = ['do-not-validate'];

/** Who we are in a Service's annotation: a group of one cluster. */
function ownerId(uid: string): string {
  return `tailcast-${uid}`;
}

export function tailnetServiceName({ hostname }: { readonly hostname: string }): string {
  return `svc:${hostname}`;
}

export function isPartOwner(service: TailnetService, uid: string): boolean {
  return ownersOf(service)?.some(({ operatorID }) => operatorID === ownerId(uid)) === true;
}

/**
 * What to do about the Service that is there, or is not.
 *
 * @param uid of the group
 * @param ports of an Ingress; a Service has any
 */
export function decideTailnetService(
  member: GroupMember,
  { uid, tags }: { readonly uid: string; readonly tags: readonly string[] },
  ports: readonly number[],
  existing: TailnetService | undefined,
): ServiceDecision {
  const name = tailnetServiceName(member);
  if (existing !== undefined && !isShared(existing)) {
    const field = member.type === 'svc' ? 'tailscale.com/hostname' : 'spec.tls[0].hosts[0]';
    const message = `${field}: Tailscale Service ${name} exists and belongs to somebody else: delete it, or choose another name`;
    return { kind: 'refuse', message };
  }
  const service = {
    name,
    tags: member.tags.length === 0 ? tags : member.tags.toSorted(),
    ports: member.type === 'svc' ? ANY_PORT : ports.map((port) => `tcp:${port}`),
    comment: COMMENT,
  };
  const mine = { operatorID: ownerId(uid) };
  if (existing === undefined) {
    return { kind: 'put', service: { ...service, annotations: ownedBy([mine]), addrs: [] } };
  }
  const isPart = isPartOwner(existing, uid);
  if (isPart && sameTexts(existing.tags, service.tags) && sameTexts(existing.ports, service.ports)) {
    return { kind: 'keep' };
  }
  const owners = ownersOf(existing) ?? [];
  const annotations = { ...existing.annotations, ...ownedBy(isPart ? owners : [...owners, mine]) };
  return { kind: 'put', service: { ...service, annotations, addrs: existing.addrs } };
}

function ownedBy(ownerRefs: readonly object[]): Readonly<Record<string, string>> {
  return { [OWNERS]: JSON.stringify({ ownerRefs }) };
}

function sameTexts(left: readonly string[], right: readonly string[]): boolean {
  return left.toSorted().join() === right.toSorted().join();
}

/** One of nobody's was made by hand, and one with a resource is that resource's alone. */
function isShared(service: TailnetService): boolean {
  const owners = ownersOf(service) ?? [];
  return owners.length > 0 && owners.every(({ resource }) => resource === undefined);
}

/** The Service without a part of ours; undefined: nobody else has one, so it goes. */
export function withoutOurPart(service: TailnetService, uid: string): TailnetService | undefined {
  const left = (ownersOf(service) ?? []).filter(({ operatorID }) => operatorID !== ownerId(uid));
  if (left.length === 0) return undefined;
  return { ...service, annotations: { ...service.annotations, ...ownedBy(left) } };
}
