/** Cases with several kinds of load at the same time, and cases that measure a process before and after load. */
import { setTimeout as delay } from 'node:timers/promises';
import { KEYS, STARTS, type BenchCase, type Scale } from '../harness/case.ts';
import type { LoadPlan } from '../programs/plan.ts';

const LOAD_TIMEOUT_MS = 90_000;
/** Maximum duration of the background load. The load is stopped earlier, at the end of the measurement. */
const UNTIL_STOPPED_MS = 80_000;

/**
 * Constant load of about half the capacity of one process. A higher load is not needed, because the result is the
 * latency of keystrokes, not the throughput. Each LIST response is read at 10 MB/s, in twenty pieces per second. After
 * each POST, the connection pauses.
 */
const beside = ({ quick }: Scale): LoadPlan => ({
  kind: 'together',
  plans: [
    {
      kind: 'requests',
      protocol: 'h1',
      answer: 'list-chunked',
      connections: 8,
      bytesPerSecond: 10e6,
      durationMs: UNTIL_STOPPED_MS,
    },
    {
      kind: 'requests',
      protocol: 'h1',
      answer: 'post',
      connections: 8,
      pauseMs: 200,
      durationMs: UNTIL_STOPPED_MS,
    },
    { kind: 'watches', watches: quick ? 200 : 1000, durationMs: UNTIL_STOPPED_MS },
  ],
});

const echoUnderLoad: BenchCase = {
  name: 'echo-under-load',
  title: 'echo of keystrokes in 300 shells while 8 LISTs of 50 MB, 8 POSTs of 1 MB and 1,000 watches run',
  unit: KEYS,
  constantLoad: true,
  onlyFull: true,
  peers: ['direct', 'tailcast', 'tailcast-recorded', 'go'],
  rounds: ({ quick }) => (quick ? 2 : 5),
  async run(peer, bench, scale, onSteady) {
    const steady = Promise.withResolvers<void>();
    const load = bench.beside.run(peer.target, beside(scale), LOAD_TIMEOUT_MS, steady.resolve);
    const over = load.then((): never => {
      throw new Error('the load beside it has ended');
    });
    over.catch(() => {});
    try {
      await Promise.race([steady.promise, over]);
      const keys: LoadPlan = {
        kind: 'exec',
        transport: 'websocket',
        work: { kind: 'echoes', sessions: 300, everyMs: 500, durationMs: scale.quick ? 2000 : 5000 },
      };
      return await Promise.race([bench.load.run(peer.target, keys, LOAD_TIMEOUT_MS, onSteady), over]);
    } finally {
      bench.beside.stop();
    }
  },
};

const coldStart: BenchCase = {
  name: 'cold-start',
  title: 'from the start of the process to its first answer (GET of 2 KB)',
  unit: STARTS,
  constantLoad: true,
  onlyFull: true,
  fresh: true,
  sinceStart: true,
  peers: ['tailcast', 'go'],
  async run(peer, bench) {
    const plan: LoadPlan = {
      kind: 'requests',
      protocol: 'h1',
      answer: 'small',
      connections: 1,
      durationMs: 0,
    };
    const { loadCpuSeconds } = await bench.load.run(peer.target, plan, LOAD_TIMEOUT_MS);
    const ms = performance.now() - (peer.startedAtMs ?? Number.NaN);
    return { units: 1, seconds: ms / 1000, p50Ms: ms, loadCpuSeconds };
  },
};

const REST_MS = 20_000;
const clustersIdle: BenchCase = {
  name: 'clusters-idle',
  title: 'memory of idle clusters, one and 200, 20 s after the start',
  unit: STARTS,
  constantLoad: true,
  onlyFull: true,
  fresh: true,
  atRest: true,
  rounds: () => 3,
  peers: ['tailcast-cluster', 'tailcast-clusters'],
  // the delay lets the gateway check the health of each cluster before the measurement
  async run(_peer, _bench, _scale, onSteady) {
    await delay(REST_MS);
    onSteady();
    return { units: 1, seconds: REST_MS / 1000, loadCpuSeconds: 0 };
  },
};

const memoryAfter: BenchCase = {
  name: 'memory-after',
  title:
    'memory 20 s after load has gone (1,000 watches, 128 connections with GETs, 8 LISTs of 50 MB, 8 POSTs, 64 MB of exec output)',
  unit: STARTS,
  constantLoad: true,
  onlyFull: true,
  fresh: true,
  atRest: true,
  rounds: ({ quick }) => (quick ? 1 : 3),
  peers: ['tailcast', 'tailcast-recorded', 'go'],
  async run(peer, bench, { quick }, onSteady) {
    const durationMs = quick ? 1000 : 3000;
    const requests = { kind: 'requests', protocol: 'h1', durationMs } as const;
    const plan: LoadPlan = {
      kind: 'together',
      plans: [
        { kind: 'watches', watches: 1000, durationMs },
        { ...requests, answer: 'small', connections: 128 },
        { ...requests, answer: 'list-chunked', connections: 8 },
        { ...requests, answer: 'post', connections: 8 },
        {
          kind: 'exec',
          transport: 'websocket',
          work: { kind: 'cat', content: 'ascii', bytes: 64 * 2 ** 20 },
        },
      ],
    };
    const result = await bench.load.run(peer.target, plan, LOAD_TIMEOUT_MS);
    await delay(REST_MS);
    onSteady();
    return { ...result, units: 1 };
  },
};

export const UNDER_LOAD_CASES: readonly BenchCase[] = [echoUnderLoad, coldStart, memoryAfter, clustersIdle];
