/** Results of a run in `results.json`, for the report. */
import type { PeerName } from '../peers/peer.ts';
import type { Unit } from './case.ts';
import type { Rounds, Spread } from './statistics.ts';

export interface RunResults {
  readonly startedAt: string;
  readonly quick: boolean;
  readonly machine: readonly string[];
  readonly versions: Readonly<Record<string, string>>;
  /** Unavailable peers and failed cases, with the reason. */
  readonly missing: Readonly<Record<string, string>>;
  readonly cases: readonly CaseResult[];
  readonly facts: readonly Fact[];
}

/** A measured value that does not belong to a case. */
export interface Fact {
  readonly name: string;
  readonly value: number;
  readonly unit: string;
}

export interface CaseResult {
  readonly name: string;
  readonly title: string;
  readonly unit: Unit;
  readonly rounds: number;
  readonly constantLoad: boolean;
  /** If set, `memoryKb` is the memory per connection of this kind, such as `watch`. */
  readonly memoryOf?: string;
  readonly rows: readonly Row[];
}

/** Figures for a comparison of two peers, round by round. */
export const COMPARED = [
  'rate',
  'cpu',
  'recorderCpu',
  'p50Ms',
  'p90Ms',
  'p99Ms',
  'peakRssMb',
  'memoryKb',
  'restMb',
] as const satisfies readonly (keyof Row)[];
export type ComparedFigure = (typeof COMPARED)[number];

export interface Row {
  readonly peer: PeerName;
  /** Rate, in the unit `unit.rate`. */
  readonly rate: Spread;
  /** CPU time in the unit `unit.cpu`; undefined for the direct connection. */
  readonly cpu?: Spread;
  /** CPU time of the recorder that stores the peer's sessions. */
  readonly recorderCpu?: Spread;
  readonly p50Ms?: Spread;
  readonly p90Ms?: Spread;
  readonly p99Ms?: Spread;
  readonly peakRssMb?: Spread;
  /** Memory of the process divided by the number of open connections. */
  readonly memoryKb?: Spread;
  /** Memory per connection, excluding the memory that the process used before the first connection. */
  readonly memoryAddedKb?: Spread;
  /** Memory after all load has stopped, and its growth. */
  readonly restMb?: Spread;
  readonly restAddedMb?: Spread;
  /** CPU seconds of the load generator per second of load. */
  readonly loadCpu: Spread;
  /** Value of each round, for comparisons; null for a failed round. */
  readonly rounds?: Readonly<Partial<Record<ComparedFigure, Rounds>>>;
  /** Number of failed rounds, and the last error. */
  readonly failed?: string;
}

/** Returns the row of a peer. */
export function rowOf(results: RunResults, caseName: string, peer: PeerName): Row | undefined {
  return results.cases.find(({ name }) => name === caseName)?.rows.find((row) => row.peer === peer);
}
