/**
 * The Tailscale Service of a member: one name and address that all nodes of a group serve. An annotation of the
 * Tailscale Service names its owner: a Kubernetes Service or an Ingress of one cluster. The annotation has the format
 * of the reference (Tailscale's operator), so that no other operator, cluster or resource adopts the Tailscale Service.
 * Pure.
 */
import type { TailnetService } from '../auth-keys.ts';
import { decideService, ownersOf, type ServiceDecision } from '../proxy-group/service.ts';
import type { GroupMember } from './member.ts';

/** Value that permits all ports of a Tailscale Service. A node forwards each port to the Kubernetes Service. */
const ANY_PORT = ['do-not-validate'];

/** Returns the operator ID in the annotation of a Tailscale Service. The ID identifies one group of one cluster. */
function ownerId(uid: string): string {
  return `tailcast-${uid}`;
}

/** Returns the name of the Tailscale Service for a hostname. */
export function tailnetServiceName({ hostname }: { readonly hostname: string }): string {
  return `svc:${hostname}`;
}

/** True if the only owner of the Tailscale Service is a member of the ProxyGroup with this uid. */
export function belongsToMember(service: TailnetService, uid: string): boolean {
  const owners = ownersOf(service) ?? [];
  return owners.length === 1 && owners[0]?.operatorID === ownerId(uid);
}

/**
 * Decides whether to create, update or keep the Tailscale Service of a member.
 *
 * @param group.tags default tags of members
 * @param group.members uids of the existing members; if the existing Tailscale Service belongs to the group but to none
 *   of these members, the member takes it over
 * @param ports ports of an Ingress; unused for a Service, which gets all ports
 */
export function decideTailnetService(
  member: GroupMember,
  group: { readonly uid: string; readonly tags: readonly string[]; readonly members: ReadonlySet<string> },
  ports: readonly number[],
  existing: TailnetService | undefined,
): ServiceDecision {
  const { namespace = '', name, uid } = member.metadata;
  const resource = { kind: member.kind.kind, name: `${namespace}/${name}`, uid };
  const wanted = {
    name: tailnetServiceName(member),
    tags: member.tags.length === 0 ? group.tags : member.tags,
    ports: member.type === 'svc' ? ANY_PORT : ports.map((port) => `tcp:${port}`),
    owner: { operatorID: ownerId(group.uid), resource },
    field: member.type === 'svc' ? 'tailscale.com/hostname' : 'spec.tls[0].hosts[0]',
  };
  const isFree = (service: TailnetService): boolean => {
    const owners = ownersOf(service) ?? [];
    const owner = owners.length === 1 ? (owners[0]?.resource?.uid ?? '') : '';
    return owner === uid || (belongsToMember(service, group.uid) && !group.members.has(owner));
  };
  return decideService(wanted, isFree, existing);
}
