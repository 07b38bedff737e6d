/** The metrics of one process, a line for each. */
import { Counter, Gauge, Histogram, type Registry } from 'prom-client';

export interface MetricMakers {
  readonly counter: (name: string, help: string) => Counter;
  /** A counter by one label; `known` values are there from the start: an increase from nothing to 1 is none to Prometheus. */
  readonly labelled: <Label extends string>(
    name: string,
    help: string,
    label: Label,
    known?: readonly string[],
  ) => Counter<Label>;
  /** A gauge that is set, or whose value `read` gives at scrape time. */
  readonly gauge: (name: string, help: string, read?: () => number) => Gauge;
  readonly histogram: (name: string, help: string, buckets: number[]) => Histogram;
}

/** What is made is registered in `registry`. */
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
