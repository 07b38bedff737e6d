import { Duplex, Readable, Writable } from 'node:stream';
import type { TerminalSize } from '../src/wire/remotecommand/resize.ts';
import { createOutput } from './output.ts';
import { signalGroup, type ProcessPlan, type RunningProcess } from './process.ts';

/** Starts a program in a terminal. */
export type StartInTerminal = (plan: ProcessPlan, size: TerminalSize) => RunningProcess;

/**
 * The part of `@lydell/node-pty` that the demo uses. With `encoding: null`, data consists of bytes instead of strings.
 */
interface PtyModule {
  spawn(file: string, args: readonly string[], options: Readonly<Record<string, unknown>>): Pty;
}

interface Pty {
  readonly pid: number;
  onData(listener: (data: unknown) => void): unknown;
  onExit(listener: (exit: { readonly exitCode: number; readonly signal?: number }) => void): unknown;
  resize(columns: number, rows: number): void;
  write(data: Uint8Array): void;
  pause(): void;
  resume(): void;
}

/**
 * Interval at which a paused terminal checks whether its program has exited. After the exit, the rest of the output
 * must be read from the kernel.
 */
const HELD_CHECK_MS = 50;

/**
 * Returns a function that starts programs in pseudo-terminals with the module `@lydell/node-pty` from `load`. If the
 * module is missing, returns the reason. The module is optional, because it lacks binaries for some platforms.
 */
export async function loadPty(
  load: () => Promise<unknown>,
): Promise<{ readonly start: StartInTerminal } | { readonly reason: string }> {
  try {
    const loaded = await load();
    if (!isPtyModule(loaded)) return { reason: '@lydell/node-pty has an unexpected shape' };
    return { start: (plan, size) => startInPty(loaded, plan, size) };
  } catch (error) {
    return { reason: error instanceof Error ? (error.message.split('\n')[0] ?? '') : String(error) };
  }
}

function isPtyModule(value: unknown): value is PtyModule {
  return typeof value === 'object' && value !== null && typeof Reflect.get(value, 'spawn') === 'function';
}

function startInPty(module: PtyModule, plan: ProcessPlan, size: TerminalSize): RunningProcess {
  const pty = module.spawn(plan.program, plan.argv.slice(1), {
    name: plan.environment['TERM'] ?? 'xterm',
    cols: size.columns,
    rows: size.rows,
    cwd: plan.directory,
    env: plan.environment,
    encoding: null,
  });
  let heldCheck: NodeJS.Timeout | undefined;
  const release = (): void => {
    clearInterval(heldCheck);
    heldCheck = undefined;
    pty.resume();
  };
  const screen = new Readable({ read: release });
  const hold = (): void => {
    pty.pause();
    // The module closes the terminal 200 ms after the exit, even if output is unread. The rest of the output, a few
    // KiB, is therefore read within these 200 ms.
    heldCheck ??= setInterval(() => {
      if (!isAlive(pty.pid)) release();
    }, HELD_CHECK_MS);
  };
  pty.onData((data) => {
    if (data instanceof Uint8Array && !screen.push(data) && isAlive(pty.pid)) hold();
  });
  const stdout = createOutput(screen);
  const exited = new Promise<{ code: number; signal: number }>((resolve) => {
    pty.onExit(({ exitCode, signal = 0 }) => {
      clearInterval(heldCheck);
      screen.push(null);
      const result = { code: signal === 0 ? exitCode : 128 + signal, signal };
      resolve(stdout.done.then(() => result));
    });
  });
  return {
    pid: pty.pid,
    stdin: createKeyboard(pty, exited),
    stdout,
    stderr: undefined,
    resize: ({ columns, rows }) => {
      if (columns > 0 && rows > 0 && isAlive(pty.pid)) pty.resize(columns, rows);
    },
    kill: (signal) => {
      signalGroup(pty.pid, signal);
    },
    exited,
  };
}

const END_OF_TRANSMISSION = Uint8Array.of(0x04);

/** Stream that writes to the terminal. Ending the stream sends Ctrl-D, which means end-of-file. */
function createKeyboard(pty: Pty, exited: Promise<unknown>): Writable {
  // The data is written to the socket of the module, because the module's own method reports neither errors nor
  // back-pressure.
  const inner: unknown = Reflect.get(pty, '_socket');
  const keyboard = new Writable({
    highWaterMark: 64 * 1024,
    write(chunk: Uint8Array, _encoding, done) {
      if (!(inner instanceof Duplex)) {
        pty.write(chunk);
        done();
      } else if (inner.destroyed || !inner.writable) {
        done();
      } else {
        // An error means that the program has exited. The error is ignored, because `exited` reports the exit.
        inner.write(chunk, () => {
          done();
        });
      }
    },
    final(done) {
      pty.write(END_OF_TRANSMISSION);
      done();
    },
  });
  void exited.then(() => keyboard.destroy());
  return keyboard;
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}
