/** Starts and kills the processes of a run. */
import { fork, spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Recording } from '../../src/wire/recorder-api/recording.ts';
import type { GatewayPlan } from './gateway-process.ts';
import type { RecorderPlan } from './recorder-process.ts';
import type { SessionReport } from './workload.ts';

const here = dirname(fileURLToPath(import.meta.url));

export interface RecorderProcess {
  readonly url: string;
  readonly address: string;
  readonly port: number;
  /** Resident memory in MB. Linux only. */
  memoryMb(): number;
  kill(signal?: NodeJS.Signals): Promise<void>;
  list(): Promise<readonly Recording[]>;
  cast(id: string): Promise<string>;
  /** Notes of a recording; undefined until the store contains them. */
  notes(id: string): Promise<string | undefined>;
}

/** @param environment variables in addition to those of this process */
export async function startRecorder(
  plan: RecorderPlan,
  environment: Readonly<Record<string, string>> = {},
): Promise<RecorderProcess> {
  const child = spawn(process.execPath, [join(here, 'recorder-process.ts'), JSON.stringify(plan)], {
    stdio: ['ignore', 'pipe', 'inherit'],
    env: { ...process.env, ...environment },
  });
  const ended = once(child, 'exit');
  const first = await Promise.race([once(child.stdout, 'data'), ended.then(() => undefined)]);
  if (first === undefined) throw new Error('the recorder did not start');
  child.stdout.on('data', (text: Buffer) => process.stderr.write(text));
  const url = String(first[0]).split('\n')[0] ?? '';
  const port = Number(new URL(url).port);
  return {
    url,
    port,
    address: `127.0.0.1:${port}`,
    memoryMb() {
      const status = readFileSync(`/proc/${child.pid}/status`, 'utf8');
      return Number(/VmRSS:\s+(\d+) kB/.exec(status)?.[1]) / 1000;
    },
    kill: (signal = 'SIGKILL') => killChild(child, ended, signal),
    async list() {
      const found: Recording[] = [];
      for (let cursor = ''; ;) {
        const response = await fetch(`${url}/api/v1/recordings?limit=500${cursor}`);
        if (response.status !== 200)
          throw new Error(`the list was answered ${response.status}: ${await response.text()}`);
        const page = (await response.json()) as { recordings: Recording[]; next?: string };
        found.push(...page.recordings);
        if (page.next === undefined) return found;
        cursor = `&cursor=${encodeURIComponent(page.next)}`;
      }
    },
    async cast(id) {
      const response = await fetch(`${url}/api/v1/recordings/${encodeURIComponent(id)}/cast`);
      if (response.status !== 200) throw new Error(`the cast was answered ${response.status}`);
      return response.text();
    },
    async notes(id) {
      const response = await fetch(`${url}/api/v1/recordings/${encodeURIComponent(id)}/notes`);
      if (response.status === 404) return undefined;
      if (response.status !== 200) throw new Error(`the notes were answered ${response.status}`);
      return response.text();
    },
  };
}

export interface GatewayProcess {
  reports(): readonly SessionReport[];
  /** Ends the sessions of the process. Resolves when the sessions have ended. */
  finish(): Promise<readonly SessionReport[]>;
  kill(): Promise<void>;
}

export function startGateway(plan: GatewayPlan): GatewayProcess {
  const child = fork(join(here, 'gateway-process.ts'), [JSON.stringify(plan)]);
  const ended = once(child, 'exit');
  let latest: readonly SessionReport[] = [];
  child.on('message', (message) => {
    latest = message as readonly SessionReport[];
  });
  return {
    reports: () => latest,
    async finish() {
      // interrupted sessions end automatically
      if (child.connected) child.send('end');
      await ended;
      return latest;
    },
    kill: () => killChild(child, ended, 'SIGKILL'),
  };
}

async function killChild(
  child: ChildProcess,
  ended: Promise<unknown>,
  signal: NodeJS.Signals,
): Promise<void> {
  child.kill(signal);
  await ended;
}

/**
 * Polls until `check` returns a value.
 * @throws Error with `what` and the last exception of `check` after `timeoutMs`
 */
export async function within<T>(
  what: string,
  timeoutMs: number,
  check: () => Promise<T | undefined>,
): Promise<T> {
  const deadline = Date.now() + timeoutMs;
  for (let last: unknown; ;) {
    try {
      const found = await check();
      if (found !== undefined) return found;
    } catch (error) {
      last = error;
    }
    if (Date.now() > deadline)
      throw new Error(`not within ${timeoutMs} ms: ${what}; ${last instanceof Error ? last.message : ''}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}
