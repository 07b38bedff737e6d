/**
 * Removes objects that a group no longer needs, such as surplus replicas. For a deleted group, removes all objects.
 * Effects.
 */
import type { Logger } from '../../observe/logger.ts';
import type { TailnetControl } from '../auth-keys.ts';
import type { KubeClient } from '../kube-client.ts';
import { KINDS, knownKindOf, type KubeObject } from '../kube-object.ts';
import type { OperatorMetrics } from '../operator-metrics.ts';
import { readStoredKey, removeNode } from './keys.ts';
import { readNodeState } from './node-state.ts';
import { replicaSecrets, type Observed, type ReplicaSecrets } from './observe.ts';
import { belongsTo, secretRole, stateSecretName, type NodeGroup, type ObjectOwner } from './workload.ts';

export interface CleanupDeps {
  readonly client: Pick<KubeClient, 'get' | 'remove'>;
  readonly metrics: Pick<OperatorMetrics, 'devicesDeleted'>;
  readonly log: Logger;
}

/**
 * Removes surplus replicas after a scale-down. A replica's node and Secrets are removed after its pod, because a
 * running pod could join again or rewrite its state.
 *
 * @returns false if a pod still exists and another reconciliation is necessary
 */
export async function removeSurplus(
  deps: CleanupDeps,
  group: NodeGroup,
  observed: Observed,
  control: TailnetControl,
): Promise<boolean> {
  const surplus = replicaSecrets(group, observed).filter(({ ordinal }) => ordinal >= group.replicas);
  let complete = true;
  for (const replica of surplus) {
    if (observed.pods.has(stateSecretName(group.name, replica.ordinal))) {
      complete = false;
      continue;
    }
    await leaveTailnet(deps, group, replica, control);
    // The state Secret is deleted last, because it identifies the node.
    await removeOwned(deps, group, replica.auth);
    await removeOwned(deps, group, replica.state);
    const { kind, name } = group;
    deps.log.info({ kind, name, ordinal: replica.ordinal }, 'replica removed');
  }
  return complete;
}

/** Removes ServiceAccounts that the group used under an earlier name. */
export async function removeStaleAccounts(
  deps: CleanupDeps,
  group: NodeGroup,
  { serviceAccounts }: Observed,
): Promise<void> {
  for (const account of serviceAccounts) {
    if (account.metadata.name !== group.account.name) {
      await removeOwned(deps, group, account);
    }
  }
}

/**
 * Removes Services that an interrupted creation left behind: their names differ from the group's name. Services for
 * metrics stay.
 */
export async function removeStaleServices(
  deps: CleanupDeps,
  group: NodeGroup,
  { services }: Observed,
): Promise<void> {
  for (const service of services) {
    const { name, labels } = service.metadata;
    if (name !== group.name && labels?.['tailscale.com/metrics-target'] === undefined)
      await removeOwned(deps, group, service);
  }
}

/**
 * Deletes the pods, then removes every node of the group from the tailnet, including nodes of surplus replicas. Then
 * deletes the objects of the group, except those that the garbage collector deletes. Volumes stay.
 *
 * @param how.control control server of the nodes; undefined if the `Tailnet` resource was deleted, so that the nodes
 *   stay in the tailnet
 * @param how.waitForPods false if the maximum waiting time is over; the function then does not wait until the pods are
 * gone
 * @param how.goWithResource true if the garbage collector deletes the objects with an owner reference
 * @returns `waiting` while pods exist; otherwise the nodes that are still in the tailnet
 */
export async function removeAll(
  deps: CleanupDeps,
  group: NodeGroup,
  observed: Observed,
  how: {
    readonly control: TailnetControl | undefined;
    readonly waitForPods: boolean;
    readonly goWithResource: boolean;
  },
): Promise<{ readonly kind: 'waiting' } | { readonly kind: 'done'; readonly left: readonly string[] }> {
  const { control, waitForPods, goWithResource } = how;
  await removeOwned(deps, group, observed.statefulSet);
  // The StatefulSet may have created pods since the objects were read, so the next reconciliation checks again.
  if (waitForPods && (observed.statefulSet !== undefined || observed.pods.size > 0))
    return { kind: 'waiting' };
  const replicas = replicaSecrets(group, observed);
  const left: string[] = [];
  for (const replica of replicas) {
    if (control !== undefined) await leaveTailnet(deps, group, replica, control);
    else {
      const { deviceId } = readNodeState(replica.state);
      if (deviceId !== undefined) left.push(deviceId);
    }
  }
  if (!goWithResource) await removeDependents(deps, group, observed);
  await removeSecrets(deps, group, observed);
  return { kind: 'done', left };
}

/** Removes the objects that the garbage collector would delete together with the resource. */
async function removeDependents(deps: CleanupDeps, group: NodeGroup, observed: Observed): Promise<void> {
  const { services, disruptionBudget, roleBinding, role, serviceAccounts } = observed;
  for (const object of [...services, disruptionBudget, roleBinding, role, ...serviceAccounts])
    await removeOwned(deps, group, object);
}

/**
 * Removes the Secrets. The state Secrets are deleted last, because they identify the nodes that must leave the
 * tailnet.
 */
async function removeSecrets(deps: CleanupDeps, group: NodeGroup, observed: Observed): Promise<void> {
  const isState = ({ metadata }: KubeObject): boolean =>
    secretRole(group.name, metadata.name)?.kind === 'state';
  const secrets = [...observed.secrets.values()];
  for (const secret of secrets.toSorted((a, b) => Number(isState(a)) - Number(isState(b)))) {
    await removeOwned(deps, group, secret);
  }
}

/**
 * Revokes the key of a replica, then removes its node from the tailnet, so that no node can join afterwards. First, the
 * state Secret is read again, because the pod may have written to it. The Secret may belong to another group, because
 * names contain only a short hash; the node then stays.
 */
async function leaveTailnet(
  deps: CleanupDeps,
  group: NodeGroup,
  { state: seen, auth }: ReplicaSecrets,
  control: TailnetControl,
): Promise<void> {
  const keyId = auth !== undefined && belongsTo(group, auth) ? readStoredKey(auth).id : undefined;
  if (keyId !== undefined) await control.revokeKey(keyId);
  if (seen === undefined || !belongsTo(group, seen)) return;
  const { namespace, name } = seen.metadata;
  const state = (await deps.client.get(KINDS.secret, { namespace, name })) ?? seen;
  await removeNode(deps, state, control);
}

/** Removes a ConfigMap if it belongs to the group. */
export async function removeConfigMap(
  deps: CleanupDeps,
  group: NodeGroup,
  reference: { readonly namespace: string; readonly name: string },
): Promise<void> {
  await removeOwned(deps, group, await deps.client.get(KINDS.configMap, reference));
}

/** Removes an object if it belongs to the resource. */
export async function removeOwned(
  deps: { readonly client: Pick<KubeClient, 'remove'> },
  group: ObjectOwner,
  object: KubeObject | undefined,
): Promise<void> {
  if (object !== undefined && belongsTo(group, object)) await removeExact(deps, object);
}

/** Removes an object. The uid prevents removal of a newer object with the same name. */
export async function removeExact(
  { client }: { readonly client: Pick<KubeClient, 'remove'> },
  object: KubeObject,
): Promise<void> {
  const { namespace, name, uid } = object.metadata;
  await client.remove(knownKindOf(object), { namespace, name }, { uid });
}
