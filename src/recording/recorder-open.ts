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
import type { Duplex } from 'node:stream';
import type { BoundedMap } from '../bounded-map.ts';
import type { Logger } from '../observe/logger.ts';
import { errorText } from '../errors.ts';
import type { RecorderNode } from './recorder-candidates.ts';
import type { DialRecorder, RecorderConnection, UploadIntent } from './recorder-connection.ts';
import { dialNode } from './recorder-dial.ts';
import { NotUpgradedError, openUpgraded } from './recorder-upgrade.ts';
import { openV1 } from './recorder-v1.ts';
import { NotV2Error, probeV2, type ProbedRecorder } from './recorder-v2.ts';

export interface OpenContext {
  readonly dial: DialRecorder;
  readonly nowMs: () => number;
  readonly log: Logger;
  /**
   * Keys of the recorders that have accepted an upgrade. The next upload to such a recorder starts with the upgrade,
   * which saves a round trip.
   */
  readonly upgrades: BoundedMap<true>;
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
  { dial, upgrades, nowMs, log }: OpenContext,
  { key, addresses }: RecorderNode,
  limits: OpenLimits,
  intent: UploadIntent,
  signal: AbortSignal,
): Promise<RecorderConnection> {
  const { dialTimeoutMs, probeTimeoutMs, ackWindowMs, finishTimeoutMs, waits } = limits;
  const connect = (to: readonly string[]): ReturnType<typeof dialNode> =>
    dialNode(to, dial, dialTimeoutMs, signal);
  const upgrade = (address: string, socket: Duplex): Promise<RecorderConnection> =>
    openUpgraded(socket, { address, timeoutMs: probeTimeoutMs, ackWindowMs, waits, intent }, signal);

  async function probe(to: readonly string[], timeoutMs: number): Promise<RecorderConnection> {
    const { address, socket } = await connect(to);
    const options = { address, probeTimeoutMs: timeoutMs, postTimeoutMs: probeTimeoutMs, ackWindowMs };
    const isFirst = intent.part === 1;
    let probed: ProbedRecorder;
    try {
      probed = await probeV2(socket, options, signal);
    } catch (error) {
      if (!(error instanceof NotV2Error) || !isFirst) throw error;
      const { socket: another } = await connect([address]);
      return openV1(another, { address, continueTimeoutMs: probeTimeoutMs, finishTimeoutMs }, signal);
    }
    if (!probed.upgrades && isFirst) return probed.post(signal);
    probed.close();
    if (!probed.upgrades) throw new Error('the recorder does not continue sessions of others');
    const { socket: another } = await connect([address]);
    const upgraded = await upgrade(address, another);
    upgrades.set(key, true);
    return upgraded;
  }

  if (!upgrades.has(key)) return probe(addresses, probeTimeoutMs);
  const { address, socket } = await connect(addresses);
  const askedMs = nowMs();
  try {
    return await upgrade(address, socket);
  } catch (error) {
    upgrades.delete(key);
    if (!(error instanceof NotUpgradedError)) throw error;
    log.debug({ recorder: addresses, reason: errorText(error) }, 'recorder did not upgrade; trying HTTP/2');
  }
  // the timeout applies to both requests together
  return probe([address], Math.max(0, probeTimeoutMs - (nowMs() - askedMs)));
}
