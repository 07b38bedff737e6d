/** Conditions and devices in the status of every kind of resource. Pure. */
import type { TailnetDevice } from '../auth-keys.ts';
import type { NodeState } from './node-state.ts';

/** A condition in the format of `metav1.Condition`. */
export interface Condition {
  readonly type: string;
  readonly status: string;
  readonly reason: string;
  readonly message: string;
  readonly lastTransitionTime: string;
  readonly observedGeneration?: number | undefined;
}

/** Desired state of one condition. Reasons are stable, because dashboards and scripts match them. */
export interface Verdict {
  readonly ready: boolean;
  /** True if the status of the condition is `Unknown`. */
  readonly unknown?: boolean;
  readonly reason: string;
  readonly message: string;
}

/** Desired conditions, by type. A condition with the value undefined stays unchanged, and null removes a condition. */
export type Verdicts = Readonly<Record<string, Verdict | null | undefined>>;

/** Returns the values that remove conditions of these types. */
export function removed(types: readonly string[]): Verdicts {
  return Object.fromEntries(types.map((type) => [type, null]));
}

/** Returns a condition with status True. */
export function succeeded(reason: string, message = reason): Verdict {
  return { ready: true, reason, message };
}

/** Returns a condition with status False. */
export function failed(reason: string, message: string): Verdict {
  return { ready: false, reason, message };
}

/** A node as the status of a resource shows it. */
export interface ShownDevice {
  readonly hostname: string;
  readonly tailnetIPs?: string[] | undefined;
  readonly url?: string | undefined;
}

/**
 * Returns the conditions after an update. The transition time of a condition changes only if its status changes.
 *
 * @param nowIso current time in RFC 3339 with seconds
 */
export function withConditions(
  before: readonly Condition[],
  verdicts: Verdicts,
  generation: number,
  nowIso: string,
): readonly Condition[] {
  let conditions = before;
  for (const [type, verdict] of Object.entries(verdicts)) {
    if (verdict === null) conditions = conditions.filter((one) => one.type !== type);
    else if (verdict !== undefined) conditions = withCondition(conditions, type, verdict, generation, nowIso);
  }
  return conditions;
}

function withCondition(
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
