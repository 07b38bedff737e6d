/**
 * Compares the gateway with a direct connection and with Go's reverse proxy, as ratios within one interleaved run.
 *
 *   npm run bench [-- small-get bulk-list recorder --quick]
 *
 * Every process (upstream, proxies, load) runs by itself on loopback. Figures of a shared machine drift; ratios of
 * medians over interleaved rounds are what counts.
 */
import { rmSync } from 'node:fs';
import { writeCertificates, type CertificateFiles } from './certificates.ts';
import { benchRecorder } from './recorder.ts';
import {
  compile,
  runLoad,
  startGateway,
  startGoProxy,
  startUpstream,
  stopAll,
  usageOf,
  type Peer,
} from './peers.ts';

interface Case {
  readonly path: string;
  readonly connections: number;
  readonly unit: 'requests/s' | 'MB/s';
}

const CASES: Readonly<Record<string, Case>> = {
  'small-get': { path: '/small', connections: 32, unit: 'requests/s' },
  'bulk-list': { path: '/list', connections: 1, unit: 'MB/s' },
};

/** Has nothing to compare with but the disk. */
const RECORDER = 'recorder';

interface Sample {
  readonly rate: number;
  /** Microseconds per request, or milliseconds per MB: the same number by unit. */
  readonly cpuPerUnit: number | undefined;
  readonly p50Ms: number;
  readonly p99Ms: number;
}

const args = process.argv.slice(2);
const quick = args.includes('--quick');
const wanted = args.filter((arg) => !arg.startsWith('--'));
const unknown = [
  ...wanted.filter((name) => CASES[name] === undefined && name !== RECORDER),
  ...args.filter((arg) => arg.startsWith('--') && arg !== '--quick'),
];
if (unknown.length > 0) {
  console.error(
    `unknown: ${unknown.join(' ')}; cases: ${[...Object.keys(CASES), RECORDER].join(' ')}; option: --quick`,
  );
  process.exitCode = 2;
} else {
  const names = wanted.length > 0 ? wanted : [...Object.keys(CASES), RECORDER];
  const proxied = names.filter((name) => name !== RECORDER);
  if (proxied.length > 0) await main(proxied);
  if (names.includes(RECORDER)) await benchRecorder({ quick });
}

async function main(names: readonly string[]): Promise<void> {
  compile();
  const files = await writeCertificates();
  try {
    const upstream = await startUpstream(files);
    const peers = [upstream, await startGateway(files, upstream.port)];
    const go = await startGoProxy(files, upstream.port);
    if (typeof go === 'string') console.log(`go: skipped, ${go}`);
    else peers.push(go);
    for (const name of names) {
      const benchmark = CASES[name];
      if (benchmark !== undefined) report(name, benchmark, peers, await measure(benchmark, peers, files));
    }
  } finally {
    stopAll();
    rmSync(files.directory, { recursive: true, force: true });
  }
}

async function measure(
  benchmark: Case,
  peers: readonly Peer[],
  files: CertificateFiles,
): Promise<ReadonlyMap<Peer, readonly Sample[]>> {
  const rounds = quick ? 3 : 7;
  const durationMs = quick ? 1000 : 3000;
  const samples = new Map<Peer, Sample[]>(peers.map((peer) => [peer, []]));
  for (const peer of peers) await runLoad(peer, files, { ...benchmark, durationMs: durationMs / 2 });
  for (let round = 0; round < rounds; round++) {
    for (const peer of peers) {
      const before = usageOf(peer.pid);
      const load = await runLoad(peer, files, { ...benchmark, durationMs });
      const after = usageOf(peer.pid);
      const units = benchmark.unit === 'MB/s' ? load.bytes / 1e6 : load.requests;
      const cpu =
        before === undefined || after === undefined ? undefined : after.cpuSeconds - before.cpuSeconds;
      samples.get(peer)?.push({
        rate: units / load.seconds,
        cpuPerUnit: cpu === undefined ? undefined : (cpu * (benchmark.unit === 'MB/s' ? 1e3 : 1e6)) / units,
        p50Ms: load.p50Ms,
        p99Ms: load.p99Ms,
      });
    }
  }
  return samples;
}

function report(
  name: string,
  benchmark: Case,
  peers: readonly Peer[],
  samples: ReadonlyMap<Peer, readonly Sample[]>,
): void {
  const middle = (peer: Peer, pick: (sample: Sample) => number | undefined): number =>
    median((samples.get(peer) ?? []).map((sample) => pick(sample) ?? Number.NaN));
  const rate = (peer: Peer): number => middle(peer, (sample) => sample.rate);
  const cpu = (peer: Peer): number => middle(peer, (sample) => sample.cpuPerUnit);
  const go = peers.find((peer) => peer.name === 'go');
  const direct = peers[0];
  console.log(`\n${name}: ${benchmark.connections} connection(s), ${benchmark.path}`);
  const cpuUnit = benchmark.unit === 'MB/s' ? 'ms CPU/MB' : 'us CPU/req';
  console.log(
    row(['', benchmark.unit, 'of direct', 'of go', cpuUnit, 'of go', 'p50 ms', 'p99 ms', 'peak MB']),
  );
  for (const peer of peers) {
    console.log(
      row([
        peer.name,
        rate(peer).toFixed(0),
        direct === undefined ? '' : ratio(rate(peer), rate(direct)),
        go === undefined ? '' : ratio(rate(peer), rate(go)),
        number(cpu(peer), 2),
        go === undefined ? '' : ratio(cpu(peer), cpu(go)),
        number(
          middle(peer, (sample) => sample.p50Ms),
          2,
        ),
        number(
          middle(peer, (sample) => sample.p99Ms),
          2,
        ),
        number(usageOf(peer.pid)?.peakRssMb ?? Number.NaN, 0),
      ]),
    );
  }
}

function row(cells: readonly string[]): string {
  return cells.map((cell, index) => (index === 0 ? cell.padEnd(10) : cell.padStart(11))).join('');
}

function ratio(value: number, base: number): string {
  return Number.isFinite(value / base) ? `${(value / base).toFixed(2)}x` : '';
}

function number(value: number, digits: number): string {
  return Number.isFinite(value) ? value.toFixed(digits) : '';
}

function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)] ?? Number.NaN;
}
