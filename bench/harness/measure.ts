/** Runs one case with every proxy in every round, so that disturbances of the machine affect all of them. */
import { existsSync, readdirSync, rmSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import type { Peer, PeerName } from '../peers/peer.ts';
import type { LoadPlan, LoadResult } from '../programs/plan.ts';
import type { Bench } from './bench.ts';
import type { BenchCase, Scale } from './case.ts';
import { startMeter, type Metered } from './meter.ts';
import { COMPARED, type CaseResult, type Row } from './results.ts';
import { spreadOf } from './statistics.ts';
import { warmUp, WARM_TURN_MS } from './warm.ts';

interface Sample {
  readonly rate: number;
  readonly cpu: number | undefined;
  readonly recorderCpu: number | undefined;
  readonly p50Ms: number | undefined;
  readonly p90Ms: number | undefined;
  readonly p99Ms: number | undefined;
  readonly peakRssMb: number | undefined;
  readonly memoryKb: number | undefined;
  readonly memoryAddedKb: number | undefined;
  readonly restMb: number | undefined;
  readonly restAddedMb: number | undefined;
  readonly loadCpu: number;
}

/** Maximum duration of one load. A peer that needs longer is not measured. */
const LOAD_TIMEOUT_MS = 90_000;
const REFERENCE_TIMEOUT_MS = 8_000;
/** Number of consecutive failures after which a peer is skipped for the rest of the case. */
const MAX_FAILURES = 2;

/** @throws Error if a load on tailcast or on the direct connection fails, because the results are then invalid */
export async function measureCase(
  benchmark: BenchCase,
  started: ReadonlyMap<PeerName, Peer>,
  bench: Bench,
  scale: Scale,
  rounds: number,
): Promise<{ readonly result: CaseResult; readonly replaced: ReadonlyMap<PeerName, Peer> }> {
  const peers = new Map(started);
  const samples = new Map<PeerName, (Sample | undefined)[]>();
  const failures = new Map<PeerName, string[]>();
  const attempt = async (name: PeerName, peer: Peer, counts: boolean): Promise<Sample | undefined> => {
    try {
      return await measureOnce(benchmark, peer, bench, scale, counts ? undefined : warmUpPlan);
    } catch (error) {
      const reason = error instanceof Error ? error.message : String(error);
      if (isOurs(name)) throw new Error(`${benchmark.name} on ${name}: ${reason}`, { cause: error });
      bench.say(`  ${name}: ${reason}`);
      failures.set(name, [...(failures.get(name) ?? []), reason]);
      return undefined;
    }
  };
  // the first round is a warm-up for the JIT compilers and does not count
  const first = benchmark.fresh === true || benchmark.constantLoad === true ? 0 : -1;
  for (let round = first; round < rounds; round += 1) {
    // alternate the order, so that a peer does not always follow the same other peer
    for (const [name, peer] of round % 2 === 0 ? [...peers] : [...peers].toReversed()) {
      // the peer `reference` gets only one attempt: with the benchmark's own upstream server, it would fail again
      const patience = name.startsWith('reference') && benchmark.run === undefined ? 1 : MAX_FAILURES;
      if ((failures.get(name) ?? []).length >= patience) continue;
      const fresh = benchmark.fresh === true ? await startedAnew(peer) : peer;
      peers.set(name, fresh);
      if (round >= 0) samples.set(name, [...(samples.get(name) ?? []), await attempt(name, fresh, true)]);
      else {
        await warmPeer(benchmark, fresh, bench, scale, rounds, async () => {
          const sample = await attempt(name, fresh, false);
          dropRecordings(peers);
          return sample;
        });
      }
    }
    dropRecordings(peers);
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

/**
 * Warms up a peer. For tailcast and the direct connection, the load is repeated until the rate is stable. The load runs
 * only once for other peers, and in cases that measure memory or have a single round. A quick run has one turn.
 */
async function warmPeer(
  benchmark: BenchCase,
  peer: Peer,
  bench: Bench,
  scale: Scale,
  rounds: number,
  load: () => Promise<Sample | undefined>,
): Promise<void> {
  if (!isOurs(peer.name) || benchmark.memoryPer !== undefined || benchmark.atRest === true || rounds === 1) {
    await load();
    return;
  }
  const { seconds, gain, settled } = await warmUp(
    async () => (await load())?.rate,
    scale.quick ? 1 : undefined,
  );
  if (scale.quick) return;
  const end = settled ? 'more brings nothing' : 'it is measured as it is';
  bench.say(
    `  ${peer.name}: warm after ${seconds.toFixed(0)} s, ${gain.toFixed(2)}x of its first seconds; ${end}`,
  );
}

async function startedAnew(peer: Peer): Promise<Peer> {
  if (peer.restart === undefined) return peer;
  let startedAtMs = Number.NaN;
  const anew = await peer.restart(() => (startedAtMs = performance.now()));
  return { ...anew, startedAtMs };
}

/** Duration of the warm-up load in a quick run for other peers than tailcast, in milliseconds. */
const WARM_COMPILED_MS = 200;

/**
 * Returns the load for the warm-up, whose results are not used. Returns undefined if the case creates its own load.
 */
function warmUpPlan(benchmark: BenchCase, peer: Peer, scale: Scale): LoadPlan | undefined {
  const jit = isOurs(peer.name);
  const plan = benchmark.plan?.({ quick: scale.quick && !jit });
  if (plan === undefined || (plan.kind !== 'requests' && plan.kind !== 'handshakes')) return plan;
  if (jit) return { ...plan, durationMs: WARM_TURN_MS };
  return scale.quick ? { ...plan, durationMs: WARM_COMPILED_MS } : plan;
}

async function measureOnce(
  benchmark: BenchCase,
  peer: Peer,
  bench: Bench,
  scale: Scale,
  planOf: typeof warmUpPlan = ({ plan }) => plan?.(scale),
): Promise<Sample> {
  const meter = startMeter(peer.pids(), benchmark.sinceStart);
  const recorderMeter = peer.recorder && startMeter([peer.recorder.pid]);
  const recordings = isLookedAt(benchmark, peer) ? peer.recorder?.folder : undefined;
  const stored = recordings === undefined ? 0 : await restOf(recordings);
  const load = await runLoad(benchmark, peer, bench, scale, planOf(benchmark, peer, scale), meter.steady);
  const owed = load.units * (benchmark.recordedBytesPerUnit ?? 0) * (1 - STILL_ON_THE_WAY);
  if (recordings !== undefined) await atLeast(recordings, stored + owed);
  const used = meter.stop();
  // wait for the recorder, because its remaining work would slow down the next proxy
  if (recordings !== undefined) await restOf(recordings);
  const recorderUsed = recorderMeter?.stop();
  const recorderCpu =
    benchmark.atRest === true ? undefined : recorderUsed && cpuPerUnit(recorderUsed, load, benchmark);
  return { ...speedOf(load, benchmark), ...usageIn(load, benchmark, scale, used), recorderCpu };
}

function isOurs(name: PeerName): boolean {
  return name === 'direct' || name.startsWith('tailcast') || name.startsWith('before');
}

type Usage = Pick<Sample, 'cpu' | 'peakRssMb' | 'memoryKb' | 'memoryAddedKb' | 'restMb' | 'restAddedMb'>;

function speedOf(load: LoadResult, { unit }: BenchCase): Omit<Sample, keyof Usage | 'recorderCpu'> {
  return {
    rate: load.units / unit.size / load.seconds,
    p50Ms: load.p50Ms,
    p90Ms: load.p90Ms,
    p99Ms: load.p99Ms,
    loadCpu: load.loadCpuSeconds / load.seconds,
  };
}

function cpuPerUnit({ cpuSeconds }: Metered, { units }: LoadResult, { unit }: BenchCase): number {
  return cpuSeconds / unit.cpuSeconds / (units / unit.size);
}

function usageIn(load: LoadResult, benchmark: BenchCase, scale: Scale, used: Metered | undefined): Usage {
  const count = benchmark.memoryPer?.(scale).count;
  const kbPerPiece = (bytes: number | undefined): number | undefined =>
    bytes === undefined || count === undefined ? undefined : bytes / 1024 / count;
  const atRest = (bytes: number | undefined): number | undefined =>
    bytes === undefined || benchmark.atRest !== true ? undefined : bytes / 2 ** 20;
  return {
    // CPU time per unit is undefined while the peer is idle
    cpu: benchmark.atRest === true ? undefined : used && cpuPerUnit(used, load, benchmark),
    peakRssMb: used && used.peakRssBytes / 2 ** 20,
    // in a quick run the base memory of the process dominates the result
    memoryKb: scale.quick ? undefined : kbPerPiece(used?.steadyRssBytes),
    memoryAddedKb: kbPerPiece(used?.addedRssBytes),
    restMb: atRest(used?.steadyRssBytes),
    restAddedMb: atRest(used?.addedRssBytes),
  };
}

/** Maximum share of a finished session's output that may be missing on the disk. */
const STILL_ON_THE_WAY = 0.1;
const LOOK_MS = 50;
const MAX_LOOKS = 180;
/** Spool directory of the recorder. */
const spoolOf = (folder: string): string => `${folder}.spool`;

/** True if the benchmark checks that the recorder has received the output that the peer forwarded. */
function isLookedAt(benchmark: BenchCase, peer: Peer): boolean {
  return benchmark.recordedBytesPerUnit !== undefined && peer.recorder !== undefined;
}

/** Returns the number of bytes on the recorder's disk, after the recorder has stored the session. */
async function restOf(folder: string): Promise<number> {
  let last = -1;
  for (let look = 0; look < MAX_LOOKS; look += 1) {
    const bytes = sizeOf(folder) + sizeOf(spoolOf(folder));
    const spool = existsSync(spoolOf(folder)) ? spoolOf(folder) : join(folder, '.spool');
    const open = readdirSync(spool).some((entry) => entry.endsWith('.cast'));
    if (bytes === last && !open) return bytes;
    last = bytes;
    await delay(LOOK_MS);
  }
  // a session is still open: the recorder keeps an interrupted session open for a while, because the session may
  // continue
  return last;
}

/** Waits until the recorder's disk contains at least `bytes` bytes. @throws Error after a few seconds */
async function atLeast(folder: string, bytes: number): Promise<void> {
  for (let look = 0; look < MAX_LOOKS; look += 1) {
    if (sizeOf(folder) + sizeOf(spoolOf(folder)) >= bytes) return;
    await delay(LOOK_MS);
  }
  throw new Error('its sessions are not what the recorder has');
}

function sizeOf(folder: string): number {
  // recorders of older checkouts keep the spool in the store
  if (!existsSync(folder)) return 0;
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
  plan: LoadPlan | undefined,
  onSteady: () => void,
): Promise<LoadResult> {
  if (plan !== undefined)
    return bench.load.run(
      peer.target,
      plan,
      peer.name.startsWith('reference') ? REFERENCE_TIMEOUT_MS : LOAD_TIMEOUT_MS,
      onSteady,
    );
  if (benchmark.run !== undefined) return benchmark.run(peer, bench, scale, onSteady);
  throw new Error(`${benchmark.name} has no load`);
}

function summarize(
  peer: PeerName,
  rounds: readonly (Sample | undefined)[],
  failure: string | undefined,
): Row | undefined {
  const samples = rounds.filter((sample) => sample !== undefined);
  const over = (pick: (sample: Sample) => number | undefined): ReturnType<typeof spreadOf> =>
    spreadOf(samples.map(pick));
  const rate = over((sample) => sample.rate);
  const loadCpu = over((sample) => sample.loadCpu);
  if (rate === undefined || loadCpu === undefined) return undefined;
  const optional = {
    cpu: over((sample) => sample.cpu),
    recorderCpu: over((sample) => sample.recorderCpu),
    p50Ms: over((sample) => sample.p50Ms),
    p90Ms: over((sample) => sample.p90Ms),
    p99Ms: over((sample) => sample.p99Ms),
    peakRssMb: over((sample) => sample.peakRssMb),
    memoryKb: over((sample) => sample.memoryKb),
    restMb: over((sample) => sample.restMb),
    restAddedMb: over((sample) => sample.restAddedMb),
    memoryAddedKb: over((sample) => sample.memoryAddedKb),
    failed: failure,
  };
  const present = Object.entries(optional).filter(([, value]) => value !== undefined);
  return { peer, rate, loadCpu, ...(Object.fromEntries(present) as Partial<Row>), rounds: roundsOf(rounds) };
}

/** Returns the values of each round, for comparison with the same rounds of another peer. Failed rounds are null. */
function roundsOf(samples: readonly (Sample | undefined)[]): NonNullable<Row['rounds']> {
  const series = COMPARED.map(
    (figure) => [figure, samples.map((sample) => sample?.[figure] ?? null)] as const,
  );
  return Object.fromEntries(series.filter(([, values]) => values.some((value) => value !== null)));
}

/** Removes finished recordings, because they would fill the disk. */
function dropRecordings(peers: ReadonlyMap<PeerName, Peer>): void {
  const folders = new Set([...peers.values()].flatMap(({ recorder }) => recorder?.folder ?? []));
  for (const folder of folders) {
    for (const entry of readdirSync(folder, { recursive: true, encoding: 'utf8' })) {
      if (entry.endsWith('.cast')) rmSync(join(folder, entry), { force: true });
    }
  }
}
