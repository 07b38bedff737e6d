/** Performance goals of the gateway: ratios within one run, and a few absolute limits. */
import type { PeerName } from '../peers/peer.ts';
import { compareRows } from './comparisons.ts';
import { rowOf, type Row, type RunResults } from './results.ts';

export interface Goal {
  readonly text: string;
  /** True if a quick run lacks the data for this goal. */
  readonly onlyFull?: boolean;
  /** Returns the measured values as text, and the verdict; undefined without measurements. */
  readonly look: (results: RunResults) => Verdict | undefined;
}

export interface Verdict {
  readonly figures: string;
  readonly met: boolean;
  /** False if another run could have the opposite verdict; undefined if too few rounds were measured. */
  readonly certain?: boolean | undefined;
}

/** Returns the verdict in words. */
export function verdictWord({ met, certain }: Verdict): string {
  return `${met ? 'met' : 'not met'}${certain === false ? ', uncertain' : ''}`;
}

export function judge(goal: Goal, results: RunResults): Verdict | undefined {
  return goal.onlyFull === true && results.quick ? undefined : goal.look(results);
}

type Figure = 'rate' | 'cpu' | 'p99Ms' | 'memoryKb' | 'peakRssMb';

interface Bound {
  readonly figure: Figure;
  readonly atLeast?: number;
  readonly atMost?: number;
}

const NAMES: Readonly<Record<Figure, string>> = {
  rate: 'rate',
  cpu: 'CPU',
  p99Ms: 'p99',
  memoryKb: 'memory',
  peakRssMb: 'peak memory',
};

/** Bounds on ratios of two peers in a case. */
function compare(
  text: string,
  caseName: string,
  [ours, theirs]: readonly [PeerName, PeerName],
  bounds: readonly Bound[],
): Goal {
  return {
    text,
    look(results) {
      const [left, right] = [rowOf(results, caseName, ours), rowOf(results, caseName, theirs)];
      if (left === undefined || right === undefined) return undefined;
      const verdict = check(
        bounds,
        (figure) => (left[figure]?.median ?? NaN) / (right[figure]?.median ?? NaN),
        'x',
      );
      return verdict && { ...verdict, certain: isCertain(bounds, left, right) };
    },
  };
}

/**
 * True if every bound is outside the confidence interval of its ratio, so that another run would give the same verdict.
 */
function isCertain(bounds: readonly Bound[], left: Row, right: Row): boolean | undefined {
  const outside = bounds.map(({ figure, atLeast, atMost }) => {
    const comparison = compareRows(left, right, figure);
    if (comparison === undefined) return undefined;
    return [atLeast, atMost].every(
      (edge) => edge === undefined || edge < comparison.low || edge > comparison.high,
    );
  });
  return outside.includes(undefined) ? undefined : !outside.includes(false);
}

/** Bounds on figures of one peer in a case. */
function bound(
  text: string,
  caseName: string,
  peer: PeerName,
  bounds: readonly (Bound & { unit: string })[],
): Goal {
  return {
    text,
    look(results) {
      const row = rowOf(results, caseName, peer);
      if (row === undefined) return undefined;
      return check(bounds, (figure) => row[figure]?.median ?? NaN, bounds[0]?.unit ?? '');
    },
  };
}

/** Limit for the difference between the same figure of two peers. */
function added(
  text: string,
  caseName: string,
  [ours, theirs]: readonly [PeerName, PeerName],
  atMost: number,
  [figure, unit]: readonly ['p50Ms' | 'p90Ms' | 'p99Ms' | 'restMb', string] = ['p99Ms', 'ms'],
): Goal {
  return {
    text,
    look(results) {
      const median = (row: Row | undefined): number | undefined => row?.[figure]?.median;
      const [left, right] = [
        median(rowOf(results, caseName, ours)),
        median(rowOf(results, caseName, theirs)),
      ];
      if (left === undefined || right === undefined) return undefined;
      return { figures: `${(left - right).toFixed(2)} ${unit}`, met: left - right <= atMost };
    },
  };
}

