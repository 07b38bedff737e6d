/** Cases of plain requests. */
import { CONNECTIONS, EVENTS, MEGABYTES, REQUESTS, type BenchCase, type Scale } from '../harness/case.ts';
import type { Answer } from '../programs/plan.ts';

const ms = ({ quick }: Scale, full = 800): number => (quick ? 500 : full);
/**
 * Time from the start of the load to the start of the measurement, in milliseconds. All connections are in use after
 * this time.
 */
const RAMP_MS = 200;

const smallGets = ([1, 32, 256] as const).map((connections): BenchCase => ({
  name: `get-${connections}`,
  title: `GET of 2 KB, ${connections} connection${connections === 1 ? '' : 's'}, HTTP/1.1`,
  unit: REQUESTS,
  onlyFull: connections !== 32,
  peers: [
    'direct',
    ...(connections === 32 ? (['tls-hop'] as const) : []),
    'tailcast',
    'go',
    'go-default',
    'reference',
  ],
  plan: (scale) => ({
    kind: 'requests',
    protocol: 'h1',
    answer: 'small',
    connections,
    rampMs: RAMP_MS,
    durationMs: scale.quick ? 800 : connections === 32 ? 2000 : 700,
  }),
}));

/**
 * Measures the cost of selecting a cluster: without the setting `clusters`, with one cluster, and with 200 clusters.
 */
const clusterGets: BenchCase = {
  name: 'get-clusters',
  title: 'GET of 2 KB, 32 connections, with one and with 200 clusters',
  unit: REQUESTS,
  onlyFull: true,
  peers: ['tailcast', 'tailcast-cluster', 'tailcast-clusters'],
  plan: (scale) => ({
    kind: 'requests',
    protocol: 'h1',
    answer: 'small',
    connections: 32,
    rampMs: RAMP_MS,
    durationMs: scale.quick ? 800 : 2000,
  }),
};

const http2Gets = ([1, 8] as const).map((connections): BenchCase => ({
  name: `h2-${connections}x32`,
  title: `GET of 2 KB, HTTP/2, ${connections} connection${connections === 1 ? '' : 's'} with 32 streams`,
  unit: REQUESTS,
  onlyFull: connections === 1,
  peers: ['direct', 'tailcast', 'go', 'go-h2'],
  plan: () => ({
    kind: 'requests',
    protocol: 'h2',
    answer: 'small',
    connections,
    streams: 32,
    rampMs: RAMP_MS,
    durationMs: 800,
  }),
}));

const FRAMINGS = { chunked: 'in chunks', length: 'with its length' } as const;
const lists = (['chunked', 'length'] as const).map((framing): BenchCase => ({
  name: `list-${framing}`,
  title: `LIST of 50 MB, ${FRAMINGS[framing]}`,
  unit: MEGABYTES,
  onlyFull: framing !== 'chunked',
  peers: ['direct', 'tailcast', 'go', 'reference'],
  plan: (scale) => ({
    kind: 'requests',
    protocol: 'h1',
    answer: `list-${framing}` satisfies Answer,
    connections: 1,
    durationMs: ms(scale),
  }),
}));

const posts: BenchCase = {
  name: 'post',
  title: 'POST of 1 MB, 4 connections',
  unit: MEGABYTES,
  peers: ['direct', 'tailcast', 'go'],
  plan: (scale) => ({
    kind: 'requests',
    protocol: 'h1',
    answer: 'post',
    connections: 4,
    durationMs: ms(scale),
  }),
};

const handshakes: BenchCase = {
  name: 'handshakes',
  title: 'TLS handshake and 3 GETs, 8 at a time',
  unit: CONNECTIONS,
  peers: ['direct', 'tailcast', 'go'],
  plan: (scale) => ({ kind: 'handshakes', parallel: 8, durationMs: ms(scale, 1500) }),
};

const watchCount = ({ quick }: Scale): number => (quick ? 500 : 5000);
const watches: BenchCase = {
  name: 'watches',
  title: 'Watches with one event of 500 bytes per second each',
  unit: EVENTS,
  onlyFull: true,
  peers: ['direct', 'tailcast', 'go'],
  rounds: () => 1,
  fresh: true,
  constantLoad: true,
  memoryPer: (scale) => ({ count: watchCount(scale), what: 'watch' }),
  plan: (scale) => ({ kind: 'watches', watches: watchCount(scale), durationMs: scale.quick ? 2000 : 5000 }),
};

/** LIST cases run first, because there is a goal for their memory, and a process does not free all memory of a case. */
export const HTTP_CASES: readonly BenchCase[] = [
  ...lists,
  ...smallGets,
  clusterGets,
  ...http2Gets,
  posts,
  handshakes,
  watches,
];
