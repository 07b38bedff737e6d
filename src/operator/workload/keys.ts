/** Decides when a replica gets a new auth key. Creates keys and removes nodes at the control server. */
import { errorText, TailcastError } from '../../errors.ts';
import type { Logger } from '../../observe/logger.ts';
import type { TailnetControl, TailnetDevice } from '../auth-keys.ts';
import type { KubeObject } from '../kube-object.ts';
import type { OperatorMetrics } from '../operator-metrics.ts';
import { isNodeOf, machineKeyOf, readNodeState, secretData, type NodeState } from './node-state.ts';
import { type StoredKey, KEY_ANNOTATIONS } from './object-specs.ts';
import type { ReplicaSecrets } from './observe.ts';
import type { NodeGroup } from './workload.ts';

/**
 * Lifetime of a key. A pod uses its key seconds after the operator has created it, and a leaked key should expire soon.
 */
export const KEY_LIFETIME_MS = 60 * 60 * 1000;
/** If the remaining lifetime of a key is not longer than this time, the key counts as expired. */
const EXPIRY_MARGIN_MS = 60_000;

/**
 * Minimum age of a stored key at which the operator checks whether a node has already used the key. With a younger key,
 * the node may still be joining.
 */
export const SPENT_AFTER_MS = 120_000;

export type ReplaceReason = 'requested' | 'expired' | 'tags' | 'spent';

export type KeyDecision =
  | { readonly kind: 'keep' }
  | { readonly kind: 'none' }
  | { readonly kind: 'create' }
  /**
   * `requested`: the pod reports that its node cannot log in any more. Before the operator creates a new key, it
   * removes the node from the tailnet.
   */
  | { readonly kind: 'replace'; readonly reason: ReplaceReason };

/** State of one replica's key. */
export interface KeyFacts {
  /** Key in the auth Secret. It is undefined without a Secret, and empty if the Secret contains no key. */
  readonly stored: StoredKey | undefined;
  /** Node of the replica, if it exists. */
  readonly deviceId: string | undefined;
  /** Key with which the pod could not log in, according to the pod's report. */
  readonly brokenKey: string | undefined;
  readonly tags: readonly string[];
  /** True if no node can join with the stored key any more. */
  readonly spent: boolean;
  readonly nowMs: number;
}

/**
 * Decides whether a replica keeps its key, or needs a new one. A pod requests a new key by reporting a broken key. The
 * request is accepted if it contains the stored key, or if no key is stored. A request with another key is ignored,
 * because the pod has not yet read the stored key, which is newer. Without a request, a replica whose node has not
 * joined needs a valid key with the desired tags.
 */
export function decideKey({ stored, deviceId, brokenKey, ...facts }: KeyFacts): KeyDecision {
  const key = stored?.key ?? '';
  if (brokenKey !== undefined && (key === '' || key === brokenKey)) {
    return { kind: 'replace', reason: 'requested' };
  }
  if (deviceId !== undefined) return key === '' ? { kind: 'none' } : { kind: 'keep' };
  if (stored === undefined || key === '') return { kind: 'create' };
  const reason = fault(stored, facts);
  return reason === undefined ? { kind: 'keep' } : { kind: 'replace', reason };
}

function fault(
  stored: StoredKey,
  { tags, spent, nowMs }: Pick<KeyFacts, 'tags' | 'spent' | 'nowMs'>,
): ReplaceReason | undefined {
  if (spent) return 'spent';
  if (stored.expiresAtMs !== undefined && stored.expiresAtMs - EXPIRY_MARGIN_MS <= nowMs) return 'expired';
  return stored.tags !== undefined && stored.tags.join(',') !== tags.join(',') ? 'tags' : undefined;
}

const REISSUE_INTERVAL_MS = 30_000;

/** Limits reissues to an average of one per 30 s. A burst may contain as many reissues as the group has replicas. */
export class ReissueLimiter {
  readonly #burst: number;
  readonly #nowMs: () => number;
  #tokens: number;
  #countedAtMs: number;

  constructor(burst: number, nowMs: () => number) {
    this.#burst = Math.max(1, burst);
    this.#nowMs = nowMs;
    this.#tokens = this.#burst;
    this.#countedAtMs = nowMs();
  }

