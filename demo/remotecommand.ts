import type { Readable } from 'node:stream';
import type { StatusToSend } from '../src/wire/remotecommand/exit-status.ts';
import type { TerminalSize } from '../src/wire/remotecommand/resize.ts';
import type { Container } from './container.ts';
import type { RunningPod } from './pod-runtime.ts';
import { ProgramNotFound, type ExitResult, type RunningProcess } from './process.ts';
import type { RemoteStreams, StreamOptions } from './remote-streams.ts';

/**
 * Time that a terminal session waits for the client's terminal size. Without a size, the session then starts with
 * 80x24.
 */
const FIRST_SIZE_MS = 300;
/** Delay between SIGHUP and SIGKILL after the client has disconnected. */
const HANG_UP_MS = 2_000;

/**
 * Runs a command for an exec session. Resolves when the command has exited and the client has received all output.
 * Never rejects, because the client gets errors as a status. If the client disconnects, the command is stopped.
 */
export async function serveExec(
  pod: RunningPod,
  container: Container,
  argv: readonly string[],
  options: StreamOptions,
  streams: RemoteStreams,
): Promise<void> {
  const size = options.tty ? await firstSize(streams) : undefined;
  let command: RunningProcess;
  try {
    command = pod.exec(container, argv, { tty: options.tty, stdin: options.stdin, size });
  } catch (error) {
    await streams.finish(startFailure(error));
    return;
  }
  connect(command, streams);
  streams.onResize((next) => {
    command.resize(next);
  });
  pump(streams.stdin, command, true);
  const hangUp = (): void => {
    command.kill('SIGHUP');
    setTimeout(() => {
      command.kill('SIGKILL');
    }, HANG_UP_MS).unref();
  };
  if (streams.gone.aborted) hangUp();
  else streams.gone.addEventListener('abort', hangUp);
  const exit = await command.exited;
  streams.gone.removeEventListener('abort', hangUp);
  await streams.finish(exitStatus(exit));
}

/**
 * Connects a client to a container's program until the program exits or the client disconnects. With `stdinOnce`, the
 * input of the container closes when its first client has finished. Never rejects.
 */
export async function serveAttach(
  container: Container,
  options: StreamOptions,
  streams: RemoteStreams,
): Promise<void> {
  const { spec } = container;
  const size = spec.tty && options.tty ? await firstSize(streams) : undefined;
  const program = await container.attach(size);
  if (program === undefined) {
    const message = `container ${spec.name} is not running`;
    await streams.finish({ kind: 'failure', message, reason: 'InternalError', httpStatus: 500 });
    return;
  }
  const stops = connect(program, streams);
  streams.onResize((next) => {
    program.resize(next);
  });
  pump(streams.stdin, program, spec.stdinOnce);
  const gone = new Promise<'gone'>((resolve) => {
    if (streams.gone.aborted) resolve('gone');
    streams.gone.addEventListener('abort', () => {
      resolve('gone');
    });
  });
  const outcome = await Promise.race([gone, program.exited]);
  if (outcome !== 'gone') {
    await streams.finish({ kind: 'success' });
    return;
  }
  for (const stop of stops) stop();
  if (!spec.stdinOnce) return;
  if (spec.tty) program.kill('SIGHUP');
  else program.stdin?.end();
}

function connect(program: RunningProcess, { stdout, stderr }: RemoteStreams): readonly (() => void)[] {
  stdout?.on('error', () => undefined);
  stderr?.on('error', () => undefined);
  return [
    ...(stdout === undefined ? [] : [program.stdout.subscribe(stdout)]),
    ...(stderr === undefined || program.stderr === undefined ? [] : [program.stderr.subscribe(stderr)]),
  ];
}

/**
 * Copies input to a program. If the program closes its input, further input is discarded, because unread input would
 * block the session.
 */
function pump(input: Readable | undefined, program: RunningProcess, endWithInput: boolean): void {
  if (input === undefined) return;
  input.on('error', () => undefined);
  const target = program.stdin;
  if (target === undefined || target.destroyed) {
    input.resume();
    return;
  }
  const discard = (): void => {
    input.unpipe(target);
    input.resume();
  };
  target.once('close', discard);
  void program.exited.then(discard);
  input.pipe(target, { end: endWithInput });
}

function firstSize(streams: RemoteStreams): Promise<TerminalSize | undefined> {
  return new Promise((resolve) => {
    const timer = setTimeout(() => {
      resolve(undefined);
    }, FIRST_SIZE_MS);
    streams.onResize((size) => {
      clearTimeout(timer);
      resolve(size);
    });
  });
}

function exitStatus({ code }: ExitResult): StatusToSend {
  return code === 0 ? { kind: 'success' } : { kind: 'exit', code };
}

function startFailure(error: unknown): StatusToSend {
  const reason = error instanceof Error ? error.message : String(error);
  const message =
    error instanceof ProgramNotFound
      ? `error executing command in container: failed to exec in container: unable to start container process: ` +
        `${reason}`
      : `error executing command in container: ${reason}`;
  return {
    kind: 'failure',
    message: `Internal error occurred: ${message}`,
    reason: 'InternalError',
    httpStatus: 500,
  };
}
