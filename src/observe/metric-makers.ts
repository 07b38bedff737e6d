/** Functions that create the metrics of a process with one line of code for each metric. */
import { Counter, Gauge, Histogram, type Registry } from 'prom-client';

export interface MetricMakers {
  readonly counter: (name: string, help: string) => Counter;
  /**
   * Creates a counter with one label. The series of `known` label values start at 0, because Prometheus ignores the
   * first increase of a new series.
   */
  readonly labelled: <Label extends string>(
    name: string,
    help: string,
    label: Label,
    known?: readonly string[],
  ) => Counter<Label>;
  /** Creates a gauge. The caller sets its value, or each scrape calls `read`. */
  readonly gauge: (name: string, help: string, read?: () => number) => Gauge;
  readonly histogram: (name: string, help: string, buckets: number[]) => Histogram;
}

/** Creates metrics that are registered in `registry`. */
export function createMakers(registry: Registry): MetricMakers {
  const registers = [registry];
  return {
    counter: (name, help) => new Counter({ name, help, registers }),
    labelled(name, help, label, known = []) {
      const counter = new Counter({ name, help, labelNames: [label], registers });
      for (const value of known) counter.labels(value).inc(0);
      return counter;
    },
    gauge(name, help, read) {
      const gauge: Gauge = new Gauge({
        name,
        help,
        registers,
        ...(read === undefined ? {} : { collect: () => gauge.set(read()) }),
      });
      return gauge;
    },
    histogram: (name, help, buckets) => new Histogram({ name, help, buckets, registers }),
  };
}
