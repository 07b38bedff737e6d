import { Writable } from 'node:stream';
import { pause } from '../src/async/pause.ts';
import type { TerminalSize } from '../src/wire/remotecommand/resize.ts';
import type { ContainerSpec } from './container-spec.ts';
import type { BuiltInProgram } from './built-in-program.ts';
import type { ApiObject } from './json.ts';
import { createLogBuffer, type LogBuffer } from './logs.ts';
import type { RunningProcess } from './process.ts';
import { DEFAULT_SIZE } from './terminal.ts';

export type RestartPolicy = 'Always' | 'OnFailure' | 'Never';

/** State of a container, as in `containerStatuses[].state`. Times are RFC 3339. */
export type ContainerState =
  | { readonly kind: 'waiting'; readonly reason: string; readonly message?: string }
  | { readonly kind: 'running'; readonly startedAt: string }
  | {
      readonly kind: 'terminated';
      readonly startedAt: string;
      readonly finishedAt: string;
      readonly exitCode: number;
      readonly signal: number;
      readonly reason: string;
      readonly message?: string;
    };

export interface ContainerDependencies {
  /**
   * Starts the program. `size` is the initial size of the program's terminal. If this function throws, the container
   * exits with code 128.
   */
  readonly start: (size: TerminalSize) => RunningProcess | BuiltInProgram;
  readonly restartPolicy: RestartPolicy;
  readonly onChange: () => void;
  readonly now: () => Date;
  readonly id: string;
}

/** Time that a container with `stdinOnce` waits for its first client. Then the container starts without a client. */
const FIRST_ATTACH_MS = 3_000;
/** Second restart delay. The restart delays are 0, 10, 20, 40 … seconds, up to 5 minutes, as in the kubelet. */
const BACKOFF_MS = 10_000;
const MAX_BACKOFF_MS = 300_000;

/**
 * A container of a pod: a program with a log and a restart policy. Clients can attach to the container. A container
 * starts automatically, after the code that created it has returned.
 */
export class Container {
  readonly spec: ContainerSpec;
  readonly id: string;
  readonly #dependencies: ContainerDependencies;
  readonly #halted = new AbortController();
  readonly #started = Promise.withResolvers<undefined>();
  readonly #firstAttach = Promise.withResolvers<undefined>();
  readonly #lived: Promise<void>;
  #state: ContainerState = { kind: 'waiting', reason: 'ContainerCreating' };
  #lastState: ContainerState | undefined;
  #restartCount = 0;
  #finished = false;
  #process: RunningProcess | BuiltInProgram | undefined;
  #size: TerminalSize = DEFAULT_SIZE;
  #log: LogBuffer;
  #previousLog: LogBuffer | undefined;

  constructor(spec: ContainerSpec, dependencies: ContainerDependencies) {
    this.spec = spec;
    this.id = dependencies.id;
    this.#dependencies = dependencies;
    this.#log = this.#createLog();
    this.#lived = Promise.resolve().then(() => this.#live());
  }

  get state(): ContainerState {
    return this.#state;
  }

  get lastState(): ContainerState | undefined {
    return this.#lastState;
  }

  get restartCount(): number {
    return this.#restartCount;
  }

  /** True if the container has exited and will not restart. */
  get finished(): boolean {
    return this.#finished;
  }

  /** Returns the local port of a built-in web server; undefined for other programs. */
  async port(): Promise<number | undefined> {
    const program = this.#process;
    return program !== undefined && 'port' in program ? await program.port : undefined;
  }

  /** Returns the log of the current run, or of the previous run. */
  log(previous: boolean): LogBuffer | undefined {
    return previous ? this.#previousLog : this.#log;
  }

  /**
   * Waits until the program has started, and returns it to a client that attaches. Returns undefined if the container
   * has exited. `size` is the initial size of the terminal.
   */
  async attach(size: TerminalSize | undefined): Promise<RunningProcess | undefined> {
    this.#size = size ?? this.#size;
    this.#firstAttach.resolve(undefined);
    await this.#started.promise;
    return this.#process;
  }

