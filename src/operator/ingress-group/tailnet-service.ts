/**
 * The Tailscale Service of a member: one name and address that all nodes of a group answer for. Its owner, one Service or Ingress of one
 * cluster, is written into it in the reference's format, so that no other operator, cluster or resource takes it over. Pure.
 */
import type { TailnetService } from '../auth-keys.ts';
import { ownerShown, OWNERS, ownersOf, type ServiceDecision } from '../proxy-group/service.ts';
import type { GroupMember } from './member.ts';

const COMMENT = 'This Tailscale Service is managed by the tailcast operator';
/** Every port is forwarded, and which these are is the Service's business. */
const ANY_PORT = ['do-not-validate'];

/** The operator in the annotation of a Tailscale Service: a group of one cluster. */
function ownerId(uid: string): string {
  return `tailcast-${uid}`;
}

export function tailnetServiceName({ hostname }: { readonly hostname: string }): string {
  return `svc:${hostname}`;
}

/** True if the Tailscale Service belongs to a member of the group with this uid, and to nobody else. */
export function belongsToMember(service: TailnetService, uid: string): boolean {
  const owners = ownersOf(service) ?? [];
  return owners.length === 1 && owners[0]?.operatorID === ownerId(uid);
}

/**
 * What to do about the Tailscale Service of a member. The first owner keeps it.
 *
 * @param group.tags of members that name none
 * @param group.members uids of the members there are: a Tailscale Service of the group whose owner is none of them is free
 * @param ports of an Ingress; a Service has any
 */
export function decideTailnetService(
  member: GroupMember,
  group: { readonly uid: string; readonly tags: readonly string[]; readonly members: ReadonlySet<string> },
  ports: readonly number[],
  existing: TailnetService | undefined,
): ServiceDecision {
  if (existing !== undefined && !mayHave(member, group, existing)) {
    const field = member.type === 'svc' ? 'tailscale.com/hostname' : 'spec.tls[0].hosts[0]';
    const message = `${field}: Tailscale Service ${existing.name} belongs to ${ownerShown(existing)}: choose another name, or delete that Tailscale Service`;
    return { kind: 'refuse', message };
  }
  const service = {
    name: tailnetServiceName(member),
    tags: (member.tags.length === 0 ? group.tags : member.tags).toSorted(),
    ports: member.type === 'svc' ? ANY_PORT : ports.map((port) => `tcp:${port}`),
    comment: COMMENT,
    annotations: { ...existing?.annotations, [OWNERS]: ownerOf(member, group.uid) },
    addrs: existing?.addrs ?? [],
  };
  return existing !== undefined && isSame(existing, service) ? { kind: 'keep' } : { kind: 'put', service };
}

/** True if the Tailscale Service is the member's, or the owner in the same group is gone. */
function mayHave(
  member: GroupMember,
  { uid, members }: Parameters<typeof decideTailnetService>[1],
  existing: TailnetService,
): boolean {
  const owners = ownersOf(existing) ?? [];
  const owner = owners.length === 1 ? (owners[0]?.resource?.uid ?? '') : '';
  return owner === member.metadata.uid || (belongsToMember(existing, uid) && !members.has(owner));
}

/** The annotation's value, in the reference's format. */
function ownerOf({ kind, metadata }: GroupMember, groupUid: string): string {
  const { namespace = '', name, uid } = metadata;
  const resource = { kind: kind.kind, name: `${namespace}/${name}`, uid };
  return JSON.stringify({ ownerRefs: [{ operatorID: ownerId(groupUid), resource }] });
}

function isSame(existing: TailnetService, wanted: TailnetService): boolean {
  return (
    existing.annotations[OWNERS] === wanted.annotations[OWNERS] &&
    sameTexts(existing.tags, wanted.tags) &&
    sameTexts(existing.ports, wanted.ports)
  );
}

function sameTexts(left: readonly string[], right: readonly string[]): boolean {
  return left.toSorted().join() === right.toSorted().join();
}
