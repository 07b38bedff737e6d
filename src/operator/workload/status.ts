/** Conditions and devices, as the status of every kind of resource has them. Pure. */
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

/** What is to be said of one condition. */
export interface Verdict<Reason extends string = string> {
  readonly ready: boolean;
  /** It cannot be told. */
  readonly unknown?: boolean;
  readonly reason: Reason;
  readonly message: string;
}

/** A node as it is shown in a status. */
export interface ShownDevice {
  readonly hostname: string;
  readonly tailnetIPs?: string[] | undefined;
  readonly url?: string | undefined;
}

/**
 * The conditions with one of them said anew; its time changes with its status only.
 *
 * @param nowIso RFC 3339 with seconds.
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
 * The devices of the replicas that have joined.
 *
 * @param nodes one entry per replica: what its state Secret says, and what the control server says where it answered.
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
      ...(withUrls && state.dnsName !== undefined
        ? { url: `${state.https ? 'https' : 'http'}://${state.dnsName}` }
        : {}),
    });
  }
  return devices;
}

/** Equal as JSON, whatever the order of members. */
export function sameJson(left: unknown, right: unknown): boolean {
  return JSON.stringify(ordered(left)) === JSON.stringify(ordered(right));
}

/** The schema takes 32,768 characters. */
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
