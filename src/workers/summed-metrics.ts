/**
 * The metrics of all workers as one exposition. Counts of workers that have ended stay in the sums: a sum that goes back
 * looks to Prometheus like a restart of everything, and shows as a burst that never was.
 */
import { AggregatorRegistry, type Registry } from 'prom-client';
import { createSequence } from '../async/sequence.ts';
import type { MetricSnapshot } from './messages.ts';

type Snapshot = readonly MetricSnapshot[];

/** What only ever rises; everything else is true of a process that lives, or of none. */
const LASTING: ReadonlySet<unknown> = new Set(['counter', 'histogram', 'summary']);

/** Snapshots of ended workers that are kept before they are added up. */
const MAX_RETIRED = 8;

/** One per primary. */
export class SummedMetrics {
  readonly #latest = new Map<object, Snapshot>();
  #retired: readonly Snapshot[] = [];
  readonly #exclusively = createSequence();

  /** What `worker` counts now. */
  update(worker: object, snapshot: Snapshot): void {
    this.#latest.set(worker, snapshot);
  }

  /** The worker has ended: what it had counted last stays. */
  retire(worker: object): void {
    const last = this.#latest.get(worker);
    if (last === undefined) return;
    this.#latest.delete(worker);
    this.#retired = [...this.#retired, last.filter(({ type }) => LASTING.has(type))];
    if (this.#retired.length > MAX_RETIRED) void this.#exclusively(() => this.#addUp());
  }

  /** @param own metrics of the primary itself. */
  text(own: Snapshot): Promise<string> {
    return sum([own, ...this.#retired, ...this.#latest.values()]).metrics();
  }

  /** A worker that keeps crashing must not fill the memory of the primary. */
  async #addUp(): Promise<void> {
    const taken = this.#retired;
    const total = await sum(taken).getMetricsAsJSON();
    this.#retired = [total, ...this.#retired.slice(taken.length)];
  }
}

function sum(snapshots: readonly Snapshot[]): Registry {
  return AggregatorRegistry.aggregate(snapshots.map((snapshot) => [...snapshot]));
}
