/**
 * Creates and updates all objects of a workload: Secrets, ServiceAccount, Role, RoleBinding, PodDisruptionBudget,
 * Service, StatefulSet. Effects.
 */
import { hasJoined, missingCondition } from './readiness.ts';
import { z } from 'zod';
import type { TailnetControl } from '../auth-keys.ts';
import { type KubeObject, type DesiredObject, KINDS } from '../kube-object.ts';
import { removeSurplus, removeStaleAccounts, removeStaleServices } from './cleanup.ts';
import type { Observed } from './observe.ts';
import { type SpecOptions, type NodeGroup, ordinals, stateSecretName, authSecretName } from './workload.ts';
import type { DesiredStatefulSet } from './pod-specs.ts';
import type { ReplicaNode } from './keys.ts';
import { assertOwned, applyOwned } from './apply.ts';
import { type ReconcilerDeps, SHORT_MS, nextKeyCheckMs, type Observation } from './reconciler.ts';
import {
  serviceAccount,
  role,
  roleBinding,
  disruptionBudget,
  type StoredKey,
  authSecret,
  stateSecret,
} from './object-specs.ts';

/**
 * Desired objects of a group. Objects that depend on the control server or on existing objects are given as functions
 * that return them.
 */
export interface DesiredWorkload {
  readonly group: NodeGroup;
  readonly statefulSet: (options: SpecOptions) => DesiredStatefulSet;
  /** Names of Secrets that the pods may read, in addition to their own. */
  readonly readableSecrets?: readonly string[];
  /** Headless Service of the pods. */
  readonly service?: DesiredObject;
  /**
   * Returns the data for the state Secret of a replica. Default: only the auth key. The key is undefined after the node
   * has joined.
   */
  readonly stateData?: (
    ordinal: number,
    authKey: string | undefined,
    options: SpecOptions,
  ) => Readonly<Record<string, string>>;
}

export interface Deployed {
  /** Nodes of all replicas. */
  readonly nodes: readonly ReplicaNode[];
  /** Nodes that have joined, and whose rules are in effect. */
  readonly joined: readonly ReplicaNode[];
  /** True while the StatefulSet is being recreated. */
  readonly recreating: boolean;
  /** False while the StatefulSet is being recreated or surplus replicas are being removed. */
  readonly settled: boolean;
  /** Description of the condition that the nodes do not meet yet; undefined if all nodes are ready. */
  readonly missing: string | undefined;
  /** Time until the next reconciliation, in milliseconds. If undefined, only a change of an object starts it. */
  readonly retryAfterMs: number | undefined;
}

/**
 * Deploys a workload: creates and updates its objects, removes surplus objects, and reports the state of its nodes.
 *
 * @throws TailcastError `OBJECT_NOT_OURS`, `CONTROL_FAILED`; KubeRefusal.
 */
export async function deployWorkload(
  deps: ReconcilerDeps,
  desired: DesiredWorkload,
  { control, observed }: Observation,
): Promise<Deployed> {
  const { group } = desired;
  const { nodes, recreating } = await provision(deps, desired, observed, control);
  await removeStaleAccounts(deps, group, observed);
  await removeStaleServices(deps, group, observed);
  const isSurplusRemoved = await removeSurplus(deps, group, observed, control);
  const settled = !recreating && isSurplusRemoved;
  const joined = nodes.filter((node) => hasJoined(group, node, observed));
  return {
    nodes,
    joined,
    recreating,
    settled,
    missing: recreating
      ? 'the StatefulSet is being recreated; its pods keep running'
      : missingCondition(group, joined.length, observed),
    retryAfterMs: settled ? nextKeyCheckMs(nodes, deps.clock.now()) : SHORT_MS,
  };
}

