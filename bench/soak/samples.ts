/** Resource usage of the tested processes over time, and its trend. */
import { readdirSync, readFileSync } from 'node:fs';

/** Resource usage of a role, summed over its processes. */
export interface Sample {
  readonly seconds: number;
  readonly rssBytes: number;
  readonly fds: number;
  /** Values of the role's metrics; undefined if the metrics were unavailable. */
  readonly heapBytes: number | undefined;
  /** Memory outside V8's heap, for example buffers. */
  readonly externalBytes: number | undefined;
  readonly handles: number | undefined;
}

export type Quantity = Exclude<keyof Sample, 'seconds'>;

export interface Trend {
  readonly quantity: Quantity;
  /** Values of the fitted line at the first and at the last sample. */
  readonly from: number;
  readonly to: number;
  readonly allowed: number;
  readonly flat: boolean;
}

/**
 * The allocator of the OS needs several minutes of connections to reach a steady state. In a shorter window, the
 * resident memory may grow by the share `WARMING_SHARE`.
 */
const LEVEL_SECONDS = 240;
const WARMING_SHARE = 0.4;

/** Maximum growth in the window: a share of the level, or an absolute value if that is larger. */
const ALLOWED: Readonly<Record<Quantity, { readonly share: number; readonly least: number }>> = {
  rssBytes: { share: 0.1, least: 24 * 1024 ** 2 },
  heapBytes: { share: 0.15, least: 12 * 1024 ** 2 },
  externalBytes: { share: 0.15, least: 12 * 1024 ** 2 },
  // the number varies, because shells start and stop, and each has several file descriptors
  fds: { share: 0.08, least: 40 },
  handles: { share: 0.03, least: 30 },
};

/** @throws Error if a process has exited */
export function usageOf(pids: readonly number[]): Pick<Sample, 'rssBytes' | 'fds'> {
  let rssBytes = 0;
  let fds = 0;
  for (const pid of pids) {
    const kilobytes = /^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1];
    rssBytes += Number(kilobytes ?? 0) * 1024;
    fds += readdirSync(`/proc/${pid}/fd`).length;
  }
  return { rssBytes, fds };
}

/** Returns the sum of a metric over its labels; undefined if the metric is missing. */
export function metricOf(text: string, name: string): number | undefined {
  const rows = text.split('\n').filter((row) => row.startsWith(`${name} `) || row.startsWith(`${name}{`));
  return rows.length === 0 ? undefined : rows.reduce((sum, row) => sum + Number(row.split(' ').at(-1)), 0);
}

/**
 * Evaluates the second half of a run. The size of a heap oscillates with garbage collections, so the minimum of every
 * few samples is used. The slope is the median of the slopes between all pairs (Theil–Sen), which outliers do not
 * affect.
 */
export function trendsOf(samples: readonly Sample[]): readonly Trend[] {
  const half = samples.slice(Math.floor(samples.length / 2));
  return (['rssBytes', 'heapBytes', 'externalBytes', 'fds', 'handles'] as const).flatMap((quantity) => {
    const points = half.flatMap((sample) => {
      const value = sample[quantity];
      return value === undefined ? [] : [{ x: sample.seconds, y: value }];
    });
    if (points.length < 6) return [];
    const floor = quantity === 'fds' || quantity === 'handles' ? points : floorOf(points);
    const slope = theilSen(floor);
    const first = points[0]?.x ?? 0;
    const last = points.at(-1)?.x ?? 0;
    const level = median(floor.map(({ y }) => y));
    const added = slope * (last - first);
    const { share, least } = ALLOWED[quantity];
    const warming = quantity === 'rssBytes' && last - first < LEVEL_SECONDS;
    const allowed = Math.max(level * (warming ? WARMING_SHARE : share), least);
    return [{ quantity, from: level - added / 2, to: level + added / 2, allowed, flat: added <= allowed }];
  });
}

interface Point {
  readonly x: number;
  readonly y: number;
}

function floorOf(points: readonly Point[]): readonly Point[] {
  const size = Math.max(1, Math.floor(points.length / 12));
  const groups = Array.from({ length: Math.ceil(points.length / size) }, (_, index) =>
    points.slice(index * size, (index + 1) * size),
  );
  return groups.map((group) => group.reduce((least, point) => (point.y < least.y ? point : least)));
}

function theilSen(points: readonly Point[]): number {
  const slopes = points.flatMap((left, index) =>
    points.slice(index + 1).map((right) => (right.y - left.y) / (right.x - left.x)),
  );
  return slopes.length === 0 ? 0 : median(slopes);
}

function median(values: readonly number[]): number {
  const sorted = values.toSorted((left, right) => left - right);
  const middle = Math.floor(sorted.length / 2);
  const upper = sorted[middle] ?? 0;
  return sorted.length % 2 === 1 ? upper : (upper + (sorted[middle - 1] ?? 0)) / 2;
}
