/** Runs one kubectl exec and checks its output. */
import { createHash } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import { environmentFor, startKubectl } from '../rig/kubectl.ts';
import { openTerminal } from '../rig/terminal.ts';
import { isSlow, type Cell } from './cells.ts';
import type { Script } from './contents.ts';
import { POD, type Recorder } from './site.ts';

const SLOW_BYTES_PER_SECOND = 1_500_000;
const PAUSE_MS = 3_000;
/** Fraction of the output after which the recorder is paused. */
const PAUSE_AT = 0.9;
/**
 * A session that prints nothing for this time counts as hanging. Even a slow session prints something within this time.
 */
const SILENCE_MS = 120_000;

/**
 * `exact`: every byte arrived, with the exit code of the command. `reported`: bytes may be missing, but kubectl exited
 * with an error and the recording is `interrupted`. `silent`: everything else.
 */
export type Verdict = 'exact' | 'reported' | 'silent';

export interface SessionResult {
  readonly verdict: Verdict;
  readonly missingBytes: number;
  readonly seconds: number;
  /** Description of the problem; empty if the result is exact. */
  readonly problem: string;
}

interface Seen {
  readonly bytes: number;
  readonly sha256: string;
  readonly code: number;
  readonly stderr: string;
}

let sessions = 0;

export async function runSession(
  cell: Cell,
  script: Script,
  kubeconfig: string,
  recorder: Recorder | undefined,
): Promise<SessionResult> {
  sessions += 1;
  const token = `load-${process.pid}-${sessions}`;
  const startedMs = performance.now();
  const pause =
    cell.condition === 'paused' ? createPause(recorder, script.expected.bytes * PAUSE_AT) : undefined;
  const args = ['exec', ...(script.tty ? ['-it'] : []), POD, '--', 'sh', ...script.command(token)];
  const seen = script.tty
    ? await onTerminal(cell, args, kubeconfig, (bytes) => pause?.at(bytes))
    : await onPipes(cell, args, kubeconfig, (bytes) => pause?.at(bytes));
  await pause?.over;
  const seconds = (performance.now() - startedMs) / 1000;
  return { seconds, ...(await judge(seen, script, recorder, token)) };
}

async function judge(
  seen: Seen,
  { expected }: Script,
  recorder: Recorder | undefined,
  token: string,
): Promise<Omit<SessionResult, 'seconds'>> {
  const missingBytes = expected.bytes - seen.bytes;
  const isWhole = seen.sha256 === expected.sha256;
  if (isWhole && seen.code === expected.code) return { verdict: 'exact', missingBytes: 0, problem: '' };
  const state = recorder === undefined ? 'not recorded' : await stateOf(recorder, token);
  const problem =
    `${seen.bytes} of ${expected.bytes} ` +
    `bytes${missingBytes === 0 && !isWhole ? ', other content' : ''}, exit code ${seen.code}, recording ` +
    `${state}: ${seen.stderr.trim().slice(-300)}`;
  const failed = seen.code !== 0 && seen.code !== expected.code;
  const isReported =
    (isWhole || missingBytes > 0) && failed && (recorder === undefined || state === 'interrupted');
  return { verdict: isReported ? 'reported' : 'silent', missingBytes, problem };
}

function onPipes(
  { kubectl, transport, condition }: Cell,
  args: readonly string[],
  kubeconfig: string,
  progress: (bytes: number) => void,
): Promise<Seen> {
  const child = startKubectl(kubectl, args, { kubeconfig, transport });
  const hash = createHash('sha256');
  const startedMs = performance.now();
  const silence = setTimeout(() => child.kill('SIGKILL'), SILENCE_MS);
  let bytes = 0;
  let stderr = '';
  child.stdin?.on('error', () => undefined);
  child.stdin?.end();
  const { stdout } = child;
  stdout?.on('data', (chunk: Buffer) => {
    hash.update(chunk);
    bytes += chunk.length;
    silence.refresh();
    progress(bytes);
    if (!isSlow(condition)) return;
    const dueMs = startedMs + (bytes / SLOW_BYTES_PER_SECOND) * 1000;
    stdout.pause();
    setTimeout(() => stdout.resume(), Math.max(0, dueMs - performance.now()));
  });
  child.stderr?.on('data', (chunk: Buffer) => (stderr = (stderr + chunk.toString()).slice(-4096)));
  return new Promise((resolve, reject) => {
    child.on('error', reject);
    child.on('close', (code) => {
      clearTimeout(silence);
      resolve({ bytes, sha256: hash.digest('hex'), code: code ?? -1, stderr });
    });
  });
}

/**
 * Prints the exit code after all output, and waits for a key before it exits. node-pty closes a terminal 200 ms after
 * its program exits, so output that a busy machine has not read by then would be lost.
 */
const SAY_END = '"$@"; printf "<ended %d>" $?; read -r _';
const END = /^<ended (\d+)>/;

async function onTerminal(
  { kubectl, transport }: Cell,
  args: readonly string[],
  kubeconfig: string,
  progress: (bytes: number) => void,
): Promise<Seen> {
  const hash = createHash('sha256');
  let bytes = 0;
  let tail = '';
  let end = '';
  let code: number | undefined;
  const terminal = openTerminal('sh', ['-c', SAY_END, 'sh', kubectl.path, ...args], {
    env: environmentFor({ kubeconfig, transport }),
    onOutput(text) {
      const at = end === '' ? text.indexOf('<') : 0;
      const output = at < 0 ? text : text.slice(0, at);
      hash.update(output);
      bytes += Buffer.byteLength(output);
      tail = (tail + output).slice(-300);
      silence.refresh();
      progress(bytes);
      if (at < 0 || code !== undefined) return;
      end += text.slice(at);
      const found = END.exec(end)?.[1];
      if (found === undefined) return;
      code = Number(found);
      terminal.type('\n');
    },
  });
  const silence = setTimeout(() => terminal.kill(), SILENCE_MS);
  await terminal.ended;
  clearTimeout(silence);
  return { bytes, sha256: hash.digest('hex'), code: code ?? -1, stderr: tail };
}

interface Pause {
  at(bytes: number): void;
  /** Resolves at the end of this pause, or immediately if the pause has not begun. */
  readonly over: Promise<void>;
}

/** For each recorder, the number of sessions that currently pause it. The recorder continues when the number is 0. */
const paused = new Map<Recorder, number>();

function createPause(recorder: Recorder | undefined, fromBytes: number): Pause {
  let over: Promise<void> = Promise.resolve();
  let begun = false;
  const stop = async (stopped: Recorder): Promise<void> => {
    paused.set(stopped, (paused.get(stopped) ?? 0) + 1);
    stopped.process.signal('SIGSTOP');
    await delay(PAUSE_MS);
    const left = (paused.get(stopped) ?? 1) - 1;
    paused.set(stopped, left);
    if (left === 0) stopped.process.signal('SIGCONT');
  };
  return {
    at(bytes) {
      if (begun || recorder === undefined || bytes < fromBytes) return;
      begun = true;
      over = stop(recorder);
    },
    get over() {
      return over;
    },
  };
}

/** Waits until the recorder has finished the session. */
async function stateOf(recorder: Recorder, token: string): Promise<string> {
  for (let attempt = 0; attempt < 150; attempt += 1) {
    const recording = await recorder.find(token);
    if (recording !== undefined && recording.state !== 'running') return recording.state;
    await delay(100);
  }
  return 'open or missing';
}
