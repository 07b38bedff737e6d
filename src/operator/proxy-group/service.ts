/**
 * The Tailscale Service of a ProxyGroup: one name for all its replicas. An annotation of the Service names its owner.
 * The annotation has the format of the reference (Tailscale's operator), so that no operator takes over a Service that
 * belongs to another operator.
 */
import { z } from 'zod';
import { jsonOrUndefined } from '../../wire/json-value.ts';
import type { TailnetControl, TailnetService } from '../auth-keys.ts';
import type { NodeGroup } from '../workload/workload.ts';
import type { ProxyGroup } from './resource.ts';

/** Annotation of a Tailscale Service that names the owners of the Service. */
const OWNERS = 'tailscale.com/owner-references';
/**
 * Operator ID in this annotation. The reference writes the ID of the operator's own node; this operator has no node.
 */
const OPERATOR_ID = 'tailcast-operator';
const COMMENT = 'This Tailscale Service is managed by the tailcast operator';
const PORTS = ['tcp:443'];

const ownersSchema = z.object({
  ownerRefs: z.array(
    z.object({
      operatorID: z.string().default(''),
      resource: z
        .object({ kind: z.string().default(''), name: z.string().default(''), uid: z.string().default('') })
        .optional(),
    }),
  ),
});

/** Returns the name of the group's Tailscale Service: `svc:` and the hostname that users connect to. */
export function serviceNameOf({ metadata, spec }: ProxyGroup): string {
  const { hostname } = spec.kubeAPIServer;
  return `svc:${hostname === '' ? metadata.name : hostname}`;
}

export type ServiceDecision =
  | { readonly kind: 'keep' }
  | { readonly kind: 'put'; readonly service: TailnetService }
  | { readonly kind: 'refuse'; readonly message: string };

/** Owner of a Tailscale Service, in the reference's format. */
export interface ServiceOwner {
  readonly operatorID: string;
  readonly resource: { readonly kind: string; readonly name: string; readonly uid: string };
}

/**
 * Decides whether to create, update or keep a Tailscale Service. If the existing Service belongs to another owner, it
 * stays unchanged.
 *
 * @param wanted.field field of the resource that determines the name, for the error message
 * @param isFree returns true if `wanted.owner` may own the existing Service.
 */
export function decideService(
  wanted: Pick<TailnetService, 'name' | 'tags' | 'ports'> & {
    readonly owner: ServiceOwner;
    readonly field: string;
  },
  isFree: (existing: TailnetService) => boolean,
  existing: TailnetService | undefined,
): ServiceDecision {
  const { name, tags, ports, owner, field } = wanted;
  if (existing !== undefined && !isFree(existing)) {
    const message =
      `${field}: Tailscale Service ${name} belongs to ${ownerShown(existing)}: choose another ` +
      'name, or delete that Tailscale Service';
    return { kind: 'refuse', message };
  }
  const owners = JSON.stringify({ ownerRefs: [owner] });
  const isSame = (left: readonly string[], right: readonly string[]): boolean =>
    left.toSorted().join() === right.toSorted().join();
  if (
    existing?.annotations[OWNERS] === owners &&
    isSame(existing.tags, tags) &&
    isSame(existing.ports, ports)
  )
    return { kind: 'keep' };
  const annotations = { ...existing?.annotations, [OWNERS]: owners };
  const addrs = existing?.addrs ?? [];
  return {
    kind: 'put',
    service: { name, tags: tags.toSorted(), ports, comment: COMMENT, annotations, addrs },
  };
}

/** Decides whether to create, update or keep the Tailscale Service of a ProxyGroup of gateways. */
export function decideGroupService(
  proxyGroup: ProxyGroup,
  { tags }: Pick<NodeGroup, 'tags'>,
  existing: TailnetService | undefined,
): ServiceDecision {
  const { name, uid } = proxyGroup.metadata;
  const owner = { operatorID: OPERATOR_ID, resource: { kind: 'ProxyGroup', name, uid } };
  const field = 'spec.kubeAPIServer.hostname';
  // Grants apply to tags, and the gateway reads the grants for its node. The Service has the same tags as the nodes, so
  // that the same grants apply to the Service.
  const wanted = { name: serviceNameOf(proxyGroup), tags, ports: PORTS, owner, field };
  return decideService(wanted, (service) => isServiceOfGroup(service, uid), existing);
}

/**
 * Removes all Tailscale Services of an owner, except those with the names in `keep`.
 *
 * @param isOurs returns true if a Tailscale Service belongs to this owner
 */
export async function removeServicesExcept(
  { services }: Pick<TailnetControl, 'services'>,
  keep: readonly string[],
  isOurs: (service: TailnetService) => boolean,
): Promise<void> {
  for (const service of (await services?.list()) ?? [])
    if (!keep.includes(service.name) && isOurs(service)) await services?.remove(service.name);
}

/** True if the group with this uid is the only owner of the Service. Uids are unique across clusters. */
export function isServiceOfGroup(service: TailnetService, uid: string): boolean {
  const owners = ownersOf(service) ?? [];
  return owners.length === 1 && owners[0]?.resource?.uid === uid;
}

/** Returns the owners of a Tailscale Service, as text for messages. */
function ownerShown(service: TailnetService): string {
  const shown = (ownersOf(service) ?? []).map(({ operatorID, resource }) =>
    resource === undefined
      ? `the operator ${operatorID}`
      : `${resource.kind} ${resource.name} (uid ${resource.uid}, operator ${operatorID})`,
  );
  return shown.length === 0 ? 'a user without an operator' : shown.join(' and ');
}

/** Returns the owners of a Tailscale Service; undefined if the annotation is missing or has an unknown format. */
export function ownersOf({
  annotations,
}: TailnetService): z.infer<typeof ownersSchema>['ownerRefs'] | undefined {
  return ownersSchema.safeParse(jsonOrUndefined(annotations[OWNERS] ?? '')).data?.ownerRefs;
}
