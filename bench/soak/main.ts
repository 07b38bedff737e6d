/**
 * Runs gateway and recorder for several minutes under combined load, and checks that memory stays flat and no data is
 * lost.
 *
 *   npm run soak -- --minutes 10 [--shells 300] [--watches 1000] [--requests 200] [--connections 10]
 *
 * Exit code: 0 all checks passed, 1 a check failed, 2 wrong usage.
 */
import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { familyOf, handlesUsr2 } from '../harness/usage.ts';
import { SHELL } from './content.ts';
import type { LoadReport } from './load.ts';
import {
  freePort,
  gatewayArguments,
  MAIN,
  startLoad,
  startRole,
  startUpstream,
  writeCertificates,
  writeGatewayFiles,
  type Options,
  type Role,
} from './processes.ts';
import { metricOf, trendsOf, usageOf, type Sample } from './samples.ts';
import type { ShellSent } from './upstream.ts';

const SAMPLE_MS = 4000;
/** Delay between the signal for a garbage collection and the measurement. A collection takes about 100 ms. */
const COLLECT_MS = 1000;
const REPORT_MS = 15_000;
/** Maximum duration of a shell, and therefore the maximum time until all sessions have finished. */
const FINISH_MS = 120_000;
/** Maximum time until the gateway has seen the end of the last session. */
const END_MS = 10_000;

const problems: string[] = [];
const say = (line: string): void => void process.stdout.write(`${line}\n`);
const problem = (what: string): void => {
  problems.push(what);
  say(`FAULT  ${what}`);
};

process.exit(await main(readOptions()));

/** An interrupted run also stops its processes and removes its folder. */
async function main(options: Options): Promise<number> {
  const directory = await mkdtemp(join(tmpdir(), 'tailcast-soak-'));
  await using stack = new AsyncDisposableStack();
  stack.defer(() => rm(directory, { recursive: true, force: true }));
  return await Promise.race([soak(options, directory, stack), interrupted()]);
}

function interrupted(): Promise<number> {
  return new Promise((resolve) => {
    for (const signal of ['SIGINT', 'SIGTERM'] as const) {
      process.once(signal, () => {
        say(`ended by ${signal}`);
        resolve(1);
      });
    }
  });
}

async function soak(options: Options, directory: string, stack: AsyncDisposableStack): Promise<number> {
  const started = performance.now();
  const seconds = (): number => (performance.now() - started) / 1000;
  const sent = new Map<number, ShellSent>();

  const pki = await writeCertificates(directory);
  const upstreamPort = await startUpstream(pki, sent, stack);
  const store = join(directory, 'recordings');
  const recorderPort = await freePort();
  const ops = ['--ops-listen', '127.0.0.1:0'];
  const recorder = await startRole(
    'recorder',
    ['--store', store, '--identity', 'loopback', '--listen', `127.0.0.1:${recorderPort}`, ...ops],
    stack,
  );
  const gatewayPort = await freePort();
  await writeGatewayFiles(directory, pki, { upstreamPort, recorderPort, perUser: options.shells * 2 });
  const gateway = await startRole(
    'gateway',
    [...gatewayArguments(directory, pki, gatewayPort), ...ops],
    stack,
  );
  const roles = [gateway, recorder];

  const load = startLoad(options, { url: `https://127.0.0.1:${gatewayPort}`, ca: pki.ca }, stack);
  say(
    `soak of ${options.minutes} minutes: ${options.shells} recorded shells, ${options.watches} watches, ` +
      `${options.requests} requests/s, ${options.connections} connections/s`,
  );
  await watch(options, roles, load, seconds);

  const last = await finishLoad(load);
  for (const fault of last.faults) problem(`client: ${fault}`);
  if (last.faultCount > last.faults.length) problem(`client: ${last.faultCount} faults in all`);
  if (last.shellsDone < options.shells) problem(`only ${last.shellsDone} shells ended`);
  await checkMetrics(gateway, recorder);
  say(`comparing ${sent.size} recordings with what was sent`);
  await checkRecordings(`http://127.0.0.1:${recorderPort}`, sent);
  for (const role of roles) {
    judge(role);
    for (const alarm of role.alarms) problem(`${role.name} said: ${alarm}`);
  }
  for (const role of roles) {
    role.child.kill('SIGTERM');
    const [code] = (await once(role.child, 'exit')) as [number | null];
    if (code !== 0) problem(`${role.name} ended with ${code ?? 'a signal'}`);
  }
  say('verifying the store');
  await verifyStore(store);
  say(
    `${last.shellsDone} shells, ${last.events} events, ${last.requests} requests, ${last.connections} connections, ` +
      `${sent.size} recordings compared`,
  );
  say(problems.length === 0 ? 'PASSED' : `FAILED: ${problems.length} faults`);
  return problems.length === 0 ? 0 : 1;
}

