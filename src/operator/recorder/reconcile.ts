/** Reconciles one Recorder: deploys its nodes and writes its status. Effects. */
import { FINALIZER, KINDS } from '../kube-object.ts';
import {
  type Managed,
  type Reconciler,
  type ReconcilerDeps,
  createReconciler,
  report,
  type Observation,
} from '../workload/reconciler.ts';
import { ordinals, stateSecretName, dnsLabel } from '../workload/workload.ts';
import { deployWorkload, type DesiredWorkload } from '../workload/deploy.ts';
import { devicesOf, failed, succeeded, type ShownDevice, type Verdict } from '../workload/status.ts';
import { readyPodsOf } from '../workload/readiness.ts';
import { ensureEvidenceKey } from './evidence-key.ts';
import { parseRecorder, problemOfAccount, type DesiredRecorder } from './recorder.ts';
import { isForeignImage, statefulSet } from './stateful-set-specs.ts';

export function createRecorderReconciler(deps: ReconcilerDeps): Reconciler {
  const { options } = deps;
  return createReconciler<DesiredRecorder>(deps, {
    kind: KINDS.recorder,
    deployed: deps.metrics.recorders,
    parse: (object) => parseRecorder(object, options),
    managed: ({ group, tailnet, metadata }) => ({
      kind: KINDS.recorder,
      finalizer: FINALIZER,
      group,
      tailnet,
      metadata,
    }),
    isTrusted: true,
    names: ({ problem, group }) =>
      problem === undefined
        ? ordinals(group).map((ordinal) => dnsLabel(stateSecretName(group.name, ordinal)))
        : [],
    deploy: (recorder, ...more) => deploy(deps, recorder, ...more),
    notReady: (recorder, reason, message) =>
      reportReady(deps, recorder, failed(`Recorder${reason}`, message)),
  });
}

async function deploy(
  deps: ReconcilerDeps,
  recorder: DesiredRecorder,
  resource: Managed,
  found: Observation,
): Promise<number | undefined> {
  const { options, metrics } = deps;
  const { group } = recorder;
  const { observed } = found;
  const problem = recorder.problem ?? problemOfAccount(recorder, observed.serviceAccount, options.namespace);
  if (problem !== undefined) {
    const verdict = failed('RecorderInvalid', `Recorder is invalid: ${problem}`);
    await deps.events.warn(resource, verdict);
    await reportReady(deps, recorder, verdict);
    metrics.recorders.delete(group.uid);
    return undefined;
  }
  const { image } = recorder.statefulSet.pod.container;
  if (isForeignImage(image)) {
    const message =
      `image "${image}" does not run next to a tailscale container; ${options.recorderImage} runs ` +
      'in its place';
    await deps.events.warn(resource, { reason: 'RecorderImageReplaced', message });
  }
  metrics.recorders.add(group.uid);
  if (recorder.storage.kind === 's3') await ensureEvidenceKey(deps.client, group, options);
  const desired: DesiredWorkload = { group, statefulSet: (...context) => statefulSet(recorder, ...context) };
  const { nodes, recreating, missing, retryAfterMs } = await deployWorkload(deps, desired, found);
  const ready = readyPodsOf(observed.statefulSet);
  const verdict = recreating
    ? failed('RecorderCreating', missing ?? '')
    : ready < group.replicas
      ? failed('RecorderCreating', `${ready}/${group.replicas} pods are ready`)
      : succeeded('RecorderCreated');
  await reportReady(deps, recorder, verdict, devicesOf(nodes, recorder.hasPlayer));
  return retryAfterMs;
}

/** @param devices undefined to keep the devices in the status */
function reportReady(
  deps: ReconcilerDeps,
  recorder: DesiredRecorder,
  verdict: Verdict,
  devices?: readonly ShownDevice[],
): Promise<boolean> {
  return report(deps, KINDS.recorder, recorder, { RecorderReady: verdict }, { devices });
}
