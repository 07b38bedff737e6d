/**
 * Cases with a real API server and a real Kubernetes node. Both are slower than the upstream server of the benchmark.
 */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Bench } from '../harness/bench.ts';
import { MEGABYTES, REQUESTS, type BenchCase, type Scale } from '../harness/case.ts';
import { clusterOf, peerInCluster } from '../peers/cluster.ts';
import { BLOCK_BYTES, createBlock } from '../programs/content.ts';
import type { LoadPlan, LoadResult, Transport } from '../programs/plan.ts';

const LOAD_TIMEOUT_MS = 60_000;
const RAMP_MS = 300;
const POD = '/api/v1/namespaces/default/pods/shell';

/** A case whose plan depends on values of the cluster, such as addresses. */
function realCase(
  benchmark: Omit<BenchCase, 'start' | 'run' | 'plan' | 'onlyFull'>,
  planOf: (bench: Bench, scale: Scale) => Promise<LoadPlan>,
): BenchCase {
  return {
    ...benchmark,
    onlyFull: true,
    start: peerInCluster,
    async run(peer, bench, scale, onSteady): Promise<LoadResult> {
      const plan = await planOf(bench, scale);
      return bench.load.run(peer.target, plan, LOAD_TIMEOUT_MS, onSteady);
    },
  };
}

/** Calls `make` once per run, and then reuses its result. */
function onceOf<T>(make: (bench: Bench) => Promise<T>): (bench: Bench) => Promise<T> {
  const made = new WeakMap<Bench, Promise<T>>();
  return (bench) => {
    const value = made.get(bench) ?? make(bench);
    made.set(bench, value);
    return value;
  };
}

const podAnswer = onceOf(async (bench) => (await clusterOf(bench)).answerTo(POD));

const gets = ([1, 32] as const).map((connections) =>
  realCase(
    {
      name: `real-get-${connections}`,
      title: `real API server: GET of a pod, ${connections} connection${connections === 1 ? '' : 's'}`,
      unit: REQUESTS,
      peers: ['direct', 'tls-hop', 'tailcast', 'go', 'reference'],
    },
    async (bench, { quick }) => ({
      kind: 'requests',
      protocol: 'h1',
      answer: { path: POD, body: await podAnswer(bench) },
      connections,
      rampMs: RAMP_MS,
      durationMs: quick ? 1000 : 2500,
    }),
  ),
);

const STREAMS = { connections: 4, streams: 16 };
const http2Gets = realCase(
  {
    name: 'real-get-h2',
    title: `real API server: GET of a pod, HTTP/2, ${STREAMS.connections} connections with ${STREAMS.streams} streams`,
    unit: REQUESTS,
    peers: ['direct', 'tailcast', 'go'],
  },
  async (bench, { quick }) => ({
    kind: 'requests',
    protocol: 'h2',
    answer: { path: POD, body: await podAnswer(bench) },
    ...STREAMS,
    rampMs: RAMP_MS,
    durationMs: quick ? 1000 : 2500,
  }),
);

const LOG_BLOCKS = 96;
/** A file on the node, which the sessions print with `cat`. */
const logFile = onceOf((bench) => {
  const file = join(bench.rig.folder, 'log.txt');
  const block = createBlock('ascii');
  writeFileSync(file, Buffer.concat(Array.from({ length: LOG_BLOCKS }, () => block)));
  return Promise.resolve(file);
});

const NAMES = { spdy: 'SPDY', websocket: 'WebSocket' } as const;
const execs = (['spdy', 'websocket'] as const satisfies readonly Transport[]).map((transport) =>
  realCase(
    {
      name: `real-exec-${transport}`,
      title: `real API server: exec, cat of ${LOG_BLOCKS} MB of text, ${NAMES[transport]}`,
      unit: MEGABYTES,
      recordedBytesPerUnit: 1,
      peers: [
        'direct',
        'tls-hop',
        'tailcast',
        'tailcast-recorded',
        'tailcast-plain-recorded',
        'go',
        'reference',
        'reference-recorded',
      ],
    },
    async (bench) => ({
      kind: 'exec',
      transport,
      work: { kind: 'cat', content: 'ascii', bytes: LOG_BLOCKS * BLOCK_BYTES, file: await logFile(bench) },
    }),
  ),
);

export const REAL_CASES: readonly BenchCase[] = [...gets, http2Gets, ...execs];