function fact(text: string, name: string, atMost: number): Goal {
  return {
    text,
    look(results) {
      const found = results.facts.find((one) => one.name === name);
      return found === undefined
        ? undefined
        : { figures: `${found.value.toFixed(1)} ${found.unit}`, met: found.value <= atMost };
    },
  };
}

function check(
  bounds: readonly Bound[],
  valueOf: (figure: Figure) => number,
  unit: string,
): Verdict | undefined {
  const values = bounds.map((one) => ({ ...one, value: valueOf(one.figure) }));
  if (values.some(({ value }) => Number.isNaN(value))) return undefined;
  return {
    figures: values.map(({ figure, value }) => `${NAMES[figure]} ${value.toFixed(2)}${unit}`).join(', '),
    met: values.every(
      ({ value, atLeast = -Infinity, atMost = Infinity }) => value >= atLeast && value <= atMost,
    ),
  };
}

const recorded = (transport: string, content: string): string => `exec-cat-${content}-${transport}`;
const TRANSPORTS = ['spdy', 'websocket'] as const;
const START = ['tailcast-recorded', 'direct'] as const;

/** Name of a figure that belongs to no case. */
export const IDLE_MEMORY = 'memory of an idle gateway';

export const GOALS: readonly Goal[] = [
  compare(
    'small GET, 32 connections: ≥ 1.6x Go’s requests/s at ≤ 0.65x its CPU',
    'get-32',
    ['tailcast', 'go'],
    [
      { figure: 'rate', atLeast: 1.6 },
      { figure: 'cpu', atMost: 0.65 },
    ],
  ),
  compare(
    'small GET, 32 connections: ≥ 10x Go with its default transport',
    'get-32',
    ['tailcast', 'go-default'],
    [{ figure: 'rate', atLeast: 10 }],
  ),
  compare(
    'small GET over HTTP/2, 1 x 32 streams: ≥ 1.5x Go (HTTP/2 on both sides)',
    'h2-1x32',
    ['tailcast', 'go-h2'],
    [{ figure: 'rate', atLeast: 1.5 }],
  ),
  compare(
    'small GET over HTTP/2, 8 x 32 streams: ≥ 1.5x Go (HTTP/2 on both sides)',
    'h2-8x32',
    ['tailcast', 'go-h2'],
    [{ figure: 'rate', atLeast: 1.5 }],
  ),
  ...(['chunked', 'length'] as const).map((framing) =>
    compare(
      `LIST of 50 MB, ${framing}: ≥ 1.0x Go’s MB/s at ≤ 1.0x its CPU`,
      `list-${framing}`,
      ['tailcast', 'go'],
      [
        { figure: 'rate', atLeast: 1 },
        { figure: 'cpu', atMost: 1 },
      ],
    ),
  ),
  compare('POST of 1 MB: ≤ 1.3x Go’s CPU', 'post', ['tailcast', 'go'], [{ figure: 'cpu', atMost: 1.3 }]),
  bound('LIST of 50 MB: at most 150 MB of memory', 'list-chunked', 'tailcast', [
    { figure: 'peakRssMb', atMost: 150, unit: ' MB' },
  ]),
  compare(
    '5,000 watches: ≤ 1.0x Go’s memory',
    'watches',
    ['tailcast', 'go'],
    [{ figure: 'memoryKb', atMost: 1 }],
  ),
  {
    ...added('5,000 watches: ≤ 5 ms added to the p99 of an event', 'watches', ['tailcast', 'direct'], 5),
    onlyFull: true,
  },
  compare(
    'TLS handshake and 3 GETs: ≥ 1.0x Go',
    'handshakes',
    ['tailcast', 'go'],
    [{ figure: 'rate', atLeast: 1 }],
  ),
  {
    text: 'kubectl get pods: ≤ 1.1x the time of a direct one',
    look(results) {
      const [ours, direct] = [rowOf(results, 'kubectl', 'tailcast'), rowOf(results, 'kubectl', 'direct')];
      if (ours === undefined || direct === undefined) return undefined;
      const ratio = direct.rate.median / ours.rate.median;
      return { figures: `${ratio.toFixed(2)}x`, met: ratio <= 1.1 };
    },
  },
  added('kubectl exec -- true recorded: ≤ 5 ms added to the p50', 'exec-start', START, 5, ['p50Ms', 'ms']),
  added('kubectl exec -- true recorded: ≤ 10 ms added to the p90', 'exec-start', START, 10, ['p90Ms', 'ms']),
  ...TRANSPORTS.flatMap((transport) =>
    (['ascii', 'utf8', 'binary'] as const).flatMap((content) => [
      compare(
        `exec cat (${content}, ${transport}) recorded: ≥ 0.6x of unrecorded`,
        recorded(transport, content),
        ['tailcast-recorded', 'tailcast'],
        [{ figure: 'rate', atLeast: 0.6 }],
      ),
      compare(
        `exec cat (${content}, ${transport}) recorded: ≤ 1.5x the gateway’s CPU of unrecorded`,
        recorded(transport, content),
        ['tailcast-recorded', 'tailcast'],
        [{ figure: 'cpu', atMost: 1.5 }],
      ),
      compare(
        `exec cat (${content}, ${transport}) recorded: ≥ 1.5x the reference’s recorded rate`,
        recorded(transport, content),
        ['tailcast-plain-recorded', 'reference-recorded'],
        [{ figure: 'rate', atLeast: 1.5 }],
      ),
    ]),
  ),
  ...TRANSPORTS.map((transport) =>
    compare(
      `100k short TTY lines (${transport}) recorded: ≥ 1.5x the reference’s lines/s`,
      `exec-lines-${transport}`,
      ['tailcast-plain-recorded', 'reference-recorded'],
      [{ figure: 'rate', atLeast: 1.5 }],
    ),
  ),
  ...TRANSPORTS.map((transport) =>
    added(
      `keystroke echo (${transport}): recording adds ≤ 1 ms to the p99`,
      `exec-echo-${transport}`,
      ['tailcast-recorded', 'tailcast'],
      1,
    ),
  ),
  ...([1, 32] as const).map((connections) =>
    compare(
      `real API server, GET of a pod, ${connections === 1 ? '1 connection' : `${connections} connections`}: ≥ ` +
        '0.85x of direct',
      `real-get-${connections}`,
      ['tailcast', 'direct'],
      [{ figure: 'rate', atLeast: 0.85 }],
    ),
  ),
  ...TRANSPORTS.flatMap((transport) => [
    compare(
      `real API server, exec cat (${transport}) unrecorded: ≥ 0.9x of direct`,
      `real-exec-${transport}`,
      ['tailcast', 'direct'],
      [{ figure: 'rate', atLeast: 0.9 }],
    ),
    compare(
      `real API server, exec cat (${transport}) recorded: ≥ 0.7x of direct`,
      `real-exec-${transport}`,
      ['tailcast-recorded', 'direct'],
      [{ figure: 'rate', atLeast: 0.7 }],
    ),
    compare(
      `real API server, exec cat (${transport}) recorded: ≥ 1.5x the reference’s recorded rate`,
      `real-exec-${transport}`,
      ['tailcast-plain-recorded', 'reference-recorded'],
      [{ figure: 'rate', atLeast: 1.5 }],
    ),
  ]),
  compare(
    'echo of 300 shells under load: p99 ≤ Go’s',
    'echo-under-load',
    ['tailcast', 'go'],
    [{ figure: 'p99Ms', atMost: 1 }],
  ),
  fact('idle gateway: at most 120 MB of memory', IDLE_MEMORY, 120),
  added('200 idle clusters: at most 60 MB', 'clusters-idle', ['tailcast-clusters', 'tailcast-cluster'], 60, [
    'restMb',
    'MB',
  ]),
];
