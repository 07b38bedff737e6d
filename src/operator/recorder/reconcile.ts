/** One pass over one Recorder: look, decide, do, and say in its status what came of it. Effects only. */
import { errorText } from '../../errors.ts';
import type { TailnetControl } from '../auth-keys.ts';
import { KINDS } from '../kube-object.ts';
import { removeStaleAccounts, removeSurplus } from '../nodes/cleanup.ts';
import {
  addFinalizer,
  controlOf,
  nextLook,
  SHORT_MS,
  timeOf,
  type Managed,
  type Reconciler,
  type ReconcilerDeps,
} from '../nodes/lifecycle.ts';
import { observe } from '../nodes/observe.ts';
import {
  createReconciler,
  failed,
  tellFailure,
  warn,
  writeStatus,
  type FailureReason,
} from '../nodes/pass.ts';
import { provision, type Wanted } from '../nodes/provision.ts';
import { devicesOf, type ShownDevice } from '../nodes/status.ts';
import { recorderGroup } from './group.ts';
import { parseRecorder, type Recorder } from './resource.ts';
import { isForeignImage, statefulSet } from './stateful-set-specs.ts';
import { nextStatus, type Outcome } from './status.ts';
import { problemOf } from './validation.ts';

const FINALIZER = 'tailscale.com/finalizer';

export function createRecorderReconciler(deps: ReconcilerDeps): Reconciler {
  return createReconciler<Recorder>(deps, {
    kind: KINDS.recorder,
    deployed: deps.metrics.recorders,
    parse: parseRecorder,
    managed: (recorder) => managed(deps, recorder),
    deploy: (recorder, signal) => deploy(deps, recorder, signal),
  });
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
    await warn(deps, resource, outcome, signal);
    await report(deps, recorder, outcome, undefined, signal);
    metrics.recorders.delete(recorder.metadata.uid);
    return undefined;
  }
  await mentionImage(deps, resource, recorder, signal);
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
    if (!signal.aborted) {
      const say = (reason: FailureReason, message: string): Promise<void> =>
        report(deps, recorder, failed(`Recorder${reason}`, message), undefined, signal);
      await tellFailure(deps, resource, error, say, signal);
    }
    throw error;
  }
}

async function mentionImage(
  deps: ReconcilerDeps,
  resource: Managed,
  recorder: Recorder,
  signal: AbortSignal,
): Promise<void> {
  const { image } = recorder.spec.statefulSet.pod.container;
  if (!isForeignImage(image)) return;
  const message = `image "${image}" does not run beside a tailscale container; ${deps.options.recorderImage} runs in its place`;
  await warn(deps, resource, { reason: 'RecorderImageReplaced', message }, signal);
}

/** Writes the status when it changes. */
function report(
  deps: ReconcilerDeps,
  recorder: Recorder,
  outcome: Outcome,
  devices: readonly ShownDevice[] | undefined,
  signal: AbortSignal,
): Promise<void> {
  const status = nextStatus(recorder, outcome, devices, timeOf(deps.clock));
  return writeStatus(deps, managed(deps, recorder), status, signal);
}
