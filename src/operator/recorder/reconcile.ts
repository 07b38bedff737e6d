/** One pass over one Recorder: look, decide, do, and say in its status what came of it. Effects only. */
import { errorText, TailcastError } from '../../errors.ts';
import type { Logger } from '../../observe/logger.ts';
import type { TailnetControl } from '../auth-keys.ts';
import type { Clock } from '../clock.ts';
import type { EventRecorder } from '../event-recorder.ts';
import { KubeRefusal, type KubeClient } from '../kube-client.ts';
import { KINDS } from '../kube-object.ts';
import type { OperatorMetrics } from '../operator-metrics.ts';
import type { Tailnets } from '../tailnets.ts';
import { KEY_LIFETIME_MS, SPENT_AFTER_MS } from './auth-key-decision.ts';
import { removeAll, removeStaleAccounts, removeSurplus } from './cleanup.ts';
import type { KeyKeeper, ReplicaNode } from './keys.ts';
import { observe } from './observe.ts';
import { provision } from './provision.ts';
import { parseRecorder, type Recorder, type RecorderDevice } from './resource.ts';
import { FINALIZER, type SpecOptions } from './specs.ts';
import { isForeignImage } from './stateful-set-specs.ts';
import { devicesOf, nextStatus, type Outcome } from './status.ts';
import { problemOf } from './validation.ts';

export interface ReconcilerDeps {
  readonly client: Omit<KubeClient, 'watch'>;
  readonly tailnets: Tailnets;
  readonly options: SpecOptions;
  readonly keys: Pick<KeyKeeper, 'ensure' | 'forget'>;
  readonly events: EventRecorder;
  readonly metrics: OperatorMetrics;
  readonly clock: Clock;
  readonly log: Logger;
}

export interface RecorderReconciler {
  /**
   * @returns in how many milliseconds to look again without being asked; undefined: when something changes.
   * @throws what went wrong; the caller tries again later. It is in the status already.
   */
  reconcile(name: string, signal: AbortSignal): Promise<number | undefined>;
}

/** A pod that ends is looked for this often. */
const SHORT_MS = 1000;
/** Pods on a lost node never end; a Recorder that is being deleted does not wait longer for them. */
const POD_PATIENCE_MS = 5 * 60_000;

export function createRecorderReconciler(deps: ReconcilerDeps): RecorderReconciler {
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
      const again = await finish(deps, recorder, signal);
      if (again === undefined) forget(name);
      return again;
    },
  };
}