/** Takes samples until the end of the run. */
async function watch(
  { minutes }: Options,
  roles: readonly Role[],
  load: ReturnType<typeof startLoad>,
  seconds: () => number,
): Promise<void> {
  const endMs = performance.now() + minutes * 60_000;
  let reportedMs = performance.now();
  while (performance.now() < endMs) {
    await pause(SAMPLE_MS);
    for (const role of roles) {
      // The signal would stop processes without a handler, such as the index process.
      for (const pid of familyOf(role.child.pid ?? 0)) if (handlesUsr2(pid)) process.kill(pid, 'SIGUSR2');
    }
    await pause(COLLECT_MS);
    for (const role of roles) {
      if (role.child.exitCode !== null) throw new Error(`${role.name} has ended`);
      role.samples.push(await sampleOf(role, seconds()));
    }
    if (load.child.exitCode !== null) throw new Error('the load has ended');
    if (performance.now() - reportedMs < REPORT_MS) continue;
    reportedMs = performance.now();
    say(progress(seconds(), roles, load.latest()));
  }
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => {
    setTimeout(resolve, ms);
  });
}

function progress(seconds: number, roles: readonly Role[], now: LoadReport | undefined): string {
  const used = roles.map(({ name, samples }) => {
    const { rssBytes = 0, heapBytes = 0, fds = 0, handles = 0 } = samples.at(-1) ?? {};
    return `${name} ${mega(rssBytes)} (heap ${mega(heapBytes)}) ${fds} fds ${handles} handles`;
  });
  const {
    shellsOpen = 0,
    shellsDone = 0,
    watchesOpen = 0,
    events = 0,
    requests = 0,
    faultCount = 0,
  } = now ?? {};
  return [
    `${Math.round(seconds)} s`,
    `shells ${shellsOpen}/${shellsDone}`,
    `watches ${watchesOpen}`,
    `events ${events}`,
    `requests ${requests}`,
    `faults ${faultCount}`,
    ...used,
  ].join('  ');
}

async function sampleOf({ child, ops }: Role, seconds: number): Promise<Sample> {
  const text = await metricsText(ops).catch(() => '');
  return {
    seconds,
    ...usageOf(familyOf(child.pid ?? 0)),
    heapBytes: metricOf(text, 'nodejs_heap_size_used_bytes'),
    externalBytes: metricOf(text, 'nodejs_external_memory_bytes'),
    handles: metricOf(text, 'nodejs_active_handles_total'),
  };
}

function judge({ name, samples }: Role): void {
  for (const { quantity, from, to, allowed, flat } of trendsOf(samples)) {
    const isBytes = quantity.endsWith('Bytes');
    const shown = (value: number): string => (isBytes ? mega(value) : value.toFixed(0));
    say(
      `${name} ${quantity}: ${shown(from)} → ${shown(to)} over the second half (${shown(allowed)} more allowed)`,
    );
    if (!flat) problem(`${name} ${quantity} grows`);
  }
}

async function checkMetrics(gateway: Role, recorder: Role): Promise<void> {
  const [text, other] = await Promise.all([metricsText(gateway.ops), metricsText(recorder.ops)]);
  const none = [
    'tailcast_recording_gaps_total',
    'tailcast_sessions_unrecorded_total',
    'tailcast_recorder_lost_total',
    'tailcast_sessions_violated_total',
  ];
  for (const name of none) {
    // A labelled counter has no row before its first value, but always a type.
    if (!text.includes(`# TYPE ${name} `)) problem(`gateway has no metric ${name}`);
    else if ((metricOf(text, name) ?? 0) > 0) problem(`gateway counts ${name}`);
  }
  if ((metricOf(other, 'tailcast_recorder_uploads_failed_total') ?? 0) > 0)
    problem('recorder: uploads failed');
  const active = await sessionsAtEnd(gateway);
  if (active !== 0) problem(`gateway has ${active ?? 'no count of'} sessions open at the end`);
}

/**
 * Returns the number of open sessions. Waits up to END_MS until no session is open, because a client sees the end of
 * its shell before the gateway does.
 */
