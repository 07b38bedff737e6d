/** Reports changes of the tailnet, so that identities are requested again and running sessions are rechecked. */
import { createBackoff } from '../async/backoff.ts';
import { pause } from '../async/pause.ts';
import type { Timer } from '../async/timer.ts';
import { errorText } from '../errors.ts';
import type { Logger } from '../observe/logger.ts';
import { BUS_MASK, type LocalApi } from './local-api.ts';
import type { Notify } from './local-api-transport.ts';

export interface NetmapWatcherOptions {
  readonly localApi: Pick<LocalApi, 'watchBus'>;
  readonly log: Logger;
  /**
   * Called for every change. Also called after the connection to the bus was lost, because changes may have been
   * missed.
   */
  readonly onChange: () => void;
  readonly minBackoffMs?: number;
  readonly maxBackoffMs?: number;
  /** Returns a random number in `[0, 1)`, which spreads the reconnections of several gateways. */
  readonly random?: () => number;
  readonly timer?: Timer;
}

/** Fields of a `Notify` that mean a change of identities or rights. Older daemons send `NetMap`. */
const CHANGES = [
  'SelfChange',
  'PeersChanged',
  'PeersRemoved',
  'PeerChangedPatch',
  'NetMap',
  'State',
] as const;

/**
 * Requests the initial state at the start of every connection to the bus. The initial state counts as a change, so the
 * caller checks identities again after the connection was lost.
 */
const MASK = BUS_MASK.initialState | BUS_MASK.peerChanges | BUS_MASK.noNetmap;

/** Runs until `signal` aborts; never rejects. Also calls `onChange` at the start of each connection to the bus. */
export async function watchNetmap(options: NetmapWatcherOptions, signal: AbortSignal): Promise<void> {
  const { localApi, log, onChange } = options;
  const limits = { baseMs: options.minBackoffMs ?? 250, maxMs: options.maxBackoffMs ?? 15_000 };
  const backoff = createBackoff(limits, options.random ?? Math.random);
  while (!signal.aborted) {
    let failure: unknown;
    try {
      for await (const notify of localApi.watchBus(MASK, signal)) {
        backoff.reset();
        if (isChange(notify)) onChange();
      }
    } catch (error) {
      failure = error;
    }
    const retryInMs = backoff.next();
    if (failure !== undefined)
      log.warn({ error: errorText(failure), retryInMs }, 'tailnet notifications lost');
    if (signal.aborted) return;
    onChange();
    await pause(retryInMs, signal, options.timer);
  }
}

function isChange(notify: Notify): boolean {
  return CHANGES.some((name) => notify[name] !== undefined && notify[name] !== null);
}
