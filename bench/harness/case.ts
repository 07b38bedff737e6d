/** Types of a benchmark case. */
import type { LoadPlan, LoadResult } from '../programs/plan.ts';
import type { Peer, PeerName } from '../peers/peer.ts';
import type { Bench } from './bench.ts';

/** Size of a run: complete or quick. */
export interface Scale {
  readonly quick: boolean;
}

export interface BenchCase {
  /** Name of the case on the command line. */
  readonly name: string;
  /** Heading of the results. */
  readonly title: string;
  /** Units for the rate and for the CPU time. */
  readonly unit: Unit;
  /** Peers in the order of the table. If a peer is unavailable, the run skips it and prints the reason. */
  readonly peers: readonly PeerName[];
  /** True if a quick run omits the case, unless the command line names it. */
  readonly onlyFull?: boolean;
  /** Number of rounds; default: the number of rounds of the run. */
  readonly rounds?: (scale: Scale) => number;
  /** True if every round needs a new process, for cases that measure memory. */
  readonly fresh?: boolean;
  /** True if CPU time is measured from the start of the process. Requires `fresh`. */
  readonly sinceStart?: boolean;
  /** True if the case stops all load before it calls `onSteady`, so that memory is measured at rest. */
  readonly atRest?: boolean;
  /** True if the load is constant, so that requests per second have no meaning. */
  readonly constantLoad?: boolean;
  /**
   * Minimum bytes that the recorder must have stored for each unit of `LoadResult`. If a recording proxy stores fewer
   * bytes, its result is discarded.
   */
  readonly recordedBytesPerUnit?: number;
  /** Number of open connections, by which the report divides the memory, and their name in the report. */
  readonly memoryPer?: (scale: Scale) => { readonly count: number; readonly what: string };
  /** Starts the peers of the case if the case needs its own. @throws PeerMissingError */
  readonly start?: (name: PeerName, bench: Bench) => Promise<Peer>;
  /** Load from the load generator. */
  readonly plan?: (scale: Scale) => LoadPlan;
  /** Load that the case itself creates. */
  readonly run?: (peer: Peer, bench: Bench, scale: Scale, onSteady: () => void) => Promise<LoadResult>;
}

export interface Unit {
  /** Unit of the rate, for example `requests/s`. */
  readonly rate: string;
  /** Number of `LoadResult` units per unit of `rate`, for example a million bytes per MB. */
  readonly size: number;
  /** Unit of the CPU time, for example `us CPU/request`. */
  readonly cpu: string;
  /** Number of seconds in the time unit of `cpu`. */
  readonly cpuSeconds: number;
}

export const REQUESTS: Unit = { rate: 'requests/s', size: 1, cpu: 'µs CPU/request', cpuSeconds: 1e-6 };
export const MEGABYTES: Unit = { rate: 'MB/s', size: 1e6, cpu: 'ms CPU/MB', cpuSeconds: 1e-3 };
export const CONNECTIONS: Unit = {
  rate: 'connections/s',
  size: 1,
  cpu: 'µs CPU/connection',
  cpuSeconds: 1e-6,
};
export const EVENTS: Unit = { rate: 'events/s', size: 1, cpu: 'µs CPU/event', cpuSeconds: 1e-6 };
export const LINES: Unit = { rate: 'lines/s', size: 1, cpu: 'µs CPU/line', cpuSeconds: 1e-6 };
export const KEYS: Unit = { rate: 'keys/s', size: 1, cpu: 'µs CPU/key', cpuSeconds: 1e-6 };
export const STARTS: Unit = { rate: 'starts/s', size: 1, cpu: 'ms CPU/start', cpuSeconds: 1e-3 };
export const COMMANDS: Unit = { rate: 'commands/s', size: 1, cpu: 'ms CPU/command', cpuSeconds: 1e-3 };
