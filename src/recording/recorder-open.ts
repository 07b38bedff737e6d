/**
 * Opens an upload at one recorder. A tailcast recorder gets the upload over an upgraded connection. Any other recorder
 * gets the upload over the newest protocol of the reference that the recorder supports.
 *
 * ```
 *   known to upgrade ──► GET /v2/record, 101
 *        │ no, or not any more
 *        ▼
 *   HEAD /v2/record over HTTP/2 ──offers it──► GET /v2/record on another connection, 101
 *        │ no v2                     │ not offered
 *        ▼                           ▼
 *   POST /record (v1)            POST /v2/record on the connection of the HEAD
 * ```
 *
 * A session can only be continued over an upgraded connection.
 */
import type { Logger } from '../observe/logger.ts';
import { errorText } from '../errors.ts';
import type { RecorderNode } from './recorder-candidates.ts';
import type { DialRecorder, RecorderConnection, UploadIntent } from './recorder-connection.ts';
import { dialNode } from './recorder-dial.ts';
import { NotUpgradedError, openUpgraded } from './recorder-upgrade.ts';
import { openV1 } from './recorder-v1.ts';
import { NotV2Error, probeV2, type ProbedRecorder } from './recorder-v2.ts';

/** Maximum number of known recorders. The oldest is removed first. */
const MAX_KNOWN_UPGRADES = 256;

/**
 * Recorders that have accepted an upgrade. The next upload to such a recorder starts with the upgrade, which
 * saves a round trip.
 */
export class KnownUpgrades {
  readonly #keys = new Set<string>();

  has(key: string): boolean {
    return this.#keys.has(key);
  }

  add(key: string): void {
    this.#keys.delete(key);
    this.#keys.add(key);
    for (const oldest of this.#keys) {
      if (this.#keys.size <= MAX_KNOWN_UPGRADES) break;
      this.#keys.delete(oldest);
    }
  }

  delete(key: string): void {
    this.#keys.delete(key);
  }
}

export interface OpenContext {
  readonly dial: DialRecorder;
  readonly nowMs: () => number;
  readonly log: Logger;
  readonly upgrades: KnownUpgrades;
}

export interface OpenLimits {
  readonly dialTimeoutMs: number;
  /** Timeout of each response before the upload starts. */
  readonly probeTimeoutMs: number;
  readonly ackWindowMs: number;
  readonly finishTimeoutMs: number;
  /** True if the user sees output only after it is durable. */
  readonly waits: boolean;
}

/** Opens an upload at one recorder. @throws Error if the recorder refuses it, or `signal` aborts */
export async function openUploadAt(
  context: OpenContext,
  node: RecorderNode,
  limits: OpenLimits,
  intent: UploadIntent,
  signal: AbortSignal,
): Promise<RecorderConnection> {
  return new Opening(context, node, limits, intent, signal).open();
}

class Opening {
  readonly #context: OpenContext;
  readonly #node: RecorderNode;
  readonly #limits: OpenLimits;
  readonly #intent: UploadIntent;
  readonly #signal: AbortSignal;

  constructor(
    context: OpenContext,
    node: RecorderNode,
    limits: OpenLimits,
    intent: UploadIntent,
    signal: AbortSignal,
  ) {
    this.#context = context;
    this.#node = node;
    this.#limits = limits;
    this.#intent = intent;
    this.#signal = signal;
  }

  async open(): Promise<RecorderConnection> {
    const { upgrades, nowMs } = this.#context;
    const { key, addresses } = this.#node;
    const { probeTimeoutMs } = this.#limits;
    if (!upgrades.has(key)) return this.#probe(addresses, probeTimeoutMs);
    const { address, socket } = await this.#dial(addresses);
    const askedMs = nowMs();
    try {
      return await this.#upgrade(address, socket);
    } catch (error) {
      upgrades.delete(key);
      if (!(error instanceof NotUpgradedError)) throw error;
      this.#logRefusal(error);
    }
    // the timeout applies to both requests together
    return this.#probe([address], Math.max(0, probeTimeoutMs - (nowMs() - askedMs)));
  }

  async #probe(addresses: readonly string[], probeTimeoutMs: number): Promise<RecorderConnection> {
    const { address, socket } = await this.#dial(addresses);
    const { ackWindowMs, probeTimeoutMs: postTimeoutMs } = this.#limits;
    const options = { address, probeTimeoutMs, postTimeoutMs, ackWindowMs };
    const isFirst = this.#intent.part === 1;
    let probed: ProbedRecorder;
    try {
      probed = await probeV2(socket, options, this.#signal);
    } catch (error) {
      if (!(error instanceof NotV2Error) || !isFirst) throw error;
      return this.#openV1(address);
    }
    if (!probed.upgrades && isFirst) return probed.post(this.#signal);
    probed.close();
    if (!probed.upgrades) throw new Error('the recorder does not continue sessions of others');
    const { socket: another } = await this.#dial([address]);
    const upgraded = await this.#upgrade(address, another);
    this.#context.upgrades.add(this.#node.key);
    return upgraded;
  }

  #upgrade(address: string, socket: Parameters<typeof openUpgraded>[0]): Promise<RecorderConnection> {
    const { ackWindowMs, waits, probeTimeoutMs: timeoutMs } = this.#limits;
    const options = { address, timeoutMs, ackWindowMs, waits, intent: this.#intent };
    return openUpgraded(socket, options, this.#signal);
  }

  async #openV1(address: string): Promise<RecorderConnection> {
    const { socket } = await this.#dial([address]);
    const { probeTimeoutMs: continueTimeoutMs, finishTimeoutMs } = this.#limits;
    return openV1(socket, { address, continueTimeoutMs, finishTimeoutMs }, this.#signal);
  }

  #dial(addresses: readonly string[]): ReturnType<typeof dialNode> {
    return dialNode(addresses, this.#context.dial, this.#limits.dialTimeoutMs, this.#signal);
  }

  #logRefusal(error: unknown): void {
    this.#context.log.debug(
      { recorder: this.#node.addresses, reason: errorText(error) },
      'recorder did not upgrade; trying HTTP/2',
    );
  }
}
