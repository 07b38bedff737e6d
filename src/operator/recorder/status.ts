/** From what was observed to the status of a Recorder. Pure. */
import { sameJson, withCondition, type Condition, type ShownDevice, type Verdict } from '../nodes/status.ts';
import type { Recorder } from './resource.ts';

const READY = 'RecorderReady';

/** Stable reasons; dashboards and scripts match on them. */
export type RecorderReason =
  | 'RecorderCreated'
  | 'RecorderCreating'
  | 'RecorderCreationFailed'
  | 'RecorderInvalid'
  | 'RecorderTailnetUnavailable'
  | 'RecorderNameTaken'
  | 'RecorderTagsNotAllowed';

/** How a pass of the reconciler ended. */
export type Outcome = Verdict<RecorderReason>;

export interface RecorderStatus {
  readonly conditions: readonly Condition[];
  readonly devices: readonly ShownDevice[];
}

/**
 * The new status, or undefined when nothing changes.
 *
 * @param devices undefined: as they were, because they were not looked at.
 * @param nowIso RFC 3339 with seconds.
 */
export function nextStatus(
  { metadata, status }: Recorder,
  outcome: Outcome,
  devices: readonly ShownDevice[] | undefined,
  nowIso: string,
): RecorderStatus | undefined {
  const next: RecorderStatus = {
    conditions: withCondition(status.conditions, READY, outcome, metadata.generation, nowIso),
    devices: devices ?? status.devices,
  };
  return sameJson(next, status) ? undefined : next;
}