/** Applies the objects in the order of their dependencies. */
async function provision(
  deps: ReconcilerDeps,
  desired: DesiredWorkload,
  observed: Observed,
  control: TailnetControl,
): Promise<Pick<Deployed, 'nodes' | 'recreating'>> {
  const options = { ...deps.options, loginServer: control.loginServer };
  const { group, service } = desired;
  const { name } = group;
  const put = (object: DesiredObject, existing: KubeObject | undefined): Promise<void> =>
    applyOwned(deps, group, object, existing);
  function stateOf(ordinal: number, authKey: string | undefined): DesiredObject {
    const given = desired.stateData?.(ordinal, authKey, options);
    return stateSecret(group, options, ordinal, given ?? (authKey === undefined ? {} : { authkey: authKey }));
  }
  const nodes: ReplicaNode[] = [];
  for (const ordinal of ordinals(group)) {
    const auth = observed.secrets.get(authSecretName(name, ordinal));
    const state = observed.secrets.get(stateSecretName(name, ordinal));
    for (const secret of [auth, state]) assertOwned(group, secret);
    let written: StoredKey | undefined;
    const node = await deps.keys.ensure({ group, ordinal, control, secrets: { state, auth } }, (stored) => {
      written = stored;
      return put(authSecret(group, options, ordinal, stored), auth);
    });
    if (node.stored !== undefined && node.stored !== written) {
      await put(authSecret(group, options, ordinal, node.stored), auth);
    }
    await put(stateOf(ordinal, node.deliver), state);
    nodes.push(node);
  }
  if (!group.account.shared) await put(serviceAccount(group, options), observed.serviceAccount);
  await put(role(group, options, desired.readableSecrets), observed.role);
  await put(roleBinding(group, options), observed.roleBinding);
  if (group.owned) await put(disruptionBudget(group, options), observed.disruptionBudget);
  if (service !== undefined)
    await put(
      service,
      observed.services.find(({ metadata }) => metadata.name === service.metadata.name),
    );
  return { nodes, recreating: await applyStatefulSet(deps, desired, options, observed.statefulSet) };
}

/**
 * Applies the StatefulSet. Returns true if the StatefulSet must be recreated: this reconciliation deletes it, and a
 * later one creates it again.
 */
async function applyStatefulSet(
  deps: ReconcilerDeps,
  { group, statefulSet }: DesiredWorkload,
  options: SpecOptions,
  existing: KubeObject | undefined,
): Promise<boolean> {
  assertOwned(group, existing);
  const desired = withPolicyOf(existing, statefulSet(options));
  if (existing !== undefined && mustRecreate(existing, desired)) {
    const { namespace, name, uid } = existing.metadata;
    deps.log.info({ kind: group.kind, name: group.name }, 'StatefulSet is recreated, its pods keep running');
    await deps.client.remove(KINDS.statefulSet, { namespace, name }, { uid, propagation: 'Orphan' });
    // A later reconciliation creates the new StatefulSet, because the deletion is complete only after the garbage
    // collector has removed the owner references of the pods.
    return true;
  }
  await applyOwned(deps, group, desired, existing);
  return false;
}

const existingSchema = z.object({
  spec: z.object({
    podManagementPolicy: z.string().default('OrderedReady'),
    selector: z.object({ matchLabels: z.record(z.string(), z.string()).default({}) }),
    volumeClaimTemplates: z
      .array(
        z.object({
          metadata: z.object({ name: z.string() }),
          spec: z.object({
            storageClassName: z.string().optional(),
            resources: z.object({ requests: z.record(z.string(), z.string()).default({}) }),
          }),
        }),
      )
      .default([]),
  }),
});

/** Returns the StatefulSet with the immutable `podManagementPolicy` of the existing one. */
function withPolicyOf(existing: KubeObject | undefined, desired: DesiredStatefulSet): DesiredStatefulSet {
  if (existing === undefined) return desired;
  const { podManagementPolicy } = existingSchema.parse(existing).spec;
  return { ...desired, spec: { ...desired.spec, podManagementPolicy } };
}

/**
 * True if the selector or the volume claim templates differ. Both are immutable. The operator then deletes the
 * StatefulSet without its pods, and the new StatefulSet adopts the pods. The recreation itself therefore restarts no
 * pod.
 */
export function mustRecreate(existing: KubeObject, desired: DesiredStatefulSet): boolean {
  const { spec } = existingSchema.parse(existing);
  const wanted = existingSchema.parse(desired).spec;
  return (
    !sameMap(spec.selector.matchLabels, wanted.selector.matchLabels) ||
    claims(spec.volumeClaimTemplates) !== claims(wanted.volumeClaimTemplates)
  );
}

function sameMap(left: Readonly<Record<string, string>>, right: Readonly<Record<string, string>>): boolean {
  const keys = Object.keys(left);
  return keys.length === Object.keys(right).length && keys.every((key) => left[key] === right[key]);
}

function claims(templates: z.infer<typeof existingSchema>['spec']['volumeClaimTemplates']): string {
  return JSON.stringify(
    templates.map(({ metadata, spec }) => [
      metadata.name,
      spec.storageClassName ?? '',
      spec.resources.requests['storage'] ?? '',
    ]),
  );
}
