/** From what was observed to the status of a Recorder. Pure. */
import type { NodeState } from './node-state.ts';
import type { Recorder, RecorderCondition, RecorderDevice } from './resource.ts';

export const READY = 'RecorderReady';

/** Stable reasons; dashboards and scripts match on them. */
export type RecorderReason =
  | 'RecorderCreated'
  | 'RecorderCreating'
  | 'RecorderCreationFailed'
  | 'RecorderInvalid'
  | 'RecorderTailnetUnavailable';

/** How a pass of the reconciler ended. */
export interface Outcome {
  readonly ready: boolean;
  readonly reason: RecorderReason;
  readonly message: string;
}

/** What the control server says about a node. */
export interface ControlDevice {
  readonly hostname: string;
  readonly addresses: readonly string[];
}

export interface RecorderStatus {
  readonly conditions: readonly RecorderCondition[];
  readonly devices: readonly RecorderDevice[];
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
  devices: readonly RecorderDevice[] | undefined,
  nowIso: string,
): RecorderStatus | undefined {
  const before = status.conditions.find(({ type }) => type === READY);
  const value = outcome.ready ? 'True' : 'False';
  const condition: RecorderCondition = {
    type: READY,
    status: value,
    reason: outcome.reason,
    message: clip(outcome.message),
    observedGeneration: metadata.generation,
    lastTransitionTime: before?.status === value ? before.lastTransitionTime : nowIso,
  };
  const next: RecorderStatus = {
    conditions: [...status.conditions.filter(({ type }) => type !== READY), condition],
    devices: devices ?? status.devices,
  };
  return same(next, status) ? undefined : next;
}

/**
 * The devices of the replicas that have joined.
 *
 * @param nodes one entry per replica: what its state Secret says, and what the control server says where it answered.
 */
export function devicesOf(
  nodes: readonly { readonly state: NodeState; readonly control: ControlDevice | undefined }[],
  enableUI: boolean,
): readonly RecorderDevice[] {
  const devices: RecorderDevice[] = [];
  const taken = new Set<string>();
  for (const { state, control } of nodes) {
    if (state.deviceId === undefined) continue;
    const firstLabel = state.dnsName?.split('.', 1)[0];
    // The list is keyed by host name; two nodes may say the same one, but their MagicDNS names differ.
    const hostname = [control?.hostname, firstLabel, state.deviceId].find(
      (name) => name !== undefined && name !== '' && !taken.has(name),
    );
    if (hostname === undefined) continue;
    taken.add(hostname);
    const addresses = control?.addresses ?? state.addresses;
    devices.push({
      hostname,
      ...(addresses.length === 0 ? {} : { tailnetIPs: [...addresses] }),
      ...(enableUI && state.dnsName !== undefined
        ? { url: `${state.https ? 'https' : 'http'}://${state.dnsName}` }
        : {}),
    });
  }
  return devices;
}

/** The schema takes 32,768 characters. */
function clip(message: string): string {
  return message.length <= 4096 ? message : `${message.slice(0, 4095)}…`;
}

/** Equal as JSON, whatever the order of members. */
function same(left: unknown, right: unknown): boolean {
  return JSON.stringify(ordered(left)) === JSON.stringify(ordered(right));
}

function ordered(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(ordered);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(
    Object.entries(value)
      .filter(([, member]) => member !== undefined)
      .toSorted(([a], [b]) => (a < b ? -1 : 1))
      .map(([key, member]) => [key, ordered(member)]),
  );
}
