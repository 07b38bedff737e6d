/**
 * Measures a recorder on a directory. Throughput is the rate of durable bytes of 64 sessions at full speed. In each
 * round the recorder is compared with `dd conv=fsync` on the same disk. Latency is the delay of acknowledgements in 300
 * quiet sessions.
 *
 *   node bench/recorder.ts [--quick]
 *
 * Recorder and load are separate processes on the same machine.
 */
import { spawn, execFile } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import type { Fact } from './harness/results.ts';
import type { RecorderLoad, RecorderLoadResult } from './recorder-load.ts';

export const FLOOD_SESSIONS = 64;
export const IDLE_SESSIONS = 300;
const DD_MB = 512;
const SAMPLE_MS = 100;

const here = dirname(fileURLToPath(import.meta.url));
const extension = import.meta.url.endsWith('.ts') ? 'ts' : 'js';

/** Result of one round. */
export interface RecorderSample {
  /** MB per second that become durable: during the flood, and until the last session is stored. */
  readonly durableMbps: number;
  readonly storedMbps: number;
  /** CPU time of the recorder per MB, including the time to store the sessions. */
  readonly cpuMsPerMb: number;
  /**
   * Resident memory of the recorder: median over the second quarter and over the last quarter of the flood, and the
   * maximum.
   */
  readonly earlyRssMb: number;
  readonly lateRssMb: number;
  readonly peakRssMb: number;
  /** Mean rate of `dd conv=fsync` in its two runs, before and after the flood, in MB/s. */
  readonly ddMbps: number;
}

/** Result of 300 quiet sessions. */
export interface IdleSample {
  readonly p50Ms: number;
  readonly p99Ms: number;
  /** CPU time in percent of one core. */
  readonly cpuPercent: number;
  readonly peakRssMb: number;
}

/** Runs the benchmark, prints its table and returns the results. */
export async function benchRecorder({
  rounds,
  floodSeconds: seconds,
  idleSeconds,
}: {
  readonly rounds: number;
  readonly floodSeconds: number;
  readonly idleSeconds: number;
}): Promise<readonly Fact[]> {
  const samples: RecorderSample[] = [];
  for (let round = 0; round < rounds; round += 1) samples.push(await measureFlood(seconds));
  const idle = await measureIdle(idleSeconds);
  const middle = (pick: (sample: RecorderSample) => number): number => median(samples.map(pick));
  const durable = middle(({ durableMbps }) => durableMbps);
  console.log(`\nrecorder: ${FLOOD_SESSIONS} flooding sessions, ${rounds} round(s) of ${seconds} s`);
  console.log(`  durable        ${durable.toFixed(0)} MB/s`);
  console.log(`  of dd fsync    ${middle(({ durableMbps, ddMbps }) => durableMbps / ddMbps).toFixed(2)}x`);
  console.log(`  dd fsync       ${middle(({ ddMbps }) => ddMbps).toFixed(0)} MB/s`);
  console.log(`  stored         ${middle(({ storedMbps }) => storedMbps).toFixed(0)} MB/s`);
  console.log(`  CPU            ${middle(({ cpuMsPerMb }) => cpuMsPerMb).toFixed(2)} ms/MB`);
  console.log(
    `  memory         ${middle(({ earlyRssMb }) => earlyRssMb).toFixed(0)} MB early, ` +
      `${middle(({ lateRssMb }) => lateRssMb).toFixed(0)} MB late, ` +
      `${middle(({ peakRssMb }) => peakRssMb).toFixed(0)} MB at most`,
  );
  console.log(`recorder: ${IDLE_SESSIONS} sessions, a line a second each`);
  console.log(`  ack            p50 ${idle.p50Ms.toFixed(1)} ms, p99 ${idle.p99Ms.toFixed(1)} ms`);
  console.log(`  CPU            ${idle.cpuPercent.toFixed(0)} % of a core`);
  console.log(`  memory         ${idle.peakRssMb.toFixed(0)} MB at most`);
  return [
    { name: `recorder, ${FLOOD_SESSIONS} flooding sessions: durable`, value: durable, unit: 'MB/s' },
    { name: 'the same disk, dd with one fsync', value: middle(({ ddMbps }) => ddMbps), unit: 'MB/s' },
    { name: 'recorder: CPU', value: middle(({ cpuMsPerMb }) => cpuMsPerMb), unit: 'ms/MB' },
    { name: 'recorder: memory at most', value: middle(({ peakRssMb }) => peakRssMb), unit: 'MB' },
    {
      name: `recorder, ${IDLE_SESSIONS} quiet sessions: p99 of an acknowledgement`,
      value: idle.p99Ms,
      unit: 'ms',
    },
  ];
}

