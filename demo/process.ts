import { spawn } from 'node:child_process';
import { constants as fsConstants, accessSync, statSync } from 'node:fs';
import { constants as osConstants } from 'node:os';
import { delimiter, isAbsolute, join } from 'node:path';
import type { Writable } from 'node:stream';
import { settledWithin } from '../src/async/with-timeout.ts';
import type { TerminalSize } from '../src/wire/remotecommand/resize.ts';
import { createOutput, type Output } from './output.ts';

/** Result of a process. `code` is the exit code that a shell would report: 128 + n after signal n. */
export interface ExitResult {
  readonly code: number;
  /** Signal number; 0 without a signal. */
  readonly signal: number;
}

/**
 * A running program: a process with three pipes, a process with a terminal (without a separate `stderr`), or a built-in
 * program inside this process.
 */
export interface RunningProcess {
  readonly pid: number | undefined;
  /** Input of the program. Ending this stream signals end-of-file. Undefined for a program without input. */
  readonly stdin: Writable | undefined;
  readonly stdout: Output;
  readonly stderr: Output | undefined;
  resize(size: TerminalSize): void;
  /** Sends a signal to the process group. Does nothing after the program has exited. */
  kill(signal: NodeJS.Signals): void;
  /** Resolves after the program has exited and subscribers have its complete output. Never rejects. */
  readonly exited: Promise<ExitResult>;
}

/** Command to run. `program` is the absolute path of the file that `argv[0]` names. */
export interface ProcessPlan {
  readonly program: string;
  readonly argv: readonly string[];
  readonly directory: string;
  readonly environment: Readonly<Record<string, string>>;
  readonly stdin: boolean;
}

/** Thrown if argv[0] cannot be executed. `message` is similar to the message of a container runtime. */
export class ProgramNotFound extends Error {
  override readonly name = 'ProgramNotFound';
}

/** Returns the absolute path of `name` in `searchPath`, like execvp. Throws `ProgramNotFound`. */
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

/** After a program has exited, the output of its background jobs is read until no output arrives for this time. */
const SILENT_AFTER_EXIT_MS = 400;

/** Starts the program of `plan` with pipes, in a new process group. */
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
  // A program may close its input before all data was written.
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

/** Converts the exit code and signal that Node reports for a child process. */
function exitResult(code: number | null, signal: NodeJS.Signals | null): ExitResult {
  const number = signal === null ? 0 : osConstants.signals[signal];
  return { code: code ?? 128 + number, signal: number };
}

/** Sends a signal to the process group of `pid`, if the group exists. */
export function signalGroup(pid: number | undefined, signal: NodeJS.Signals): void {
  if (pid === undefined) return;
  try {
    process.kill(-pid, signal);
  } catch {
    // ESRCH: all processes of the group have exited.
  }
}

/**
 * Waits until all outputs have ended. Also stops waiting if all outputs are being read, but send no data for a short
 * time.
 */
async function drain(outputs: readonly Output[]): Promise<void> {
  const all = Promise.all(outputs.map((output) => output.done));
  const total = (): number => outputs.reduce((sum, output) => sum + output.deliveredBytes, 0);
  for (;;) {
    const before = total();
    if (await settledWithin(SILENT_AFTER_EXIT_MS, all)) return;
    if (total() === before && !outputs.some((output) => output.held)) return;
  }
}
