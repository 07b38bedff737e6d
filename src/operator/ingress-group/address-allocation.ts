/** Allocates and releases addresses of the members of a group. Effects. */
import { errorText } from '../../errors.ts';
import type { Sequence } from '../../async/sequence.ts';
import type { TailnetServices } from '../auth-keys.ts';
import { KINDS, knownKindOf, type KubeObject } from '../kube-object.ts';
import type { ReconcilerDeps } from '../workload/reconciler.ts';
import { labelSelector, type NodeGroup } from '../workload/workload.ts';
import { forEachMember } from '../workload/for-each-member.ts';
import { applyChanged } from '../workload/apply.ts';
import { removeExact } from '../workload/cleanup.ts';
import { listOwn } from '../workload/observe.ts';
import { certificateLabels, certificateObjects, isFilled } from './certificates.ts';
import {
  assignAddresses,
  allocationsName,
  allocationsObject,
  readAllocations,
  type Allocation,
  type Allocations,
} from './allocations.ts';
import { listAllocations } from './candidates.ts';
import type { GroupMember } from './member.ts';
import { decideTailnetService, tailnetServiceName } from './tailnet-service.ts';

type Deps = Pick<ReconcilerDeps, 'client' | 'options' | 'log' | 'signal'>;

/** Result of the address allocation for a member. */
export type Granted =
  | { readonly kind: 'granted'; readonly addresses: readonly string[] }
  | { readonly kind: 'refused'; readonly message: string }
  /** A request to the control server failed. Other members are still served. */
  | { readonly kind: 'failed'; readonly error: Error };

/** Writes the allocations of a group if they have changed. */
export async function writeAllocations(
  { client, options }: Pick<Deps, 'client' | 'options'>,
  group: NodeGroup,
  allocations: Allocations,
): Promise<void> {
  const reference = { namespace: options.namespace, name: allocationsName(group.name) };
  const existing = await client.get(KINDS.configMap, reference);
  if (existing === undefined && allocations.size === 0) return;
  await applyChanged(client, allocationsObject(group, options, allocations), existing, group);
}

/**
 * Allocates addresses from the networks in the operator's settings. The nodes advertise these addresses as routes.
 *
 * @param inTurn runs the allocations of all groups one after another, so that no address is allocated twice
 */
export function grantRoutes(
  deps: Deps,
  group: NodeGroup,
  members: readonly GroupMember[],
  inTurn: Sequence,
): Promise<ReadonlyMap<string, Granted>> {
  return inTurn(async () => {
    const ledgers = await listAllocations(deps);
    const own = allocationsName(group.name);
    const before = readAllocations(ledgers.get(own));
    const foreign = addressesOf(
      [...ledgers].flatMap(([name, object]) => (name === own ? [] : readAllocations(object))),
    );
    const taken = addressesOf([before]);
    const next = new Map(before);
    const granted = new Map<string, Granted>();
    for (const { key, hostname } of members) {
      const had = before.get(key)?.addresses ?? [];
      const addresses = assignAddresses(
        deps.options.networks,
        had,
        (address) => foreign.has(address) || (taken.has(address) && !had.includes(address)),
      );
      if (addresses === undefined) {
        const message = 'the networks of the operator have no address left: name more in ingressAddresses';
        granted.set(key, { kind: 'refused', message });
        continue;
      }
      for (const address of addresses) taken.add(address);
      next.set(key, { ...before.get(key), hostname, addresses });
      granted.set(key, { kind: 'granted', addresses });
    }
    await writeAllocations(deps, group, next);
    return granted;
  });
}

function addressesOf(ledgers: readonly Allocations[]): Set<string> {
  return new Set(
    ledgers.flatMap((allocations) => [...allocations.values()].flatMap(({ addresses }) => addresses)),
  );
}

/**
 * Creates a Tailscale Service for each member. A failure for one member does not affect the other members.
 *
 * @param present uids of all existing members of the group
 */