async function deploy(
  deps: ReconcilerDeps,
  recorder: Recorder,
  signal: AbortSignal,
): Promise<number | undefined> {
  const { client, options, metrics } = deps;
  let control: TailnetControl;
  try {
    control = await tailnetOf(deps, recorder, signal);
  } catch (error) {
    await report(deps, recorder, failed('RecorderTailnetUnavailable', errorText(error)), undefined, signal);
    throw error;
  }
  await addFinalizer(deps, recorder, signal);
  const observed = await observe(client, recorder, options.namespace, signal);
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
    const { nodes, complete } = await provision(deps, recorder, observed, control, signal);
    await removeStaleAccounts(deps, recorder, observed, signal);
    const surplusGone = await removeSurplus(deps, recorder, observed, control, signal);
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

async function tailnetOf(
  { tailnets }: ReconcilerDeps,
  { spec }: Recorder,
  signal: AbortSignal,
): Promise<TailnetControl> {
  const answer = await tailnets.of(spec.tailnet, signal);
  if (answer.kind === 'gone') throw new TailcastError('CONTROL_FAILED', answer.message);
  return answer.control;
}

/** Keys of nodes that have not joined are looked at again: they end, or turn out to be used up. */
function nextLook(nodes: readonly ReplicaNode[], nowMs: number): number | undefined {
  const times = nodes.flatMap(({ stored, deliver }) => {
    if (deliver === undefined || stored?.expiresAtMs === undefined) return [];
    const madeAtMs = stored.expiresAtMs - KEY_LIFETIME_MS;
    return [Math.max(nowMs + 60_000, madeAtMs + SPENT_AFTER_MS)];
  });
  return times.length === 0 ? undefined : Math.min(...times) - nowMs;
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

/** A Recorder that is being deleted: nodes first, then the finalizer. */
async function finish(
  deps: ReconcilerDeps,
  recorder: Recorder,
  signal: AbortSignal,
): Promise<number | undefined> {
  const { client, tailnets, clock, options } = deps;
  const { name, resourceVersion, finalizers, deletionTimestamp } = recorder.metadata;
  if (!finalizers.includes(FINALIZER)) return undefined;
  const tailnet = await tailnets.of(recorder.spec.tailnet, signal);
  const observed = await observe(client, recorder, options.namespace, signal);
  const waitForPods = clock.now() - Date.parse(deletionTimestamp ?? '') < POD_PATIENCE_MS;
  const control = tailnet.kind === 'found' ? tailnet.control : undefined;
  const result = await removeAll(deps, recorder, observed, control, waitForPods, signal);
  if (result.kind === 'waiting') return SHORT_MS;
  if (tailnet.kind === 'gone' && result.left.length > 0) {
    const message = `${tailnet.message}, so these nodes could not be removed from it: ${result.left.join(', ')}`;
    await deps.events.record(
      recorder.metadata,
      { type: 'Warning', reason: 'RecorderDevicesLeft', message },
      signal,
    );
  }
  const left = finalizers.filter((finalizer) => finalizer !== FINALIZER);
  const body = { metadata: { resourceVersion, finalizers: left } };
  await client.patch(KINDS.recorder, { name }, { kind: 'merge', body }, signal);
  deps.log.info({ recorder: name }, 'recorder removed');
  return undefined;
}

async function addFinalizer(
  { client, log }: ReconcilerDeps,
  { metadata }: Recorder,
  signal: AbortSignal,
): Promise<void> {
  const { name, resourceVersion, finalizers } = metadata;
  if (finalizers.includes(FINALIZER)) return;
  const body = { metadata: { resourceVersion, finalizers: [...finalizers, FINALIZER] } };
  await client.patch(KINDS.recorder, { name }, { kind: 'merge', body }, signal);
  log.info({ recorder: name }, 'recorder found');
}

async function mentionImage(
  { events, options }: ReconcilerDeps,
  recorder: Recorder,
  signal: AbortSignal,
): Promise<void> {
  const { image } = recorder.spec.statefulSet.pod.container;
  if (!isForeignImage(image)) return;
  const message = `image "${image}" does not run beside a tailscale container; ${options.recorderImage} runs in its place`;
  await events.record(
    recorder.metadata,
    { type: 'Warning', reason: 'RecorderImageReplaced', message },
    signal,
  );
}

function warn(
  { events }: ReconcilerDeps,
  recorder: Recorder,
  outcome: Outcome,
  signal: AbortSignal,
): Promise<void> {
  const { reason, message } = outcome;
  return events.record(recorder.metadata, { type: 'Warning', reason, message }, signal);
}

function failed(reason: Outcome['reason'], message: string): Outcome {
  return { ready: false, reason, message };
}

/** Writes the status when it changes. The uid keeps it off a Recorder that was made anew under the same name. */
async function report(
  { client, clock }: ReconcilerDeps,
  recorder: Recorder,
  outcome: Outcome,
  devices: readonly RecorderDevice[] | undefined,
  signal: AbortSignal,
): Promise<void> {
  const now = new Date(clock.now()).toISOString().replace(/\.\d+Z$/, 'Z');
  const status = nextStatus(recorder, outcome, devices, now);
  if (status === undefined) return;
  const { name, uid } = recorder.metadata;
  const body = { metadata: { uid }, status };
  await client.patch(KINDS.recorder, { name, subresource: 'status' }, { kind: 'merge', body }, signal);
}
