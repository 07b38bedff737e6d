/** Runs one case: every peer in every round, so that what the machine does meanwhile hits all of them. */
import { readdirSync, rmSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import type { Peer, PeerName } from '../peers/peer.ts';
import type { LoadResult } from '../programs/plan.ts';
import type { Bench } from './bench.ts';
import type { BenchCase, Scale } from './case.ts';
import type { CaseResult, Row } from './results.ts';
import { spreadOf } from './statistics.ts';
import { resetPeak, usageOf } from './usage.ts';

interface Sample {
  readonly rate: number;
  readonly cpu: number | undefined;
  readonly p50Ms: number | undefined;
  readonly p99Ms: number | undefined;
  readonly peakRssMb: number | undefined;
  readonly memoryKb: number | undefined;
  readonly loadCpu: number;
}

/** How long one load may take. A peer that is slower, or does not go on, is not measured. */
const LOAD_TIMEOUT_MS = 90_000;
const REFERENCE_TIMEOUT_MS = 8_000;
/** A peer that failed so often in a row is left alone for the rest of the case. */
const MAX_FAILURES = 2;

/** @throws Error when a load on tailcast, or on nothing at all, goes wrong: then the figures mean nothing */
export async function measureCase(
  benchmark: BenchCase,
  started: ReadonlyMap<PeerName, Peer>,
  bench: Bench,
  scale: Scale,
  rounds: number,
): Promise<{ readonly result: CaseResult; readonly replaced: ReadonlyMap<PeerName, Peer> }> {
  const peers = new Map(started);
  const samples = new Map<PeerName, Sample[]>();
  const failures = new Map<PeerName, string[]>();
  const attempt = async (name: PeerName, peer: Peer): Promise<Sample | undefined> => {
    try {
      return await measureOnce(benchmark, peer, bench, scale);
    } catch (error) {
      const reason = error instanceof Error ? error.message : String(error);
      if (name === 'direct' || name.startsWith('tailcast'))
        throw new Error(`${benchmark.name} on ${name}: ${reason}`, { cause: error });
      bench.say(`  ${name}: ${reason}`);
      failures.set(name, [...(failures.get(name) ?? []), reason]);
      return undefined;
    }
  };
  // the first round warms up and does not count: compilers of two languages would be what is measured
  const first = benchmark.fresh === true || benchmark.constantLoad === true ? 0 : -1;
  for (let round = first; round < rounds; round += 1) {
    for (const [name, peer] of peers) {
      const patience = name.startsWith('reference') ? 1 : MAX_FAILURES;
      if ((failures.get(name) ?? []).length >= patience) continue;
      const fresh = benchmark.fresh === true && peer.restart !== undefined ? await peer.restart() : peer;
      peers.set(name, fresh);
      const sample = await attempt(name, fresh);
      if (sample !== undefined && round >= 0) samples.set(name, [...(samples.get(name) ?? []), sample]);
    }
    await dropRecordings(bench, peers);
  }
  const result: CaseResult = {
    name: benchmark.name,
    title: benchmark.title,
    unit: benchmark.unit,
    rounds,
    constantLoad: benchmark.constantLoad === true,
    ...(benchmark.memoryPer === undefined ? {} : { memoryOf: benchmark.memoryPer(scale).what }),
    rows: [...peers.keys()].flatMap((name) => {
      const row = summarize(name, samples.get(name) ?? [], failures.get(name)?.at(-1));
      return row === undefined ? [] : [row];
    }),
  };
  return { result, replaced: peers };
}

async function measureOnce(benchmark: BenchCase, peer: Peer, bench: Bench, scale: Scale): Promise<Sample> {
  const pids = peer.pids();
  resetPeak(pids);
  const before = usageOf(pids);
  let steadyBytes: number | undefined;
  let steadyCpu = before?.cpuSeconds;
  const onSteady = (): void => {
    const now = usageOf(pids);
    steadyBytes = now?.rssBytes;
    steadyCpu = now?.cpuSeconds;
  };
  const stored = await recordedBytes(benchmark, peer, bench);
  const load = await runLoad(benchmark, peer, bench, scale, onSteady);
  const owed = load.units * (benchmark.recordedBytesPerUnit ?? 0) * (1 - STILL_ON_THE_WAY);
  if (stored !== undefined && ((await recordedBytes(benchmark, peer, bench)) ?? 0) - stored < owed)
    throw new Error('its sessions are not what the recorder has');
  const after = usageOf(pids);
  const units = load.units / benchmark.unit.size;
  const cpuSeconds =
    after === undefined || steadyCpu === undefined ? undefined : after.cpuSeconds - steadyCpu;
  const per = benchmark.memoryPer?.(scale).count;
  return {
    rate: units / load.seconds,
    cpu: cpuSeconds === undefined ? undefined : cpuSeconds / benchmark.unit.cpuSeconds / units,
    p50Ms: load.p50Ms,
    p99Ms: load.p99Ms,
    peakRssMb: after === undefined ? undefined : after.peakRssBytes / 2 ** 20,
    memoryKb: steadyBytes === undefined || per === undefined ? undefined : steadyBytes / 1024 / per,
    loadCpu: load.loadCpuSeconds / load.seconds,
  };
}

/** Of a session that has just ended, this share may not have reached the disk. */
const STILL_ON_THE_WAY = 0.1;
const LOOK_MS = 150;
const MAX_LOOKS = 60;

/** Bytes on the recorder's disk, where they are to be looked at. */
async function recordedBytes(benchmark: BenchCase, peer: Peer, bench: Bench): Promise<number | undefined> {
  if (benchmark.recordedBytesPerUnit === undefined || !peer.name.endsWith('-recorded')) return undefined;
  const { folder } = await bench.recorder();
  // what the session before this one left behind may still be moved to its place
  let last = -1;
  for (let look = 0; look < MAX_LOOKS; look += 1) {
    const bytes = sizeOf(folder);
    if (bytes === last) return bytes;
    last = bytes;
    await delay(LOOK_MS);
  }
  throw new Error('the recorder does not come to rest');
}

function sizeOf(folder: string): number {
  let bytes = 0;
  for (const entry of readdirSync(folder, { recursive: true, encoding: 'utf8' })) {
    bytes += statSync(join(folder, entry), { throwIfNoEntry: false })?.size ?? 0;
  }
  return bytes;
}

function runLoad(
  benchmark: BenchCase,
  peer: Peer,
  bench: Bench,
  scale: Scale,
  onSteady: () => void,
): Promise<LoadResult> {
  if (benchmark.plan !== undefined)
    return bench.load.run(
      peer.target,
      benchmark.plan(scale),
      peer.name.startsWith('reference') ? REFERENCE_TIMEOUT_MS : LOAD_TIMEOUT_MS,
      onSteady,
    );
  if (benchmark.run !== undefined) return benchmark.run(peer, bench, scale);
  throw new Error(`${benchmark.name} has no load`);
}

function summarize(peer: PeerName, samples: readonly Sample[], failure: string | undefined): Row | undefined {
  const over = (pick: (sample: Sample) => number | undefined): ReturnType<typeof spreadOf> =>
    spreadOf(samples.map(pick));
  const rate = over((sample) => sample.rate);
  const loadCpu = over((sample) => sample.loadCpu);
  if (rate === undefined || loadCpu === undefined) return undefined;
  const optional = {
    cpu: over((sample) => sample.cpu),
    p50Ms: over((sample) => sample.p50Ms),
    p99Ms: over((sample) => sample.p99Ms),
    peakRssMb: over((sample) => sample.peakRssMb),
    memoryKb: over((sample) => sample.memoryKb),
    failed: failure,
  };
  const present = Object.entries(optional).filter(([, value]) => value !== undefined);
  return { peer, rate, loadCpu, ...(Object.fromEntries(present) as Partial<Row>) };
}

/** Recordings would fill the disk; what is finished and lies there is not looked at again. */
async function dropRecordings(bench: Bench, peers: ReadonlyMap<PeerName, Peer>): Promise<void> {
  if (![...peers.keys()].some((name) => name.endsWith('-recorded'))) return;
  const { folder } = await bench.recorder();
  for (const entry of readdirSync(folder, { recursive: true, encoding: 'utf8' })) {
    if (entry.endsWith('.cast')) rmSync(join(folder, entry), { force: true });
  }
}
