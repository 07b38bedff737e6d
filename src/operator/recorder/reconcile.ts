/** One pass over one Recorder: look, decide, do, and say in its status what came of it. Effects only. */
import { errorText } from '../../errors.ts';
import type { TailnetControl } from '../auth-keys.ts';
import { KubeRefusal } from '../kube-client.ts';
import { KINDS } from '../kube-object.ts';
import { removeStaleAccounts, removeSurplus } from '../nodes/cleanup.ts';
import {
  addFinalizer,
  controlOf,
  finish,
  nextLook,
  SHORT_MS,
  timeOf,
  type Managed,
  type Reconciler,
  type ReconcilerDeps,
} from '../nodes/lifecycle.ts';
import { observe } from '../nodes/observe.ts';
import { provision, type Wanted } from '../nodes/provision.ts';
import { devicesOf, type ShownDevice } from '../nodes/status.ts';
import { recorderGroup } from './group.ts';
import { parseRecorder, type Recorder } from './resource.ts';
import { isForeignImage, statefulSet } from './stateful-set-specs.ts';
import { nextStatus, type Outcome } from './status.ts';
import { problemOf } from './validation.ts';

const FINALIZER = 'tailscale.com/finalizer';

export function createRecorderReconciler(deps: ReconcilerDeps): Reconciler {
  const { client, metrics } = deps;
  /** Uids by name, to forget what is known of a Recorder that is gone. */
  const uids = new Map<string, string>();

  function forget(name: string): void {
    const uid = uids.get(name);
    if (uid === undefined) return;
    uids.delete(name);
    metrics.recorders.delete(uid);
    deps.keys.forget(uid);
  }

  return {
    async reconcile(name, signal) {
      const object = await client.get(KINDS.recorder, { name }, signal);
      if (object === undefined) {
        forget(name);
        return undefined;
      }
      const recorder = parseRecorder(object);
      if (uids.get(name) !== recorder.metadata.uid) forget(name);
      uids.set(name, recorder.metadata.uid);
      if (recorder.metadata.deletionTimestamp === undefined) return deploy(deps, recorder, signal);
      const again = await finish(deps, managed(deps, recorder), signal);
      if (again === undefined) forget(name);
      return again;
    },
  };
}

function managed({ options }: ReconcilerDeps, recorder: Recorder): Managed {
  return {
    kind: KINDS.recorder,
    finalizer: FINALIZER,
    group: recorderGroup(recorder, options),
    tailnet: recorder.spec.tailnet,
    metadata: recorder.metadata,
  };
}

async function deploy(
  deps: ReconcilerDeps,
  recorder: Recorder,
  signal: AbortSignal,
): Promise<number | undefined> {
  const { client, options, metrics } = deps;
  const resource = managed(deps, recorder);
  const { group } = resource;
  let control: TailnetControl;
  try {
    control = await controlOf(deps, recorder.spec.tailnet, signal);
  } catch (error) {
    await report(deps, recorder, failed('RecorderTailnetUnavailable', errorText(error)), undefined, signal);
    throw error;
  }
  await addFinalizer(deps, resource, signal);
  const observed = await observe(client, group, options.namespace, signal);
  const problem = problemOf(recorder, observed.serviceAccount, options.namespace);
  if (problem !== undefined) {
    const outcome = failed('RecorderInvalid', `Recorder is invalid: ${problem}`);
    await warn(deps, recorder, outcome, signal);
    await report(deps, recorder, outcome, undefined, signal);
    metrics.recorders.delete(recorder.metadata.uid);
    return undefined;
  }
  await mentionImage(deps, recorder, signal);
  try {
    metrics.recorders.add(recorder.metadata.uid);
    const wanted: Wanted = { group, statefulSet: (...context) => statefulSet(recorder, ...context) };
    const { nodes, complete } = await provision(deps, wanted, observed, control, signal);
    await removeStaleAccounts(deps, group, observed, signal);
    const surplusGone = await removeSurplus(deps, group, observed, control, signal);
    const outcome: Outcome = complete
      ? { ready: true, reason: 'RecorderCreated', message: 'RecorderCreated' }
      : failed('RecorderCreating', 'the StatefulSet is being made anew, its pods stay');
    await report(deps, recorder, outcome, devicesOf(nodes, recorder.spec.enableUI), signal);
    return complete && surplusGone ? nextLook(nodes, deps.clock.now()) : SHORT_MS;
  } catch (error) {
    if (!signal.aborted) await reportFailure(deps, recorder, error, signal);
    throw error;
  }
}

async function reportFailure(
  deps: ReconcilerDeps,
  recorder: Recorder,
  error: unknown,
  signal: AbortSignal,
): Promise<void> {
  const conflict = error instanceof KubeRefusal && error.conflict;
  const outcome = conflict
    ? failed('RecorderCreating', `optimistic lock error, retrying: ${errorText(error)}`)
    : failed('RecorderCreationFailed', `failed creating Recorder: ${errorText(error)}`);
  if (!conflict) await warn(deps, recorder, outcome, signal);
  try {
    await report(deps, recorder, outcome, undefined, signal);
  } catch (statusError) {
    deps.log.warn({ recorder: recorder.metadata.name, error: errorText(statusError) }, 'status not written');
  }
}

async function mentionImage(deps: ReconcilerDeps, recorder: Recorder, signal: AbortSignal): Promise<void> {
  const { image } = recorder.spec.statefulSet.pod.container;
  if (!isForeignImage(image)) return;
  const message = `image "${image}" does not run beside a tailscale container; ${deps.options.recorderImage} runs in its place`;
  await warn(deps, recorder, { reason: 'RecorderImageReplaced', message }, signal);
}

function warn(
  { events }: ReconcilerDeps,
  { metadata: { name, uid } }: Recorder,
  { reason, message }: { readonly reason: string; readonly message: string },
  signal: AbortSignal,
): Promise<void> {
  return events.record({ kind: KINDS.recorder, name, uid }, { type: 'Warning', reason, message }, signal);
}

function failed(reason: Outcome['reason'], message: string): Outcome {
  return { ready: false, reason, message };
}

/** Writes the status when it changes. The uid keeps it off a Recorder that was made anew under the same name. */
async function report(
  { client, clock }: ReconcilerDeps,
  recorder: Recorder,
  outcome: Outcome,
  devices: readonly ShownDevice[] | undefined,
  signal: AbortSignal,
): Promise<void> {
  const status = nextStatus(recorder, outcome, devices, timeOf(clock));
  if (status === undefined) return;
  const { name, uid } = recorder.metadata;
  const body = { metadata: { uid }, status };
  await client.patch(KINDS.recorder, { name, subresource: 'status' }, { kind: 'merge', body }, signal);
}