  /** Takes one token from the limiter. @returns false if no token is available */
  take(): boolean {
    const now = this.#nowMs();
    const gained = Math.max(0, now - this.#countedAtMs) / REISSUE_INTERVAL_MS;
    this.#tokens = Math.min(this.#burst, this.#tokens + gained);
    this.#countedAtMs = now;
    if (this.#tokens < 1) return false;
    this.#tokens -= 1;
    return true;
  }
}

export interface DepartureDeps {
  readonly metrics: Pick<OperatorMetrics, 'devicesDeleted'>;
  readonly log: Logger;
}

/**
 * Removes the tailnet node whose state the Secret contains. If the pod registered a node but stopped before it stored
 * the node ID, the machine key in the Secret identifies the node. Node names are never used for matching, because any
 * user can choose them.
 */
export async function removeNode(
  deps: DepartureDeps,
  state: KubeObject,
  control: TailnetControl,
): Promise<void> {
  const { deviceId } = readNodeState(state);
  const remove = async (id: string): Promise<boolean> => {
    const removed = await control.deleteDevice(id);
    if (removed) {
      deps.metrics.devicesDeleted.inc();
      deps.log.info({ replica: state.metadata.name, deviceId: id }, 'node removed from the tailnet');
    }
    return removed;
  };
  const device = deviceId === undefined ? undefined : await control.device(deviceId);
  const isOwn = device !== undefined && isNodeOf(state, device);
  if (deviceId !== undefined && isOwn && (await remove(deviceId))) return;
  const machineKey = machineKeyOf(state);
  if (machineKey === undefined) return;
  const known = await control.allDevices();
  for (const { id } of known.filter((node) => node.machineKey === machineKey)) await remove(id);
}

/** State of a replica after its key was checked. */
export interface ReplicaNode {
  readonly ordinal: number;
  readonly state: NodeState;
  readonly control: TailnetDevice | undefined;
  /** Desired content of the auth Secret. Undefined if no Secret is needed. */
  readonly stored: StoredKey | undefined;
  /** Auth key to write to the pod's state Secret; undefined for none. */
  readonly deliver: string | undefined;
}

export interface KeyKeeperDeps {
  readonly metrics: Pick<OperatorMetrics, 'keysCreated' | 'devicesDeleted'>;
  readonly nowMs: () => number;
  readonly log: Logger;
}

/** A replica, and the control server of its tailnet. */
interface Replica {
  readonly group: NodeGroup;
  readonly ordinal: number;
  readonly control: TailnetControl;
  readonly secrets: Pick<ReplicaSecrets, 'state' | 'auth'>;
}

/**
 * Creates and replaces auth keys. For each group, the replacement of keys is rate-limited if the reason is `requested`
 * or `spent`.
 */
export class KeyKeeper {
  readonly #deps: KeyKeeperDeps;
  /** Rate limiters of resources. Map keys: uid of the resource. */
  readonly #limiters = new Map<string, ReissueLimiter>();

  constructor(deps: KeyKeeperDeps) {
    this.#deps = deps;
  }

  /**
   * Returns the node and the key of one replica. Creates or replaces the key if necessary.
   *
   * @param write stores a new key, before the pod gets it; a crash therefore loses at most one key
   * @throws TailcastError `CONTROL_FAILED`
   */
  async ensure(replica: Replica, write: (stored: StoredKey) => Promise<void>): Promise<ReplicaNode> {
    const { group, ordinal, secrets } = replica;
    const state = readNodeState(secrets.state);
    const before = secrets.auth === undefined ? undefined : readStoredKey(secrets.auth);
    const node = await this.#readDevice(replica, state.deviceId);
    const decision = decideKey({
      stored: before,
      deviceId: node.deviceId,
      brokenKey: state.brokenKey,
      tags: group.tags,
      spent: node.deviceId === undefined && (await this.#isSpent(replica, before, node.removed)),
      nowMs: this.#deps.nowMs(),
    });
    // If the control server did not return the node, the tags of the node stay unchanged.
    const followed = node.device === undefined ? undefined : node.deviceId;
    const stored = await this.#carryOut(replica, decision, before, followed, write);
    const wanted = node.deviceId === undefined || state.brokenKey !== undefined;
    return {
      ordinal,
      state: { ...state, deviceId: node.deviceId },
      control: node.device,
      stored,
      deliver: wanted ? stored?.key : undefined,
    };
  }

  /** Removes the limiter of a resource. */
  forget(uid: string): void {
    this.#limiters.delete(uid);
  }

  /**
   * Reads the node of a replica. If the control server does not know the node any more, a user has removed it, and the
   * replica must join again. If the machine key of the node differs from that in the Secret, the node belongs to
   * another machine, and counts as removed.
   */
  async #readDevice(
    { control, secrets }: Replica,
    deviceId: string | undefined,
  ): Promise<{ deviceId: string | undefined; device: TailnetDevice | undefined; removed: boolean }> {
    if (deviceId === undefined) return { deviceId, device: undefined, removed: false };
    const response = await this.#query('the state of a node', () => control.device(deviceId));
    const answer = response?.answer;
    const device =
      answer !== undefined && secrets.state !== undefined && isNodeOf(secrets.state, answer)
        ? answer
        : undefined;
    const removed = response !== undefined && device === undefined;
    return { deviceId: removed ? undefined : deviceId, device, removed };
  }

  async #carryOut(
    replica: Replica,
    decision: KeyDecision,
    before: StoredKey | undefined,
    deviceId: string | undefined,
    write: (stored: StoredKey) => Promise<void>,
  ): Promise<StoredKey | undefined> {
    const { group, control } = replica;
    switch (decision.kind) {
      case 'none':
        return undefined;
      case 'keep':
        return before === undefined || deviceId === undefined
          ? before
          : followTags(before, deviceId, group.tags, control);
      case 'create':
      case 'replace': {
        const stored =
          decision.kind === 'create'
            ? await this.#create(replica)
            : await this.#replace(replica, decision.reason);
        await write(stored);
        this.#deps.metrics.keysCreated.inc({ reason: decision.kind === 'create' ? 'new' : decision.reason });
        const old = before?.id;
        if (old !== undefined) await this.#query('the revocation of a key', () => control.revokeKey(old));
        return stored;
      }
    }
  }

  async #create({ group, ordinal, control }: Replica): Promise<StoredKey> {
    const { kind, name, tags } = group;
    const description = `${kind.toLowerCase()} ${name}-${ordinal}`.replaceAll(/[^A-Za-z0-9 -]/g, '-');
    const { key, id, expiresAtMs } = await control.createKey({
      tags,
      lifetimeMs: KEY_LIFETIME_MS,
      description,
    });
    return { key, id, expiresAtMs, tags };
  }

