/** Makes the cluster what a resource says it should be. Effects; what that is comes from the pure specs. */
import type { Logger } from '../../observe/logger.ts';
import type { TailnetControl } from '../auth-keys.ts';
import { FIELD_MANAGER, type KubeClient } from '../kube-client.ts';
import { kindOf, KINDS, type DesiredObject, type KubeObject } from '../kube-object.ts';
import { immutablePartsOf, mustRecreate, takenOver } from './adoption.ts';
import type { KeyKeeper, ReplicaNode } from './keys.ts';
import type { Observed } from './observe.ts';
import { authSecretName, ordinals, stateSecretName, type NodeGroup, type SpecOptions } from './node-group.ts';
import type { DesiredStatefulSet, ImmutableParts } from './pods.ts';
import {
  authSecret,
  disruptionBudget,
  role,
  roleBinding,
  serviceAccount,
  stateSecret,
  type StoredKey,
} from './specs.ts';
import { assertOwned, isUnchanged, withDigest } from './unchanged.ts';

export interface ProvisionDeps {
  readonly client: Pick<KubeClient, 'apply' | 'patch' | 'remove'>;
  readonly options: SpecOptions;
  readonly keys: Pick<KeyKeeper, 'ensure'>;
  readonly log: Logger;
}

/** What is to be: the nodes, and the StatefulSet for a control server. */
export interface Wanted {
  readonly group: NodeGroup;
  readonly statefulSet: (options: SpecOptions, existing?: ImmutableParts) => DesiredStatefulSet;
  /** The Service under whose name the pods are found, where there is one. */
  readonly service?: DesiredObject;
  /** What else a state Secret hands to its pod; the key is undefined once the node is known. */
  readonly stateData?: (
    ordinal: number,
    authKey: string | undefined,
    options: SpecOptions,
  ) => Readonly<Record<string, string>>;
}

export interface Provisioned {
  /** What is known about each replica's node. */
  readonly nodes: readonly ReplicaNode[];
  /** False while the StatefulSet is being made anew. */
  readonly complete: boolean;
}

/**
 * Applies every object, in the order in which they need each other.
 *
 * @throws TailcastError `OBJECT_NOT_OURS`, `CONTROL_FAILED`; KubeRefusal.
 */
export async function provision(
  deps: ProvisionDeps,
  wanted: Wanted,
  observed: Observed,
  control: TailnetControl,
  signal: AbortSignal,
): Promise<Provisioned> {
  const options = { ...deps.options, loginServer: control.loginServer };
  const { group } = wanted;
  const { name } = group;
  const put = (desired: DesiredObject, existing: KubeObject | undefined): Promise<void> =>
    applyOwned(deps, group, desired, existing, signal);
  function stateOf(ordinal: number, authKey: string | undefined): DesiredObject {
    const given = wanted.stateData?.(ordinal, authKey, options);
    return stateSecret(group, options, ordinal, given ?? (authKey === undefined ? {} : { authkey: authKey }));
  }
  const nodes: ReplicaNode[] = [];
  for (const ordinal of ordinals(group)) {
    const auth = observed.secrets.get(authSecretName(name, ordinal));
    const state = observed.secrets.get(stateSecretName(name, ordinal));
    for (const secret of [auth, state]) assertOwned(group, secret);
    let written: StoredKey | undefined;
    const node = await deps.keys.ensure(
      { group, ordinal, control, signal, secrets: { state, auth } },
      (stored) => {
        written = stored;
        return put(authSecret(group, options, ordinal, stored), auth);
      },
    );
    if (node.stored !== undefined && node.stored !== written) {
      await put(authSecret(group, options, ordinal, node.stored), auth);
    }
    await put(stateOf(ordinal, node.deliver), state);
    nodes.push(node);
  }
  if (!group.account.shared) await put(serviceAccount(group, options), observed.serviceAccount);
  await put(role(group, options), observed.role);
  await put(roleBinding(group, options), observed.roleBinding);
  if (group.owned) await put(disruptionBudget(group, options), observed.disruptionBudget);
  if (wanted.service !== undefined) {
    const { name: wantedName } = wanted.service.metadata;
    await put(
      wanted.service,
      observed.services.find(({ metadata }) => metadata.name === wantedName),
    );
  }
  const complete = await applyStatefulSet(deps, wanted, options, observed.statefulSet, signal);
  return { nodes, complete };
}

async function applyStatefulSet(
  deps: ProvisionDeps,
  { group, statefulSet }: Wanted,
  options: SpecOptions,
  existing: KubeObject | undefined,
  signal: AbortSignal,
): Promise<boolean> {
  assertOwned(group, existing);
  const desired =
    existing === undefined ? statefulSet(options) : statefulSet(options, immutablePartsOf(existing));
  if (existing !== undefined && mustRecreate(existing, desired)) {
    const { namespace, name, uid } = existing.metadata;
    deps.log.info({ kind: group.kind, name: group.name }, 'StatefulSet is made anew, its pods stay');
    await deps.client.remove(KINDS.statefulSet, { namespace, name }, { uid, propagation: 'Orphan' }, signal);
    // It is gone when the garbage collector has let the pods go; the next pass makes the new one.
    return false;
  }
  await applyOwned(deps, group, desired, existing, signal);
  return true;
}

async function applyOwned(
  { client }: ProvisionDeps,
  group: NodeGroup,
  desired: DesiredObject,
  existing: KubeObject | undefined,
  signal: AbortSignal,
): Promise<void> {
  assertOwned(group, existing);
  // There may be thousands of those that live beside their resource: what is so already is not written again.
  if (!group.owned && existing !== undefined && isUnchanged(existing, desired)) return;
  const kind = kindOf(desired);
  // What tailscaled keeps in a Secret is stated by others on purpose.
  const managedFields =
    existing === undefined || kind === KINDS.secret ? undefined : takenOver(existing, FIELD_MANAGER);
  if (existing !== undefined && kind !== undefined && managedFields !== undefined) {
    const { namespace, name, resourceVersion } = existing.metadata;
    const body = [
      { op: 'test', path: '/metadata/resourceVersion', value: resourceVersion },
      { op: 'replace', path: '/metadata/managedFields', value: managedFields },
    ];
    await client.patch(kind, { namespace, name }, { kind: 'json', body }, signal);
  }
  await client.apply(group.owned ? desired : withDigest(desired), signal);
}
