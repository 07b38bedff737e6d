/** Taking away what a group no longer needs: replicas, accounts, and in the end everything. Effects. */
import type { Logger } from '../../observe/logger.ts';
import type { TailnetControl } from '../auth-keys.ts';
import type { KubeClient } from '../kube-client.ts';
import { KINDS, type KubeObject, type ResourceKind } from '../kube-object.ts';
import type { OperatorMetrics } from '../operator-metrics.ts';
import { readStoredKey, removeNode } from './keys.ts';
import { readNodeState } from './node-state.ts';
import { replicaSecrets, type Observed, type ReplicaSecrets } from './observe.ts';
import { belongsTo, secretRole, stateSecretName, type NodeGroup } from './workload.ts';

export interface CleanupDeps {
  readonly client: Pick<KubeClient, 'get' | 'remove'>;
  readonly metrics: Pick<OperatorMetrics, 'devicesDeleted'>;
  readonly log: Logger;
}

/**
 * Removes the replicas that a scale-down left over. A replica goes after its pod: as long as that runs it could join
 * again, or write its state anew.
 *
 * @returns false when a pod is still there, so that somebody must look again.
 */
export async function removeSurplus(
  deps: CleanupDeps,
  group: NodeGroup,
  observed: Observed,
  control: TailnetControl,
  signal: AbortSignal,
): Promise<boolean> {
  const surplus = replicaSecrets(group, observed).filter(({ ordinal }) => ordinal >= group.replicas);
  let complete = true;
  for (const replica of surplus) {
    if (observed.pods.has(stateSecretName(group.name, replica.ordinal))) {
      complete = false;
      continue;
    }
    await leaveTailnet(deps, replica, control, signal);
    // The state goes last: it says which node this was.
    await removeObject(deps, group, KINDS.secret, replica.auth, signal);
    await removeObject(deps, group, KINDS.secret, replica.state, signal);
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
  signal: AbortSignal,
): Promise<void> {
  for (const account of serviceAccounts) {
    if (account.metadata.name !== group.account.name) {
      await removeObject(deps, group, KINDS.serviceAccount, account, signal);
    }
  }
}

/** Removes Services that an interrupted creation has left under another name. */
export async function removeStaleServices(
  deps: CleanupDeps,
  group: NodeGroup,
  { services }: Observed,
  signal: AbortSignal,
): Promise<void> {
  for (const service of services) {
    const { name, labels } = service.metadata;
    if (name !== group.name && labels?.['tailscale.com/metrics-target'] === undefined)
      await removeObject(deps, group, KINDS.service, service, signal);
  }
}

/**
 * Ends the pods and then takes every node of the group out of the tailnet, also those of replicas that a scale-down
 * had not got to. The objects go with the resource, by their owner references, or here where they have none, as Secrets of
 * nodes; volumes stay.
 *
 * @param how.control undefined when the tailnet is gone and nothing can be removed from it.
 * @param how.waitForPods false after the time that pods are waited for.
 * @param how.goWithResource whether the other objects are left to the garbage collector.
 * @returns `waiting` while pods are still there; else the nodes that were left in the tailnet.
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
  signal: AbortSignal,
): Promise<{ readonly kind: 'waiting' } | { readonly kind: 'done'; readonly left: readonly string[] }> {
  const { control, waitForPods, goWithResource } = how;
  await removeObject(deps, group, KINDS.statefulSet, observed.statefulSet, signal);
  // Pods may have been made since the StatefulSet was looked at, so one that was there is a reason to look again.
  if (waitForPods && (observed.statefulSet !== undefined || observed.pods.size > 0))
    return { kind: 'waiting' };
  const replicas = replicaSecrets(group, observed);
  const left: string[] = [];
  for (const replica of replicas) {
    if (control !== undefined) await leaveTailnet(deps, replica, control, signal);
    else {
      const deviceId = replica.state && readNodeState(replica.state).deviceId;
      if (deviceId !== undefined) left.push(deviceId);
    }
  }
  if (!goWithResource) await removeRest(deps, group, observed, signal);
  await removeSecrets(deps, group, observed, signal);
  return { kind: 'done', left };
}

/** What may have the resource as owner. */
async function removeRest(
  deps: CleanupDeps,
  group: NodeGroup,
  observed: Observed,
  signal: AbortSignal,
): Promise<void> {
  for (const service of observed.services) await removeObject(deps, group, KINDS.service, service, signal);
  await removeObject(deps, group, KINDS.disruptionBudget, observed.disruptionBudget, signal);
  await removeObject(deps, group, KINDS.roleBinding, observed.roleBinding, signal);
  await removeObject(deps, group, KINDS.role, observed.role, signal);
  for (const account of observed.serviceAccounts) {
    await removeObject(deps, group, KINDS.serviceAccount, account, signal);
  }
}

/** The state Secrets go last: as long as they are there, it is known which nodes have to leave. */
async function removeSecrets(
  deps: CleanupDeps,
  group: NodeGroup,
  observed: Observed,
  signal: AbortSignal,
): Promise<void> {
  const isState = ({ metadata }: KubeObject): boolean =>
    secretRole(group.name, metadata.name)?.kind === 'state';
  const secrets = [...observed.secrets.values()];
  for (const secret of secrets.toSorted((a, b) => Number(isState(a)) - Number(isState(b)))) {
    await removeObject(deps, group, KINDS.secret, secret, signal);
  }
}

/**
 * The key of a replica becomes worthless, and then its node leaves the tailnet: nobody joins after that. What its pod
 * wrote since everything was looked at is read before.
 */
async function leaveTailnet(
  deps: CleanupDeps,
  { state: seen, auth }: ReplicaSecrets,
  control: TailnetControl,
  signal: AbortSignal,
): Promise<void> {
  const keyId = auth === undefined ? undefined : readStoredKey(auth).id;
  if (keyId !== undefined) await control.revokeKey(keyId, signal);
  if (seen === undefined) return;
  const { namespace, name } = seen.metadata;
  const state = (await deps.client.get(KINDS.secret, { namespace, name }, signal)) ?? seen;
  await removeNode(deps, state, control, signal);
}

/** Removes an object if it is the group's, and still the one that was seen. */
async function removeObject(
  { client }: CleanupDeps,
  group: NodeGroup,
  kind: ResourceKind,
  object: KubeObject | undefined,
  signal: AbortSignal,
): Promise<void> {
  if (object === undefined || !belongsTo(group, object)) return;
  const { namespace, name, uid } = object.metadata;
  await client.remove(kind, { namespace, name }, { uid }, signal);
}