/** Runs one round of floods between two runs of `dd`. */
async function measureFlood(seconds: number): Promise<RecorderSample> {
  return inFolder(async (folder) => {
    const ddBefore = await dd(folder);
    await using recorder = await startRecorder(folder);
    const before = cpuSeconds(recorder.pid);
    const memory = watchMemory(recorder.pid);
    const load = await runLoad({ url: recorder.url, mode: 'flood', sessions: FLOOD_SESSIONS, seconds });
    const rss = memory.stop();
    const cpu = cpuSeconds(recorder.pid) - before;
    const ddAfter = await dd(folder);
    const flooding = rss.slice(0, Math.ceil((seconds * 1000) / SAMPLE_MS));
    const quarter = Math.ceil(flooding.length / 4);
    return {
      durableMbps: load.bytes / load.seconds / 1e6,
      storedMbps: load.storedBytes / load.storedSeconds / 1e6,
      cpuMsPerMb: (cpu * 1000) / (load.storedBytes / 1e6),
      earlyRssMb: median(flooding.slice(quarter, 2 * quarter)),
      lateRssMb: median(flooding.slice(-quarter)),
      peakRssMb: Math.max(...rss),
      ddMbps: (ddBefore + ddAfter) / 2,
    };
  });
}

/** Runs the quiet sessions and measures the delay of acknowledgements. */
async function measureIdle(seconds: number): Promise<IdleSample> {
  return inFolder(async (folder) => {
    await using recorder = await startRecorder(folder);
    const before = cpuSeconds(recorder.pid);
    const memory = watchMemory(recorder.pid);
    const load = await runLoad({ url: recorder.url, mode: 'idle', sessions: IDLE_SESSIONS, seconds });
    const cpuPercent = ((cpuSeconds(recorder.pid) - before) / load.storedSeconds) * 100;
    return { p50Ms: load.p50Ms, p99Ms: load.p99Ms, cpuPercent, peakRssMb: Math.max(...memory.stop()) };
  });
}

/** Creates a folder on the disk of the temporary files, and removes it afterwards. */
async function inFolder<T>(work: (folder: string) => Promise<T>): Promise<T> {
  const folder = mkdtempSync(join(tmpdir(), 'tcbench-'));
  try {
    return await work(folder);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

export interface RecorderPeer extends AsyncDisposable {
  readonly url: string;
  readonly pid: number;
}

async function startRecorder(folder: string): Promise<RecorderPeer> {
  const child = spawn(process.execPath, [join(here, `recorder-server.${extension}`), join(folder, 'store')], {
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  const exit = once(child, 'exit');
  const first = await Promise.race([once(child.stdout, 'data'), exit.then(() => undefined)]);
  if (first === undefined || child.pid === undefined) throw new Error('the recorder did not start');
  return {
    url: String(first[0]).trim(),
    pid: child.pid,
    async [Symbol.asyncDispose]() {
      child.stdin.end();
      await exit;
    },
  };
}

async function runLoad(load: RecorderLoad): Promise<RecorderLoadResult> {
  const { stdout } = await promisify(execFile)(process.execPath, [
    join(here, `recorder-load.${extension}`),
    JSON.stringify(load),
  ]);
  return JSON.parse(stdout) as RecorderLoadResult;
}

/** Returns the rate in MB/s of writing and syncing one large file. */
async function dd(folder: string): Promise<number> {
  const file = join(folder, 'dd');
  const startedAt = performance.now();
  await promisify(execFile)('dd', ['if=/dev/zero', `of=${file}`, 'bs=1M', `count=${DD_MB}`, 'conv=fsync']);
  const seconds = (performance.now() - startedAt) / 1000;
  rmSync(file);
  return (DD_MB * 1024 ** 2) / 1e6 / seconds;
}

/** Returns the user and system time of a process. The kernel counts hundredths of a second. */
function cpuSeconds(pid: number): number {
  const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  return (Number(fields[11]) + Number(fields[12])) / 100;
}

/** Samples the resident memory of a process, in MB. */
function watchMemory(pid: number): { stop(): readonly number[] } {
  const samples: number[] = [];
  const sample = (): void => {
    const resident = /VmRSS:\s+(\d+) kB/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1];
    samples.push((Number(resident) * 1024) / 1e6);
  };
  sample();
  const timer = setInterval(sample, SAMPLE_MS);
  return {
    stop() {
      clearInterval(timer);
      return samples;
    },
  };
}

export function median(values: readonly number[]): number {
  const sorted = values.toSorted((left, right) => left - right);
  return sorted[Math.floor(sorted.length / 2)] ?? Number.NaN;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const quick = process.argv.includes('--quick');
  await benchRecorder(
    quick
      ? { rounds: 1, floodSeconds: 5, idleSeconds: 10 }
      : { rounds: 5, floodSeconds: 10, idleSeconds: 30 },
  );
}
