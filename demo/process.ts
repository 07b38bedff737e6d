import { spawn } from 'node:child_process';
import { constants as fsConstants, accessSync, statSync } from 'node:fs';
import { constants as osConstants } from 'node:os';
import { delimiter, isAbsolute, join } from 'node:path';
import type { Writable } from 'node:stream';
import { settledWithin } from '../src/async/within.ts';
import type { TerminalSize } from '../src/wire/remotecommand/resize.ts';
import { createOutput, type Output } from './output.ts';

/** How a process ended: `code` as a shell reports it, 128 + n after signal n. */
export interface ExitResult {
  readonly code: number;
  /** Signal number, 0 when it was not one. */
  readonly signal: number;
}

/** A program that runs: with three pipes, with a terminal (then there is no `stderr`), or inside this process. */
export interface RunningProcess {
  readonly pid: number | undefined;
  /** Ending it is end-of-file to the program. Absent when the program was started without input. */
  readonly stdin: Writable | undefined;
  readonly stdout: Output;
  readonly stderr: Output | undefined;
  resize(size: TerminalSize): void;
  /** Sends a signal to the whole process group. Does nothing once it is gone. */
  kill(signal: NodeJS.Signals): void;
  /** Resolves when the program has ended and its output was handed over. Never rejects. */
  readonly exited: Promise<ExitResult>;
}

/** What to run. `program` is the absolute path found for `argv[0]`. */
export interface ProcessPlan {
  readonly program: string;
  readonly argv: readonly string[];
  readonly directory: string;
  readonly environment: Readonly<Record<string, string>>;
  readonly stdin: boolean;
}

/** argv[0] cannot be run. `message` reads as a container runtime puts it. */
export class ProgramNotFound extends Error {
  override readonly name = 'ProgramNotFound';
}

/** The absolute path of `name`, looked up in `searchPath` as execvp does. Throws `ProgramNotFound`. */
export function findProgram(name: string, searchPath: string, directory: string): string {
  const candidates = name.includes('/')
    ? [isAbsolute(name) ? name : join(directory, name)]
    : searchPath.split(delimiter).map((folder) => join(folder, name));
  const found = candidates.find(isExecutable);
  if (found !== undefined) return found;
  const reason = name.includes('/') ? 'no such file or directory' : 'executable file not found in $PATH';
  throw new ProgramNotFound(`exec: ${JSON.stringify(name)}: ${reason}: unknown`);
}

function isExecutable(path: string): boolean {
  try {
    accessSync(path, fsConstants.X_OK);
    return statSync(path).isFile();
  } catch {
    return false;
  }
}

/** How long output may stay silent, after the program ended, before leftover background jobs are no longer waited for. */
const SILENT_AFTER_EXIT_MS = 400;

/** Runs `plan` on pipes, in its own process group. */
export function startOnPipes(plan: ProcessPlan): RunningProcess {
  const child = spawn(plan.program, plan.argv.slice(1), {
    argv0: plan.argv[0] ?? plan.program,
    cwd: plan.directory,
    env: plan.environment,
    stdio: [plan.stdin ? 'pipe' : 'ignore', 'pipe', 'pipe'],
    detached: true,
  });
  const { stdout: outPipe, stderr: errPipe } = child;
  if (outPipe === null || errPipe === null) throw new Error('the child process has no output pipes');
  const stdout = createOutput(outPipe);
  const stderr = createOutput(errPipe);
  // A program that closes its input early is not an error of the session.
  child.stdin?.on('error', () => undefined);
  const ended = new Promise<ExitResult>((resolve) => {
    child.once('error', () => {
      resolve({ code: 126, signal: 0 });
    });
    child.once('exit', (code, signal) => {
      resolve(exitResult(code, signal));
    });
  });
  return {
    pid: child.pid,
    stdin: child.stdin ?? undefined,
    stdout,
    stderr,
    resize: () => undefined,
    kill: (signal) => {
      signalGroup(child.pid, signal);
    },
    exited: ended.then(async (result) => {
      await drain([stdout, stderr]);
      child.stdin?.destroy();
      outPipe.destroy();
      errPipe.destroy();
      return result;
    }),
  };
}

/** The `ExitResult` of what Node reports about a child. */
function exitResult(code: number | null, signal: NodeJS.Signals | null): ExitResult {
  const number = signal === null ? 0 : osConstants.signals[signal];
  return { code: code ?? 128 + number, signal: number };
}

/** Signals the group that `pid` leads; a group that is gone already is fine. */
export function signalGroup(pid: number | undefined, signal: NodeJS.Signals): void {
  if (pid === undefined) return;
  try {
    process.kill(-pid, signal);
  } catch {
    // ESRCH: nothing left to signal
  }
}

/** Waits until the outputs end, or are silent for a while although someone is reading them. */
async function drain(outputs: readonly Output[]): Promise<void> {
  const all = Promise.all(outputs.map((output) => output.done));
  const total = (): number => outputs.reduce((sum, output) => sum + output.deliveredBytes, 0);
  for (;;) {
    const before = total();
    if (await settledWithin(SILENT_AFTER_EXIT_MS, all)) return;
    if (total() === before && !outputs.some((output) => output.held)) return;
  }
}
