/** One pass over one Recorder: deploy its nodes and write its status. Effects. */
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
import { devicesOf, sameJson, withCondition, type ShownDevice, type Verdict } from '../nodes/status.ts';
import { dnsLabel } from '../proxies/proxy.ts';
import { readyPodsOf } from '../proxies/readiness.ts';
import { ensureEvidenceKey } from './evidence-key.ts';
import { parseRecorder, problemOfAccount, type DesiredRecorder } from './recorder.ts';
import { isForeignImage, statefulSet } from './stateful-set-specs.ts';

/** Reasons of the condition `RecorderReady`. They are stable, because dashboards and scripts match them. */
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
    notReady: (recorder, reason, message, signal) =>
      report(deps, recorder, failed(`Recorder${reason}`, message), undefined, signal),
  });
}

async function deploy(
  deps: ReconcilerDeps,
  recorder: DesiredRecorder,
  resource: Managed,
  { control, observed }: Found,
  signal: AbortSignal,
): Promise<number | undefined> {
  const { options, metrics } = deps;
  const { group } = recorder;
  const problem = recorder.problem ?? problemOfAccount(recorder, observed.serviceAccount, options.namespace);
  if (problem !== undefined) {
    const verdict = failed<RecorderReason>('RecorderInvalid', `Recorder is invalid: ${problem}`);
    await warn(deps, resource, verdict, signal);
    await report(deps, recorder, verdict, undefined, signal);
    metrics.recorders.delete(group.uid);
    return undefined;
  }
  const { image } = recorder.statefulSet.pod.container;
  if (isForeignImage(image)) {
    const message = `image "${image}" does not run next to a tailscale container; ${options.recorderImage} runs in its place`;
    await warn(deps, resource, { reason: 'RecorderImageReplaced', message }, signal);
  }
  metrics.recorders.add(group.uid);
  if (recorder.storage.kind === 's3') await ensureEvidenceKey(deps.client, group, options, signal);
  const wanted: Wanted = { group, statefulSet: (...context) => statefulSet(recorder, ...context) };
  const { nodes, complete } = await provision(deps, wanted, observed, control, signal);
  await removeStaleAccounts(deps, group, observed, signal);
  const surplusGone = await removeSurplus(deps, group, observed, control, signal);
  const ready = readyPodsOf(observed.statefulSet);
  const verdict: Verdict<RecorderReason> = !complete
    ? failed('RecorderCreating', 'the StatefulSet is being recreated; its pods keep running')
    : ready < group.replicas
      ? failed('RecorderCreating', `${ready}/${group.replicas} pods are ready`)
      : { ready: true, reason: 'RecorderCreated', message: 'RecorderCreated' };
  await report(deps, recorder, verdict, devicesOf(nodes, recorder.hasPlayer), signal);
  return complete && surplusGone ? nextLook(nodes, deps.clock.now()) : SHORT_MS;
}

/**
 * Writes the status if it changes.
 *
 * @param devices undefined: the devices in the status stay.
 */
function report(
  deps: ReconcilerDeps,
  { metadata, status }: DesiredRecorder,
  verdict: Verdict<RecorderReason>,
  devices: readonly ShownDevice[] | undefined,
  signal: AbortSignal,
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
  return writeStatus(deps, { kind: KINDS.recorder, metadata }, changed, signal);
}