  /**
   * Replaces an unusable key. Replacements with the reason `requested` or `spent` are rate-limited, because a pod can
   * cause them repeatedly.
   */
  async #replace(replica: Replica, reason: ReplaceReason): Promise<StoredKey> {
    const { group, ordinal, control, secrets } = replica;
    const { log } = this.#deps;
    if ((reason === 'requested' || reason === 'spent') && !this.#limiterOf(group).take()) {
      throw new TailcastError(
        'CONTROL_FAILED',
        `auth key re-issuance rate limit exceeded for ${group.kind} "${group.name}", will retry with backoff`,
      );
    }
    // The old node is removed, because the pod discards its old identity when it gets the new key.
    if (reason === 'requested' && secrets.state !== undefined)
      await removeNode(this.#deps, secrets.state, control);
    const stored = await this.#create(replica);
    log.info({ kind: group.kind, name: group.name, ordinal, reason }, 'auth key replaced');
    return stored;
  }

  /**
   * True if no node can join with the key any more, because only one node can join with each key. If the ID of the key
   * is known, the control server reports whether the key is still usable. Otherwise, the key counts as used if its node
   * joined and was removed later.
   */
  async #isSpent({ control }: Replica, stored: StoredKey | undefined, removed: boolean): Promise<boolean> {
    const { id, expiresAtMs } = stored ?? {};
    if (id === undefined || expiresAtMs === undefined) return removed;
    if (this.#deps.nowMs() - (expiresAtMs - KEY_LIFETIME_MS) < SPENT_AFTER_MS) return false;
    const response = await this.#query('whether a key is usable', () => control.keyUsable(id));
    return response?.answer === false;
  }

  /**
   * Sends a query to the control server. If the query fails, logs the error and returns undefined, so that the
   * reconciliation continues.
   */
  async #query<T>(what: string, question: () => Promise<T>): Promise<{ readonly answer: T } | undefined> {
    try {
      return { answer: await question() };
    } catch (error) {
      this.#deps.log.warn({ what, error: errorText(error) }, 'a query to the control server failed');
      return undefined;
    }
  }

  #limiterOf({ uid, replicas }: NodeGroup): ReissueLimiter {
    const known = this.#limiters.get(uid);
    if (known !== undefined) return known;
    const fresh = new ReissueLimiter(replicas, this.#deps.nowMs);
    this.#limiters.set(uid, fresh);
    return fresh;
  }
}

/**
 * Updates the tags of a joined node at the control server if an annotation of the auth Secret contains other tags.
 * Without this annotation, the tags stay unchanged.
 */
async function followTags(
  stored: StoredKey,
  deviceId: string,
  tags: readonly string[],
  control: TailnetControl,
): Promise<StoredKey> {
  if (stored.tags !== undefined && stored.tags.join(',') !== tags.join(',')) {
    await control.setTags(deviceId, tags);
  }
  return { ...stored, tags };
}

/** Reads an auth Secret: the key, and its metadata in annotations. */
export function readStoredKey(secret: KubeObject): StoredKey {
  const annotations = secret.metadata.annotations ?? {};
  const expires = Number(annotations[KEY_ANNOTATIONS.expires] ?? Number.NaN);
  const tags = annotations[KEY_ANNOTATIONS.tags];
  return {
    key: secretData(secret).get('authkey') ?? '',
    id: annotations[KEY_ANNOTATIONS.id],
    expiresAtMs: Number.isNaN(expires) ? undefined : expires,
    tags: tags?.split(',').filter((tag) => tag !== ''),
  };
}
