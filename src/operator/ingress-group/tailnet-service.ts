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
export function isOfGroup(service: TailnetService, uid: string): boolean {
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
  const { uid, members } = group;
  const name = tailnetServiceName(member);
  const owners = existing === undefined ? undefined : ownersOf(existing);
  const owner = owners?.length === 1 ? owners[0]?.resource?.uid : undefined;
  const isFree = existing !== undefined && isOfGroup(existing, uid) && !members.has(owner ?? '');
  if (existing !== undefined && owner !== member.metadata.uid && !isFree) {
    const field = member.type === 'svc' ? 'tailscale.com/hostname' : 'spec.tls[0].hosts[0]';
    const message = `${field}: Tailscale Service ${name} belongs to ${ownerShown(existing)}: choose another name, or delete that Tailscale Service`;
    return { kind: 'refuse', message };
  }
  const { namespace = '', name: resource, uid: resourceUid } = member.metadata;
  const ownerRefs = [
    {
      operatorID: ownerId(uid),
      resource: { kind: member.kind.kind, name: `${namespace}/${resource}`, uid: resourceUid },
    },
  ];
  const annotations = { ...existing?.annotations, [OWNERS]: JSON.stringify({ ownerRefs }) };
  const service = {
    name,
    tags: (member.tags.length === 0 ? group.tags : member.tags).toSorted(),
    ports: member.type === 'svc' ? ANY_PORT : ports.map((port) => `tcp:${port}`),
    comment: COMMENT,
    annotations,
    addrs: existing?.addrs ?? [],
  };
  const isUnchanged =
    existing !== undefined &&
    existing.annotations[OWNERS] === annotations[OWNERS] &&
    sameTexts(existing.tags, service.tags) &&
    sameTexts(existing.ports, service.ports);
  return isUnchanged ? { kind: 'keep' } : { kind: 'put', service };
}

function sameTexts(left: readonly string[], right: readonly string[]): boolean {
  return left.toSorted().join() === right.toSorted().join();
}
