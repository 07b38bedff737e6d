/**
 * Opens an upload at one recorder, over the best that both speak.
 *
 * ```
 *   known to upgrade ──► GET /v2/record, 101
 *        │ no, or not any more
 *        ▼
 *   HEAD /v2/record over HTTP/2 ──offers it──► GET /v2/record on a connection beside it, 101
 *        │ no v2                     │ not offered, or without success
 *        ▼                           ▼
 *   POST /record (v1)            POST /v2/record on the connection of the HEAD
 * ```
 *
 * Only what is kept as frames goes over an upgraded connection. A session can only be continued over v2.
 */
import type { Logger } from '../observe/logger.ts';
import { errorText } from '../errors.ts';
import type { KnownUpgrades } from './known-upgrades.ts';
import type { RecorderNode } from './recorder-candidates.ts';
import type { DialRecorder, RecorderConnection, UploadIntent } from './recorder-connection.ts';
import { dialNode } from './recorder-dial.ts';
import { NotUpgradedError, openUpgraded, UploadRefusedError } from './recorder-upgrade.ts';
import { openV1 } from './recorder-v1.ts';
import { NotV2Error, probeV2, type ProbedRecorder } from './recorder-v2.ts';

/** How long a recorder may take for the upgrade that it has just offered, the connection included. */
const OFFERED_UPGRADE_MS = 2_000;

export interface OpenContext {
  readonly dial: DialRecorder;
  readonly nowMs: () => number;
  readonly log: Logger;
  /** Whether frames may be sent to recorders that take them. */
  readonly frames: boolean;
  /** Whether they may be sent over an upgraded connection. */
  readonly upgrade: boolean;
  readonly upgrades: KnownUpgrades;
}

export interface OpenLimits {
  readonly dialTimeoutMs: number;
  /** Each answer of the recorder before the upload begins. */
  readonly probeTimeoutMs: number;
  readonly ackWindowMs: number;
  readonly finishTimeoutMs: number;
  /** Somebody waits for each byte to be durable. */
  readonly waits: boolean;
}

/** @throws Error when the recorder takes no upload, or `signal` aborts */
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
    const { upgrade, frames, upgrades } = this.#context;
    const { key, addresses } = this.#node;
    const mayUpgrade = upgrade && frames && this.#intent.frames !== undefined;
    if (!mayUpgrade || !upgrades.knows(key)) {
      return this.#probe(addresses, this.#limits.probeTimeoutMs, mayUpgrade && upgrades.mayTry(key));
    }
    const { address, socket } = await this.#dial(addresses);
    const { probeTimeoutMs } = this.#limits;
    const askedMs = this.#context.nowMs();
    try {
      return await this.#upgrade(address, socket, probeTimeoutMs, this.#signal);
    } catch (error) {
      upgrades.forget(key);
      if (!(error instanceof NotUpgradedError)) throw error;
      this.#tell(error);
    }
    // the two questions have the time that one has elsewhere
    const leftMs = Math.max(0, probeTimeoutMs - (this.#context.nowMs() - askedMs));
    return this.#probe([address], leftMs, false);
  }

  async #probe(
    addresses: readonly string[],
    probeTimeoutMs: number,
    mayUpgrade: boolean,
  ): Promise<RecorderConnection> {
    const { address, socket } = await this.#dial(addresses);
    const { ackWindowMs, waits, probeTimeoutMs: postTimeoutMs } = this.#limits;
    const { frames } = this.#context;
    const how = { address, probeTimeoutMs, postTimeoutMs, ackWindowMs, waits, frames, intent: this.#intent };
    let probed: ProbedRecorder;
    try {
      probed = await probeV2(socket, how, this.#signal);
    } catch (error) {
      if (!(error instanceof NotV2Error) || this.#intent.part > 1) throw error;
      return this.#openV1(address);
    }
    const upgraded = mayUpgrade && probed.offers.upgrade ? await this.#offered(address, probed) : undefined;
    return upgraded ?? probed.post(this.#signal);
  }

  /** Takes the offer. @returns undefined when that did not work */
  async #offered(address: string, probed: ProbedRecorder): Promise<RecorderConnection | undefined> {
    const { upgrades } = this.#context;
    const timeoutMs = Math.min(this.#limits.probeTimeoutMs, OFFERED_UPGRADE_MS);
    try {
      const { socket } = await dialNode([address], this.#context.dial, timeoutMs, this.#signal);
      const upgraded = await this.#upgrade(address, socket, timeoutMs, this.#signal);
      upgrades.worked(this.#node.key);
      probed.close();
      return upgraded;
    } catch (error) {
      if (this.#signal.aborted) probed.close();
      this.#signal.throwIfAborted();
      // the POST will be refused as well, and say why
      if (!(error instanceof UploadRefusedError)) upgrades.failed(this.#node.key);
      this.#tell(error);
      return undefined;
    }
  }

  #upgrade(
    address: string,
    socket: Parameters<typeof openUpgraded>[0],
    timeoutMs: number,
    signal: AbortSignal,
  ): Promise<RecorderConnection> {
    const { ackWindowMs, waits } = this.#limits;
    return openUpgraded(socket, { address, timeoutMs, ackWindowMs, waits, intent: this.#intent }, signal);
  }

  async #openV1(address: string): Promise<RecorderConnection> {
    const { socket } = await this.#dial([address]);
    const { probeTimeoutMs: continueTimeoutMs, finishTimeoutMs } = this.#limits;
    return openV1(socket, { address, continueTimeoutMs, finishTimeoutMs }, this.#signal);
  }

  #dial(addresses: readonly string[]): ReturnType<typeof dialNode> {
    return dialNode(addresses, this.#context.dial, this.#limits.dialTimeoutMs, this.#signal);
  }

  #tell(error: unknown): void {
    this.#context.log.debug(
      { recorder: this.#node.addresses, reason: errorText(error) },
      'recorder did not upgrade, trying HTTP/2',
    );
  }
}
