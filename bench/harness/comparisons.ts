/** Pairs of peers that are compared in each round, and the result in words. */
import { counterpartOf, type PeerName } from '../peers/peer.ts';
import { COMPARED, type CaseResult, type ComparedFigure, type Row } from './results.ts';
import { compareRounds, type Comparison } from './statistics.ts';

export interface PeerComparison {
  readonly peer: PeerName;
  readonly against: PeerName;
  readonly figures: readonly { readonly figure: ComparedFigure; readonly comparison: Comparison }[];
}

/** For each peer, the peers to compare it with. Peers that did not run are skipped. */
const OPPONENTS: Partial<Record<PeerName, readonly PeerName[]>> = {
  tailcast: ['direct', 'tls-hop', 'go', 'go-h2', 'reference'],
  'tls-hop': ['direct'],
  'tailcast-recorded': ['direct', 'tailcast', 'go', 'reference-recorded'],
  'tailcast-plain-recorded': ['reference-recorded'],
  'tailcast-durable-first': ['tailcast-recorded'],
  'tailcast-clusters': ['tailcast-cluster', 'tailcast'],
};

/** Returns every comparison of a case with enough rounds. */
export function comparisonsOf({ rows, constantLoad }: CaseResult): readonly PeerComparison[] {
  const rowOf = (peer: PeerName): Row | undefined => rows.find((row) => row.peer === peer);
  return rows.flatMap((row) => {
    const counterpart = counterpartOf(row.peer);
    const opponents = [...(counterpart === undefined ? [] : [counterpart]), ...(OPPONENTS[row.peer] ?? [])];
    return opponents.flatMap((against): readonly PeerComparison[] => {
      const other = rowOf(against);
      if (other === undefined) return [];
      const figures = COMPARED.flatMap((figure) => {
        // a constant load has the same rate for all peers, so the rate is not compared
        const comparison = constantLoad && figure === 'rate' ? undefined : compareRows(row, other, figure);
        return comparison === undefined ? [] : [{ figure, comparison }];
      });
      return figures.length === 0 ? [] : [{ peer: row.peer, against, figures }];
    });
  });
}

/** Compares one figure of two rows; undefined with too few rounds. */
export function compareRows(ours: Row, theirs: Row, figure: ComparedFigure): Comparison | undefined {
  return compareRounds(ours.rounds?.[figure] ?? [], theirs.rounds?.[figure] ?? []);
}

const SPEED = { above: 'faster', below: 'slower' };
const TIME = { above: 'slower', below: 'faster' };
const COST = { above: 'more', below: 'less' };
const WORDS: Readonly<Record<ComparedFigure, { readonly above: string; readonly below: string }>> = {
  rate: SPEED,
  cpu: COST,
  recorderCpu: COST,
  p50Ms: TIME,
  p90Ms: TIME,
  p99Ms: TIME,
  peakRssMb: COST,
  memoryKb: COST,
  restMb: COST,
};

/** Returns `faster`, `slower`, `more`, `less`, or `cannot tell`. */
function wordFor(figure: ComparedFigure, { verdict }: Comparison): string {
  return verdict === 'unclear' ? 'cannot tell' : WORDS[figure][verdict];
}

/** If the upper bound of an interval exceeds the ratio by more than this factor, the report omits the interval. */
const WIDE = 10;

/** Returns the comparison as text, such as `1.14x [1.02–1.27] faster`. */
export function inWords(figure: ComparedFigure, comparison: Comparison): string {
  if (comparison.high > WIDE * comparison.ratio)
    return `${comparison.ratio.toFixed(2)}x ${wordFor(figure, comparison)}`;
  const [ratio, low, high] = [comparison.ratio, comparison.low, comparison.high].map((value) =>
    value.toFixed(2),
  );
  return `${ratio}x [${low}–${high}] ${wordFor(figure, comparison)}`;
}