  /**
   * Stops the program with SIGTERM, and after `graceMs` with SIGKILL. Resolves after the program has exited. The
   * program does not restart.
   */
  async stop(graceMs: number): Promise<void> {
    this.#halted.abort();
    this.#process?.kill('SIGTERM');
    const timer = setTimeout(() => this.#process?.kill('SIGKILL'), graceMs);
    await this.#lived;
    clearTimeout(timer);
  }

  async #live(): Promise<void> {
    const { restartPolicy, onChange } = this.#dependencies;
    for (;;) {
      const exitCode = await this.#runOnce();
      const again = restartPolicy === 'Always' || (restartPolicy === 'OnFailure' && exitCode !== 0);
      if (!again || !(await this.#prepareRestart())) break;
    }
    this.#finished = true;
    this.#started.resolve(undefined);
    onChange();
  }

  /** Waits for the restart delay. @returns false if the container was stopped during the delay */
  async #prepareRestart(): Promise<boolean> {
    if (this.#halted.signal.aborted) return false;
    this.#lastState = this.#state;
    this.#previousLog = this.#log;
    if (this.#restartCount > 0) {
      const message = `back-off restarting failed container ${this.spec.name}`;
      this.#state = { kind: 'waiting', reason: 'CrashLoopBackOff', message };
      this.#dependencies.onChange();
      const delayMs = Math.min(BACKOFF_MS * 2 ** (this.#restartCount - 1), MAX_BACKOFF_MS);
      await pause(delayMs, this.#halted.signal);
    }
    if (this.#halted.signal.aborted) return false;
    this.#restartCount += 1;
    this.#log = this.#createLog();
    return true;
  }

  async #runOnce(): Promise<number> {
    const startedAt = timestamp(this.#dependencies.now());
    this.#state = { kind: 'running', startedAt };
    this.#dependencies.onChange();
    if (this.spec.stdinOnce) {
      await Promise.race([this.#firstAttach.promise, pause(FIRST_ATTACH_MS, this.#halted.signal)]);
    }
    if (this.#halted.signal.aborted) return this.#end(startedAt, { code: 137, signal: 9, reason: 'Error' });
    let program: RunningProcess | BuiltInProgram;
    try {
      program = this.#dependencies.start(this.#size);
    } catch (error) {
      const message = error instanceof Error ? error.message : String(error);
      return this.#end(startedAt, { code: 128, signal: 0, reason: 'StartError', message });
    }
    this.#process = program;
    program.stdout.subscribe(createLogSink(this.#log, 'stdout'));
    program.stderr?.subscribe(createLogSink(this.#log, 'stderr'));
    this.#started.resolve(undefined);
    const { code, signal } = await program.exited;
    return this.#end(startedAt, { code, signal, reason: code === 0 ? 'Completed' : 'Error' });
  }

  #end(
    startedAt: string,
    {
      code,
      ...rest
    }: { readonly code: number; readonly signal: number; readonly reason: string; readonly message?: string },
  ): number {
    this.#log.end();
    this.#process = undefined;
    const finishedAt = timestamp(this.#dependencies.now());
    this.#state = { kind: 'terminated', startedAt, finishedAt, exitCode: code, ...rest };
    return code;
  }

  #createLog(): LogBuffer {
    return createLogBuffer(() => this.#dependencies.now().getTime());
  }
}

/** Returns the entry of a container in `containerStatuses[]`. */
export function containerStatus(container: Container): ApiObject {
  const { spec, state, lastState } = container;
  return {
    name: spec.name,
    state: describeState(state, container.id),
    lastState: lastState === undefined ? {} : describeState(lastState, container.id),
    ready: state.kind === 'running',
    started: state.kind === 'running',
    restartCount: container.restartCount,
    image: spec.image,
    imageID: `demo://${spec.image}`,
    containerID: `demo://${container.id}`,
  };
}

function describeState(state: ContainerState, id: string): ApiObject {
  const { kind, ...rest } = state;
  return { [kind]: kind === 'terminated' ? { ...rest, containerID: `demo://${id}` } : rest };
}

/** Returns an RFC 3339 time without fractions of seconds, the format of the API. */
export function timestamp(date: Date): string {
  return `${date.toISOString().slice(0, 19)}Z`;
}

function createLogSink(log: LogBuffer, source: 'stdout' | 'stderr'): Writable {
  return new Writable({
    write(chunk: Uint8Array, _encoding, done) {
      log.append(source, chunk);
      done();
    },
  });
}
