/** Makes the cluster what a Recorder says it should be. Effects; what that is comes from the pure specs. */
import { TailcastError } from '../../errors.ts';
import type { Logger } from '../../observe/logger.ts';
import type { TailnetControl } from '../auth-keys.ts';
import { FIELD_MANAGER, type KubeClient } from '../kube-client.ts';
import { kindOf, KINDS, type DesiredObject, type KubeObject } from '../kube-object.ts';
import { immutablePartsOf, mustRecreate, takenOver } from './adoption.ts';
import type { KeyKeeper, ReplicaNode } from './keys.ts';
import type { Observed } from './observe.ts';
import type { Recorder } from './resource.ts';
import {
  authSecret,
  authSecretName,
  ordinals,
  role,
  roleBinding,
  serviceAccount,
  stateSecret,
  stateSecretName,
  type SpecOptions,
  type StoredKey,
} from './specs.ts';
import { statefulSet } from './stateful-set-specs.ts';
import { belongsTo } from './validation.ts';

export interface ProvisionDeps {
  readonly client: Pick<KubeClient, 'apply' | 'patch' | 'remove'>;
  readonly options: SpecOptions;
  readonly keys: Pick<KeyKeeper, 'ensure'>;
  readonly log: Logger;
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
  recorder: Recorder,
  observed: Observed,
  control: TailnetControl,
  signal: AbortSignal,
): Promise<Provisioned> {
  const options = { ...deps.options, loginServer: control.loginServer };
  const { name } = recorder.metadata;
  const put = (desired: DesiredObject, existing: KubeObject | undefined): Promise<void> =>
    applyOwned(deps, recorder, desired, existing, signal);
  const nodes: ReplicaNode[] = [];
  for (const ordinal of ordinals(recorder)) {
    const auth = observed.secrets.get(authSecretName(name, ordinal));
    const state = observed.secrets.get(stateSecretName(name, ordinal));
    for (const secret of [auth, state]) assertOurs(recorder, secret);
    let written: StoredKey | undefined;
    const node = await deps.keys.ensure(
      { recorder, ordinal, control, signal, secrets: { state, auth } },
      (stored) => {
        written = stored;
        return put(authSecret(recorder, options, ordinal, stored), auth);
      },
    );
    if (node.stored !== undefined && node.stored !== written) {
      await put(authSecret(recorder, options, ordinal, node.stored), auth);
    }
    await put(stateSecret(recorder, options, ordinal, node.deliver), state);
    nodes.push(node);
  }
  await put(serviceAccount(recorder, options), observed.serviceAccount);
  await put(role(recorder, options), observed.role);
  await put(roleBinding(recorder, options), observed.roleBinding);
  const complete = await applyStatefulSet(deps, recorder, options, observed.statefulSet, signal);
  return { nodes, complete };
}

async function applyStatefulSet(
  deps: ProvisionDeps,
  recorder: Recorder,
  options: SpecOptions,
  existing: KubeObject | undefined,
  signal: AbortSignal,
): Promise<boolean> {
  assertOurs(recorder, existing);
  const desired =
    existing === undefined
      ? statefulSet(recorder, options)
      : statefulSet(recorder, options, immutablePartsOf(existing));
  if (existing !== undefined && mustRecreate(existing, desired)) {
    const { namespace, name, uid } = existing.metadata;
    deps.log.info({ recorder: recorder.metadata.name }, 'StatefulSet is made anew, its pods stay');
    await deps.client.remove(KINDS.statefulSet, { namespace, name }, { uid, propagation: 'Orphan' }, signal);
    // It is gone when the garbage collector has let the pods go; the next pass makes the new one.
    return false;
  }
  await applyOwned(deps, recorder, desired, existing, signal);
  return true;
}

async function applyOwned(
  { client }: ProvisionDeps,
  recorder: Recorder,
  desired: DesiredObject,
  existing: KubeObject | undefined,
  signal: AbortSignal,
): Promise<void> {
  assertOurs(recorder, existing);
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
  await client.apply(desired, signal);
}

function assertOurs(recorder: Recorder, existing: KubeObject | undefined): void {
  if (existing === undefined || belongsTo(recorder, existing)) return;
  const { namespace, name } = existing.metadata;
  throw new TailcastError(
    'OBJECT_NOT_OURS',
    `${existing.kind} ${namespace ?? ''}/${name} exists and does not belong to Recorder "${recorder.metadata.name}"`,
  );
}
