/** When a replica gets an auth key, and when a new one. Pure, but for the limiter, which counts. */
import { errorText, TailcastError } from '../../errors.ts';
import type { Logger } from '../../observe/logger.ts';
import type { TailnetControl, TailnetDevice } from '../auth-keys.ts';
import type { KubeObject } from '../kube-object.ts';
import type { OperatorMetrics } from '../operator-metrics.ts';
import { machineKeyOf, readNodeState, secretData, type NodeState } from './node-state.ts';
import { type StoredKey, KEY_ANNOTATIONS } from './object-specs.ts';
import type { NodeGroup } from './workload.ts';

/** Keys are used within seconds of being made, or the pod does not start; a lost one should soon be worthless. */
export const KEY_LIFETIME_MS = 60 * 60 * 1000;
/** A key this close to its end is not handed out any more. */
const EXPIRY_MARGIN_MS = 60_000;

/** A key that is gone at the control server counts as lost only after this: its node may just be joining. */
export const SPENT_AFTER_MS = 120_000;

export type ReplaceReason = 'requested' | 'expired' | 'tags' | 'spent';

export type KeyDecision =
  | { readonly kind: 'keep' }
  | { readonly kind: 'none' }
  | { readonly kind: 'create' }
  /** `requested`: its node cannot log in any more, and is removed first. */
  | { readonly kind: 'replace'; readonly reason: ReplaceReason };

/** What is known about one replica's key. */
export interface KeyFacts {
  /** The key in the auth Secret; undefined or an empty key when there is none. */
  readonly stored: StoredKey | undefined;
  /** The node of the replica, as far as it exists. */
  readonly deviceId: string | undefined;
  /** The key that the pod says it cannot log in with. */
  readonly brokenKey: string | undefined;
  readonly tags: readonly string[];
  /** The control server does not take the stored key any more. */
  readonly spent: boolean;
  readonly nowMs: number;
}

/**
 * A pod's request is heeded when the key it names is the one that is stored, or none is: otherwise a newer key is on its
 * way to it. Without a request, a replica that has no node needs a key that works and carries the wanted tags.
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

/** One reissue per 30 s, and as many at once as there are replicas. */
export class ReissueLimiter {
  readonly #burst: number;
  readonly #intervalMs: number;
  readonly #nowMs: () => number;
  #tokens: number;
  #countedAtMs: number;

  constructor(burst: number, nowMs: () => number, intervalMs = 30_000) {
    this.#burst = Math.max(1, burst);
    this.#intervalMs = intervalMs;
    this.#nowMs = nowMs;
    this.#tokens = this.#burst;
    this.#countedAtMs = nowMs();
  }

