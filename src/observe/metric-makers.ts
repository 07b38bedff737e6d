/** Functions that create the metrics of a process with one line of code for each metric. */
import { Counter, Gauge, Histogram, type Registry } from 'prom-client';

export type MetricMakers = ReturnType<typeof createMakers>;

/** Creates metrics that are registered in `registry`. */
export function createMakers(registry: Registry) {
  const registers = [registry];
  return {
    counter: (name: string, help: string) => new Counter({ name, help, registers }),
    /**
     * Creates a counter with one label. The series of `known` label values start at 0, because Prometheus ignores the
     * first increase of a new series.
     */
    labelled: <Label extends string>(
      name: string,
      help: string,
      label: Label,
      known: readonly string[] = [],
    ): Counter<Label> => {
      const counter = new Counter({ name, help, labelNames: [label], registers });
      for (const value of known) counter.labels(value).inc(0);
      return counter;
    },
    /** Creates a gauge. The caller sets its value, or each scrape calls `read`. */
    gauge: (name: string, help: string, read?: () => number): Gauge => {
      const gauge: Gauge = new Gauge({
        name,
        help,
        registers,
        ...(read === undefined ? {} : { collect: () => gauge.set(read()) }),
      });
      return gauge;
    },
    histogram: (name: string, help: string, buckets: number[]) =>
      new Histogram({ name, help, buckets, registers }),
  };
}