export async function grantServices(
  deps: Deps,
  services: TailnetServices,
  group: NodeGroup,
  members: readonly { readonly member: GroupMember; readonly ports: readonly number[] }[],
  present: ReadonlySet<string>,
  before: Allocations,
): Promise<ReadonlyMap<string, Granted>> {
  const granted = new Map<string, Granted>();
  const next = new Map<string, Allocation>(before);
  for (const { member, ports } of members) {
    const owner = { uid: group.uid, tags: deps.options.defaultTags, members: present };
    const answer = await grantService(services, owner, member, ports);
    granted.set(member.key, answer);
    if (answer.kind === 'granted') {
      next.set(member.key, { hostname: member.hostname, addresses: answer.addresses });
    } else if (answer.kind === 'failed') {
      deps.log.warn(
        { group: group.name, member: member.key, error: errorText(answer.error) },
        'no Tailscale Service',
      );
    }
  }
  await writeAllocations(deps, group, next);
  return granted;
}

async function grantService(
  services: TailnetServices,
  group: Parameters<typeof decideTailnetService>[1],
  member: GroupMember,
  ports: readonly number[],
): Promise<Granted> {
  const name = tailnetServiceName(member);
  try {
    const existing = await services.get(name);
    const decision = decideTailnetService(member, group, ports, existing);
    if (decision.kind === 'refuse') return { kind: 'refused', message: decision.message };
    if (decision.kind === 'put') await services.put(decision.service);
    const made = decision.kind === 'put' ? await services.get(name) : existing;
    const addresses = made?.addrs ?? [];
    if (addresses.length > 0) return { kind: 'granted', addresses };
    return { kind: 'failed', error: new Error(`Tailscale Service ${name} has no address yet`) };
  } catch (error) {
    return { kind: 'failed', error: error instanceof Error ? error : new Error(errorText(error)) };
  }
}

/**
 * Creates the objects for the certificates of these names.
 *
 * @returns the names whose Secret already contains a certificate, and the first failure
 */
export async function createCertificateObjects(
  { client, options, ...deps }: Deps,
  group: NodeGroup,
  domains: readonly string[],
): Promise<{ readonly filled: ReadonlySet<string>; readonly failure: Error | undefined }> {
  const filled = new Set<string>();
  const create = async (domain: string): Promise<void> => {
    const reference = { namespace: options.namespace, name: domain };
    const [secret, ...rights] = certificateObjects(group, options, domain);
    const existing = await client.get(KINDS.secret, reference);
    assertOurs(group, existing);
    if (isFilled(existing)) filled.add(domain);
    // The nodes own the content of the Secret, so an existing Secret is not changed.
    if (existing === undefined && secret !== undefined) await applyChanged(client, secret, undefined);
    for (const object of rights) {
      const before = await client.get(knownKindOf(object), reference);
      assertOurs(group, before);
      await applyChanged(client, object, before);
    }
  };
  const failure = await forEachMember(deps, domains, (domain) => domain, create);
  return { filled, failure };
}

function assertOurs(group: NodeGroup, existing: KubeObject | undefined): void {
  const { labels = {}, namespace = '', name = '' } = existing?.metadata ?? {};
  if (existing === undefined || labels['tailscale.com/proxy-group'] === group.name) return;
  throw new Error(
    `${existing.kind} ${namespace}/${name} exists and does not belong to ProxyGroup "${group.name}"`,
  );
}

/** Removes the certificates of names that are no longer served. */
export async function removeCertificates(
  deps: Pick<Deps, 'client' | 'options'>,
  group: string,
  keep: readonly string[],
): Promise<void> {
  const selector = labelSelector(certificateLabels(group));
  for (const secret of await listOwn(deps, KINDS.secret, selector, true)) {
    const { namespace, name } = secret.metadata;
    if (keep.includes(name)) continue;
    await deps.client.remove(KINDS.roleBinding, { namespace, name }, {});
    await deps.client.remove(KINDS.role, { namespace, name }, {});
    // The Secret is deleted last, because it identifies the other objects.
    await removeExact(deps, secret);
  }
}
