/**
 * The Tailscale Service of a ProxyGroup: one name for all of its replicas. Who owns a Service is written into it, in
 * the reference's words, so that no operator takes another's. Pure.
 */
import { z } from 'zod';
import { jsonOrUndefined } from '../../wire/json-value.ts';
import type { TailnetService } from '../auth-keys.ts';
import type { NodeGroup } from '../nodes/node-group.ts';
import type { ProxyGroup } from './resource.ts';

/** The annotation in which owners are. */
export const OWNERS = 'tailscale.com/owner-references';
/** Who we are in that annotation; the reference puts the ID of its own node there, and we have none. */
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

/** `svc:` and the name that people type. */
export function serviceNameOf({ metadata, spec }: ProxyGroup): string {
  const { hostname } = spec.kubeAPIServer;
  return `svc:${hostname === '' ? metadata.name : hostname}`;
}

export type ServiceDecision =
  | { readonly kind: 'keep' }
  | { readonly kind: 'put'; readonly service: TailnetService }
  | { readonly kind: 'refuse'; readonly message: string };

/** What to do about the Service that is there, or is not. A Service is one group's alone. */
export function decideService(
  proxyGroup: ProxyGroup,
  { tags }: Pick<NodeGroup, 'tags'>,
  existing: TailnetService | undefined,
): ServiceDecision {
  const name = serviceNameOf(proxyGroup);
  if (existing !== undefined && !isOurs(existing, proxyGroup.metadata.uid)) {
    return {
      kind: 'refuse',
      message: `spec.kubeAPIServer.hostname: Tailscale Service ${name} belongs to ${ownerShown(existing)}: choose another name, or delete that Tailscale Service`,
    };
  }
  const { metadata } = proxyGroup;
  const owners = JSON.stringify({
    ownerRefs: [
      {
        operatorID: OPERATOR_ID,
        resource: { kind: 'ProxyGroup', name: metadata.name, uid: metadata.uid },
      },
    ],
  });
  const service: TailnetService = {
    name,
    // Callers' grants are read for the nodes, so the Service must be reached by the same ones.
    tags,
    ports: PORTS,
    comment: COMMENT,
    annotations: { ...existing?.annotations, [OWNERS]: owners },
    addrs: existing?.addrs ?? [],
  };
  const complete =
    existing !== undefined &&
    existing.tags.toSorted().join() === tags.join() &&
    existing.ports.join() === PORTS.join() &&
    existing.annotations[OWNERS] === owners;
  return complete ? { kind: 'keep' } : { kind: 'put', service };
}

/** Names of Services that the group had under an earlier name; all of the group's when it is going. */
export function staleServices(
  uid: string,
  services: readonly TailnetService[],
  keep: string | undefined,
): readonly string[] {
  return services.filter((service) => service.name !== keep && isOurs(service, uid)).map(({ name }) => name);
}

/** Uids are unique, also between clusters: a Service that names this one and nobody else is this group's. */
function isOurs(service: TailnetService, uid: string): boolean {
  const owners = ownersOf(service) ?? [];
  return owners.length === 1 && owners[0]?.resource?.uid === uid;
}

/** Returns the owners of a Tailscale Service, for messages. */
export function ownerShown(service: TailnetService): string {
  const shown = (ownersOf(service) ?? []).map(({ operatorID, resource }) =>
    resource === undefined
      ? `the operator ${operatorID}`
      : `${resource.kind} ${resource.name} (uid ${resource.uid}, operator ${operatorID})`,
  );
  return shown.length === 0 ? 'somebody who made it without an operator' : shown.join(' and ');
}

/** Who has a part in a Service; undefined where that is not said, or in other words. */
export function ownersOf({
  annotations,
}: TailnetService): z.infer<typeof ownersSchema>['ownerRefs'] | undefined {
  return ownersSchema.safeParse(jsonOrUndefined(annotations[OWNERS] ?? '')).data?.ownerRefs;
}