async function sessionsAtEnd({ ops }: Role): Promise<number | undefined> {
  const endMs = performance.now() + END_MS;
  for (;;) {
    const active = metricOf(await metricsText(ops), 'tailcast_sessions_active');
    if (active === 0 || performance.now() > endMs) return active;
    await pause(100);
  }
}

interface Listed {
  readonly id: string;
  readonly state: string;
  readonly command?: string;
  readonly result?: string;
}

/** Checks that each shell has exactly one recording, which contains the output that the API server sent. */
async function checkRecordings(url: string, sent: ReadonlyMap<number, ShellSent>): Promise<void> {
  const found = new Map<number, Listed>();
  for (let cursor = ''; ;) {
    const response = await fetch(`${url}/api/v1/recordings?limit=500${cursor}`);
    const page = (await response.json()) as { readonly recordings: Listed[]; readonly next?: string };
    for (const recording of page.recordings) {
      const [program, number] = (recording.command ?? '').split(' ');
      if (program !== SHELL) problem(`recording ${recording.id} is of ${program ?? 'nothing'}`);
      else if (found.has(Number(number))) problem(`shell ${number} has two recordings`);
      else found.set(Number(number), recording);
    }
    if (page.next === undefined) break;
    cursor = `&cursor=${encodeURIComponent(page.next)}`;
  }
  for (const [shell, { sha256, bytes, whole }] of sent) {
    const recording = found.get(shell);
    if (!whole) problem(`shell ${shell} was cut at the API server after ${bytes} bytes`);
    if (recording === undefined) {
      problem(`shell ${shell} has no recording`);
      continue;
    }
    if (recording.state !== 'completed') problem(`the recording of shell ${shell} is ${recording.state}`);
    const response = await fetch(`${url}/api/v1/recordings/${encodeURIComponent(recording.id)}/cast`);
    const output = castOutput(await response.text());
    if (createHash('sha256').update(output).digest('hex') !== sha256) {
      problem(
        `the recording of shell ${shell} has ${Buffer.byteLength(output)} other bytes than the ${bytes} sent`,
      );
    }
  }
  if (found.size !== sent.size) problem(`${sent.size} shells ran, ${found.size} are recorded`);
}

function castOutput(cast: string): string {
  return cast
    .trimEnd()
    .split('\n')
    .slice(1)
    .map((line) => JSON.parse(line) as readonly [number, string, string])
    .filter(([, kind]) => kind === 'o')
    .map(([, , data]) => data)
    .join('');
}

async function verifyStore(store: string): Promise<void> {
  const keys = join(store, '.evidence', 'keys');
  const named = (await readdir(keys)).map((name) => join(keys, name));
  const child = spawn(
    process.execPath,
    [MAIN, 'verify', store, '--json', '--require-evidence', '--key', ...named],
    { stdio: ['ignore', 'pipe', 'inherit'] },
  );
  const output: Buffer[] = [];
  child.stdout.on('data', (chunk: Buffer) => output.push(chunk));
  const [code] = (await once(child, 'exit')) as [number | null];
  if (code !== 0) problem(`verify: ${Buffer.concat(output).toString().slice(0, 2000)}`);
}

async function finishLoad(load: ReturnType<typeof startLoad>): Promise<LoadReport> {
  load.child.send('stop');
  const limit = setTimeout(() => load.child.kill('SIGKILL'), FINISH_MS);
  await once(load.child, 'exit');
  clearTimeout(limit);
  const last = load.latest();
  if (last?.ended !== true) throw new Error('the load did not end');
  return last;
}

async function metricsText(ops: string): Promise<string> {
  return (await fetch(`${ops}/metrics`, { signal: AbortSignal.timeout(5000) })).text();
}

function mega(bytes: number): string {
  return `${(bytes / 1024 ** 2).toFixed(0)} MB`;
}

function readOptions(): Options {
  const { values } = parseArgs({
    options: {
      minutes: { type: 'string', default: '10' },
      shells: { type: 'string', default: '300' },
      watches: { type: 'string', default: '1000' },
      requests: { type: 'string', default: '200' },
      connections: { type: 'string', default: '10' },
    },
  });
  const number = (name: keyof typeof values, most: number): number => {
    const value = Number(values[name]);
    if (Number.isFinite(value) && value > 0 && value <= most) return value;
    say(`--${name}: a number up to ${most} is expected`);
    process.exit(2);
  };
  return {
    minutes: number('minutes', 1440),
    shells: number('shells', 5000),
    watches: number('watches', 20_000),
    requests: number('requests', 20_000),
    connections: number('connections', 1000),
  };
}
