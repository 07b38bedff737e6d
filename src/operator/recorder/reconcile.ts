/** One pass over one Recorder: look, decide, do, and say in its status what came of it. Effects only. */
import { FINALIZER, KINDS } from '../kube-object.ts';
import { removeStaleAccounts, removeSurplus } from '../nodes/cleanup.ts';
import {
  nextLook,
  SHORT_MS,
  timeOf,
  type Managed,
  type Reconciler,
  type ReconcilerDeps,
} from '../nodes/lifecycle.ts';
import { ordinals, stateSecretName } from '../nodes/node-group.ts';
import { createReconciler, failed, warn, writeStatus, type Found } from '../nodes/pass.ts';
import { provision, type Wanted } from '../nodes/provision.ts';
import { devicesOf, type ShownDevice } from '../nodes/status.ts';
import { dnsLabel } from '../proxies/proxy.ts';
import { readyPodsOf } from '../proxies/readiness.ts';
import { recorderGroup } from './group.ts';
import { parseRecorder, type Recorder } from './resource.ts';
import { isForeignImage, statefulSet } from './stateful-set-specs.ts';
import { nextStatus, type Outcome } from './status.ts';
import { problemOf } from './validation.ts';

export function createRecorderReconciler(deps: ReconcilerDeps): Reconciler {
  return createReconciler<Recorder>(deps, {
    kind: KINDS.recorder,
    deployed: deps.metrics.recorders,
    parse: parseRecorder,
    managed: (recorder) => managed(deps, recorder),
    isTrusted: true,
    names: (recorder, { group }) =>
      problemOf(recorder, undefined, deps.options.namespace) === undefined
        ? ordinals(group).map((ordinal) => dnsLabel(stateSecretName(group.name, ordinal)))
        : [],
    deploy: (recorder, ...more) => deploy(deps, recorder, ...more),
    notReady: (recorder, reason, message, signal) =>
      report(deps, recorder, failed(`Recorder${reason}`, message), undefined, signal),
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
  resource: Managed,
  { control, observed }: Found,
  signal: AbortSignal,
): Promise<number | undefined> {
  const { options, metrics } = deps;
  const { group } = resource;
  const problem = problemOf(recorder, observed.serviceAccount, options.namespace);
  if (problem !== undefined) {
    const outcome = failed('RecorderInvalid', `Recorder is invalid: ${problem}`);
    await warn(deps, resource, outcome, signal);
    await report(deps, recorder, outcome, undefined, signal);
    metrics.recorders.delete(recorder.metadata.uid);
    return undefined;
  }
  await mentionImage(deps, resource, recorder, signal);
  metrics.recorders.add(recorder.metadata.uid);
  const wanted: Wanted = { group, statefulSet: (...context) => statefulSet(recorder, ...context) };
  const { nodes, complete } = await provision(deps, wanted, observed, control, signal);
  await removeStaleAccounts(deps, group, observed, signal);
  const surplusGone = await removeSurplus(deps, group, observed, control, signal);
  const ready = readyPodsOf(observed.statefulSet);
  const outcome: Outcome = !complete
    ? failed('RecorderCreating', 'the StatefulSet is being made anew, its pods stay')
    : ready < group.replicas
      ? failed('RecorderCreating', `${ready}/${group.replicas} pods are ready`)
      : { ready: true, reason: 'RecorderCreated', message: 'RecorderCreated' };
  await report(deps, recorder, outcome, devicesOf(nodes, recorder.spec.enableUI), signal);
  return complete && surplusGone ? nextLook(nodes, deps.clock.now()) : SHORT_MS;
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
