/** Conditions and devices in the status of every kind of resource. Pure. */
import type { TailnetDevice } from '../auth-keys.ts';
import type { NodeState } from './node-state.ts';

/** `metav1.Condition` */
export interface Condition {
  readonly type: string;
  readonly status: string;
  readonly reason: string;
  readonly message: string;
  readonly lastTransitionTime: string;
  readonly observedGeneration?: number | undefined;
}

/** Desired state of one condition. */
export interface Verdict<Reason extends string = string> {
  readonly ready: boolean;
  /** True if the status of the condition is `Unknown`. */
  readonly unknown?: boolean;
  readonly reason: Reason;
  readonly message: string;
}

/** A node as the status of a resource shows it. */
export interface ShownDevice {
  readonly hostname: string;
  readonly tailnetIPs?: string[] | undefined;
  readonly url?: string | undefined;
}

/**
 * Returns the conditions after an update of one condition. The transition time of this condition changes only if its
 * status changes.
 *
 * @param nowIso current time in RFC 3339 with seconds
 */
export function withCondition(
  conditions: readonly Condition[],
  type: string,
  verdict: Verdict,
  generation: number,
  nowIso: string,
): readonly Condition[] {
  const before = conditions.find((one) => one.type === type);
  const status = verdict.unknown === true ? 'Unknown' : verdict.ready ? 'True' : 'False';
  const condition: Condition = {
    type,
    status,
    reason: verdict.reason,
    message: clip(verdict.message),
    observedGeneration: generation,
    lastTransitionTime: before?.status === status ? before.lastTransitionTime : nowIso,
  };
  return [...conditions.filter((one) => one.type !== type), condition];
}

/**
 * Returns the devices of the replicas that have joined.
 *
 * @param nodes one entry for each replica: the content of its state Secret, and the node at the control server, if
 *   known
 */
export function devicesOf(
  nodes: readonly { readonly state: NodeState; readonly control: TailnetDevice | undefined }[],
  withUrls: boolean,
): readonly ShownDevice[] {
  const devices: ShownDevice[] = [];
  const taken = new Set<string>();
  for (const { state, control } of nodes) {
    if (state.deviceId === undefined) continue;
    const firstLabel = state.dnsName?.split('.', 1)[0];
    // Entries of the list need different hostnames. If two nodes report the same hostname, the first label of the
    // MagicDNS name distinguishes them.
    const hostname = [control?.hostname, firstLabel, state.deviceId].find(
      (name) => name !== undefined && name !== '' && !taken.has(name),
    );
    if (hostname === undefined) continue;
    taken.add(hostname);
    const addresses = control?.addresses ?? state.addresses;
    devices.push({
      hostname,
      ...(addresses.length === 0 ? {} : { tailnetIPs: [...addresses] }),
      ...(withUrls && state.dnsName !== undefined
        ? { url: `${state.https ? 'https' : 'http'}://${state.dnsName}` }
        : {}),
    });
  }
  return devices;
}

/** True if both values are equal as JSON. The order of fields does not matter. */
export function sameJson(left: unknown, right: unknown): boolean {
  return JSON.stringify(ordered(left)) === JSON.stringify(ordered(right));
}

/** Truncates a message to 4,096 characters. The schema of conditions permits up to 32,768 characters. */
function clip(message: string): string {
  return message.length <= 4096 ? message : `${message.slice(0, 4095)}…`;
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
