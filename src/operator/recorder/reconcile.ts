/** Reconciles one Recorder: deploys its nodes and writes its status. Effects. */
import { FINALIZER, KINDS } from '../kube-object.ts';
import {
  timeOf,
  type Managed,
  type Reconciler,
  type ReconcilerDeps,
  createReconciler,
  failed,
  warn,
  writeStatus,
  type Observation,
} from '../workload/reconciler.ts';
import { ordinals, stateSecretName, dnsLabel } from '../workload/workload.ts';
import { deployWorkload, type DesiredWorkload } from '../workload/deploy.ts';
import { devicesOf, sameJson, withCondition, type ShownDevice, type Verdict } from '../workload/status.ts';
import { readyPodsOf } from '../workload/readiness.ts';
import { ensureEvidenceKey } from './evidence-key.ts';
import { parseRecorder, problemOfAccount, type DesiredRecorder } from './recorder.ts';
import { isForeignImage, statefulSet } from './stateful-set-specs.ts';

/** Reasons of the condition `RecorderReady`. The reasons are stable, because dashboards and scripts match them. */
type RecorderReason =
  | 'RecorderCreated'
  | 'RecorderCreating'
  | 'RecorderCreationFailed'
  | 'RecorderInvalid'
  | 'RecorderTailnetUnavailable'
  | 'RecorderNameTaken'
  | 'RecorderTagsNotAllowed';

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
      report(deps, recorder, failed(`Recorder${reason}`, message), undefined),
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
    const verdict = failed<RecorderReason>('RecorderInvalid', `Recorder is invalid: ${problem}`);
    await warn(deps, resource, verdict);
    await report(deps, recorder, verdict, undefined);
    metrics.recorders.delete(group.uid);
    return undefined;
  }
  const { image } = recorder.statefulSet.pod.container;
  if (isForeignImage(image)) {
    const message =
      `image "${image}" does not run next to a tailscale container; ${options.recorderImage} runs ` +
      'in its place';
    await warn(deps, resource, { reason: 'RecorderImageReplaced', message });
  }
  metrics.recorders.add(group.uid);
  if (recorder.storage.kind === 's3') await ensureEvidenceKey(deps.client, group, options);
  const desired: DesiredWorkload = { group, statefulSet: (...context) => statefulSet(recorder, ...context) };
  const { nodes, recreating, missing, retryAfterMs } = await deployWorkload(deps, desired, found);
  const ready = readyPodsOf(observed.statefulSet);
  const verdict: Verdict<RecorderReason> = recreating
    ? failed('RecorderCreating', missing ?? '')
    : ready < group.replicas
      ? failed('RecorderCreating', `${ready}/${group.replicas} pods are ready`)
      : { ready: true, reason: 'RecorderCreated', message: 'RecorderCreated' };
  await report(deps, recorder, verdict, devicesOf(nodes, recorder.hasPlayer));
  return retryAfterMs;
}

/**
 * Writes the status, unless the Recorder has this status already.
 *
 * @param devices undefined to keep the devices in the status.
 */
function report(
  deps: ReconcilerDeps,
  { metadata, status }: DesiredRecorder,
  verdict: Verdict<RecorderReason>,
  devices: readonly ShownDevice[] | undefined,
): Promise<void> {
  const next = {
    conditions: withCondition(
      status.conditions,
      'RecorderReady',
      verdict,
      metadata.generation,
      timeOf(deps.clock),
    ),
    devices: devices ?? status.devices,
  };
  const changed = sameJson(next, status) ? undefined : next;
  return writeStatus(deps, { kind: KINDS.recorder, metadata }, changed);
}