  /** Takes one, or says no. */
  take(): boolean {
    const now = this.#nowMs();
    const gained = Math.max(0, now - this.#countedAtMs) / this.#intervalMs;
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
 * Removes the node that a state Secret tells of. Where it names none that is there, a pod may have registered one and
 * ended before it said so: such a node has the machine key of the Secret. No name is gone by, for names are anybody's.
 */
export async function removeNode(
  deps: DepartureDeps,
  state: KubeObject,
  control: TailnetControl,
  signal: AbortSignal,
): Promise<void> {
  const { deviceId } = readNodeState(state);
  const remove = async (id: string): Promise<boolean> => {
    const removed = await control.deleteDevice(id, signal);
    if (removed) {
      deps.metrics.devicesDeleted.inc();
      deps.log.info({ replica: state.metadata.name, deviceId: id }, 'node removed from the tailnet');
    }
    return removed;
  };
  if (deviceId !== undefined && (await remove(deviceId))) return;
  const machineKey = machineKeyOf(state);
  if (machineKey === undefined) return;
  const known = await control.allDevices(signal);
  for (const { id } of known.filter((node) => node.machineKey === machineKey)) await remove(id);
}

/** What a replica has after its key was seen to. */
export interface ReplicaNode {
  readonly ordinal: number;
  readonly state: NodeState;
  readonly control: TailnetDevice | undefined;
  /** What its auth Secret is to hold; undefined: there is to be none. */
  readonly stored: StoredKey | undefined;
  /** What its state Secret is to hand to the pod. */
  readonly deliver: string | undefined;
}

export interface SecretPair {
  readonly state: KubeObject | undefined;
  readonly auth: KubeObject | undefined;
}

export interface KeyKeeperDeps {
  readonly metrics: Pick<OperatorMetrics, 'keysCreated' | 'devicesDeleted'>;
  readonly nowMs: () => number;
  readonly log: Logger;
}

/** One replica, and the control server of its tailnet. */
interface Replica {
  readonly group: NodeGroup;
  readonly ordinal: number;
  readonly control: TailnetControl;
  readonly signal: AbortSignal;
}

interface ReplicaWithSecrets extends Replica {
  readonly secrets: SecretPair;
}

const NO_NODE: NodeState = {
  deviceId: undefined,
  dnsName: undefined,
  addresses: [],
  https: true,
  advertised: [],
  routes: [],
  podUid: undefined,
  brokenKey: undefined,
};

/** Remembers, per group, how many keys were made anew lately. */
export class KeyKeeper {
  readonly #deps: KeyKeeperDeps;
  /** By uid of the resource. As many as there are resources. */
  readonly #limiters = new Map<string, ReissueLimiter>();

  constructor(deps: KeyKeeperDeps) {
    this.#deps = deps;
  }

  /**
   * Sees to one replica.
   *
   * @param write stores a new key before anything else happens, so that a crash loses at most one key nobody knows.
   * @throws TailcastError `CONTROL_FAILED`
   */
  async ensure(
    replica: ReplicaWithSecrets,
    write: (stored: StoredKey) => Promise<void>,
  ): Promise<ReplicaNode> {
    const { group, ordinal, secrets } = replica;
    const state = secrets.state === undefined ? NO_NODE : readNodeState(secrets.state);
    const before = secrets.auth === undefined ? undefined : readStoredKey(secrets.auth);
    const node = await this.#look(replica, state.deviceId);
    const decision = decideKey({
      stored: before,
      deviceId: node.deviceId,
      brokenKey: state.brokenKey,
      tags: group.tags,
      spent: node.deviceId === undefined && (await this.#isSpent(replica, before, node.removed)),
      nowMs: this.#deps.nowMs(),
    });
    const stored = await this.#carryOut(replica, decision, before, node.deviceId, write);
    const wanted = node.deviceId === undefined || state.brokenKey !== undefined;
    return {
      ordinal,
      state: { ...state, deviceId: node.deviceId },
      control: node.device,
      stored,
      deliver: wanted ? stored?.key : undefined,
    };
  }

  /** Forgets what is remembered about a resource. */
  forget(uid: string): void {
    this.#limiters.delete(uid);
  }

  /** A node that somebody removed at the control server does not count any more: its replica has to join anew. */
  async #look(
    { control, signal }: Replica,
    deviceId: string | undefined,
  ): Promise<{ deviceId: string | undefined; device: TailnetDevice | undefined; removed: boolean }> {
    if (deviceId === undefined) return { deviceId, device: undefined, removed: false };
    const said = await this.#ask('what a node is', () => control.device(deviceId, signal));
    const removed = said !== undefined && said.answer === undefined;
    return { deviceId: removed ? undefined : deviceId, device: said?.answer, removed };
  }

  async #carryOut(
    replica: ReplicaWithSecrets,
    decision: KeyDecision,
    before: StoredKey | undefined,
    deviceId: string | undefined,
    write: (stored: StoredKey) => Promise<void>,
  ): Promise<StoredKey | undefined> {
    const { group, control, signal } = replica;
    switch (decision.kind) {
      case 'none':
        return undefined;
      case 'keep':
        return before === undefined || deviceId === undefined
          ? before
          : followTags(before, deviceId, group.tags, control, signal);
      case 'create':
      case 'replace': {
        const stored =
          decision.kind === 'create'
            ? await this.#create(replica)
            : await this.#replace(replica, decision.reason);
        await write(stored);
        this.#deps.metrics.keysCreated.inc({ reason: decision.kind === 'create' ? 'new' : decision.reason });
        const old = before?.id;
        if (old !== undefined) await this.#ask('that a key is revoked', () => control.revokeKey(old, signal));
        return stored;
      }
    }
  }

  async #create({ group, ordinal, control, signal }: Replica): Promise<StoredKey> {
    const { kind, name, tags } = group;
    const description = `${kind.toLowerCase()} ${name}-${ordinal}`.replaceAll(/[^A-Za-z0-9 -]/g, '-');
    const { key, id, expiresAtMs } = await control.createKey(
      { tags, lifetimeMs: KEY_LIFETIME_MS, description },
      signal,
    );
    return { key, id, expiresAtMs, tags };
  }

  /** A key in place of one that does not do; limited, because a pod can ask for it again and again. */
  async #replace(replica: ReplicaWithSecrets, reason: ReplaceReason): Promise<StoredKey> {
    const { group, ordinal, control, secrets, signal } = replica;
    const { log } = this.#deps;
    if ((reason === 'requested' || reason === 'spent') && !this.#limiterOf(group).take()) {
      throw new TailcastError(
        'CONTROL_FAILED',
        `auth key re-issuance rate limit exceeded for ${group.kind} "${group.name}", will retry with backoff`,
      );
    }
    // Its pod forgets who it was when it has the new key.
    if (reason === 'requested' && secrets.state !== undefined)
      await removeNode(this.#deps, secrets.state, control, signal);
    const stored = await this.#create(replica);
    log.info({ kind: group.kind, name: group.name, ordinal, reason }, 'auth key replaced');
    return stored;
  }

  /** Keys let one node in: a key whose node is gone again, or that the control server calls used, lets nobody in. */
  async #isSpent(
    { control, signal }: Replica,
    stored: StoredKey | undefined,
    removed: boolean,
  ): Promise<boolean> {
    const { id, expiresAtMs } = stored ?? {};
    if (id === undefined || expiresAtMs === undefined) return removed;
    if (this.#deps.nowMs() - (expiresAtMs - KEY_LIFETIME_MS) < SPENT_AFTER_MS) return false;
    const said = await this.#ask('whether a key is usable', () => control.keyUsable(id, signal));
    return said?.answer === false;
  }

  /** A control server that does not answer a question must not stop everything else. */
  async #ask<T>(what: string, question: () => Promise<T>): Promise<{ readonly answer: T } | undefined> {
    try {
      return { answer: await question() };
    } catch (error) {
      this.#deps.log.warn({ what, error: errorText(error) }, 'the control server did not say');
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

/** Tags of a node that has joined are changed at the control server. Where its tags are not known, they are taken as right. */
async function followTags(
  stored: StoredKey,
  deviceId: string,
  tags: readonly string[],
  control: TailnetControl,
  signal: AbortSignal,
): Promise<StoredKey> {
  if (stored.tags !== undefined && stored.tags.join(',') !== tags.join(',')) {
    await control.setTags(deviceId, tags, signal);
  }
  return { ...stored, tags };
}

/** The key that an auth Secret holds, with what its annotations say. */
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
