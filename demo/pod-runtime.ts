import { randomBytes } from 'node:crypto';
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { TerminalSize } from '../src/wire/remotecommand/resize.ts';
import { startIdleProgram, startWebProgram, type BuiltInProgram } from './built-in-program.ts';
import { Container, timestamp, type RestartPolicy } from './container.ts';
import { chooseProgram, ephemeralContainers, podContainers, type ContainerSpec } from './container-spec.ts';
import { identify, stringAt, type ApiObject } from './json.ts';
import { describePodStatus } from './pod-status.ts';
import { findProgram, startOnPipes, type RunningProcess } from './process.ts';
import { MARKER_VARIABLE, sweepProcesses } from './sweep.ts';
import { DEFAULT_SIZE, type Terminals } from './terminal.ts';

/**
 * Runs the containers of pods as local processes, without any isolation. A container has the rights of the user who
 * started the demo. The API server of the demo therefore listens only on loopback, and requires a token.
 */
export interface PodRuntime {
  /** Starts the containers of a pod. Returns undefined if the maximum number of pods is already running. */
  start(pod: ApiObject): RunningPod | undefined;
  find(namespace: string, name: string): RunningPod | undefined;
  /** Starts new ephemeral containers of the pod. */
  refresh(pod: ApiObject): void;
  /** Stops the containers of a pod and their child processes, and removes the pod from the runtime. */
  stop(namespace: string, name: string, graceMs: number): Promise<void>;
  close(): Promise<void>;
}

export interface RunningPod {
  readonly name: string;
  readonly uid: string;
  readonly containers: readonly Container[];
  readonly ephemeral: readonly Container[];
  /** Returns the current status of the pod. */
  status(): ApiObject;
  /** Runs a command in a container, in addition to the container's own program. Throws `ProgramNotFound`. */
  exec(container: Container, argv: readonly string[], options: CommandOptions): RunningProcess;
  /** Returns the local port that stands for a declared container port. Throws if no container declares this port. */
  localPort(containerPort: number): Promise<number>;
}

export interface CommandOptions {
  readonly tty: boolean;
  readonly stdin: boolean;
  /** Initial size of the terminal. */
  readonly size?: TerminalSize | undefined;
}

export interface PodRuntimeDependencies {
  readonly terminals: Terminals;
  /** An empty directory that this runtime may use. The caller removes the directory afterwards. */
  readonly scratch: string;
  readonly shell: string;
  readonly searchPath: string;
  readonly now: () => Date;
  readonly maxPods: number;
  /** Called after `status()` of a pod has changed. */
  readonly onChange: (namespace: string, name: string) => void;
}

type PodDependencies = PodRuntimeDependencies & { readonly marker: string; readonly ip: string };

/** Creates a runtime without pods. */
export function createPodRuntime(dependencies: PodRuntimeDependencies): PodRuntime {
  const marker = randomBytes(8).toString('hex');
  const pods = new Map<string, LocalPod>();
  let nextAddress = 2;
  return {
    start(pod) {
      if (pods.size >= dependencies.maxPods) return undefined;
      const ip = `10.42.${String(nextAddress >> 8)}.${String(nextAddress & 0xff)}`;
      nextAddress += 1;
      const opened = new LocalPod(pod, { ...dependencies, marker, ip });
      pods.set(keyOf(identify(pod)), opened);
      return opened;
    },
    find: (namespace, name) => pods.get(keyOf({ namespace, name })),
    refresh: (pod) => pods.get(keyOf(identify(pod)))?.refresh(pod),
    async stop(namespace, name, graceMs) {
      const key = keyOf({ namespace, name });
      const pod = pods.get(key);
      await pod?.end(graceMs);
      if (pods.get(key) === pod) pods.delete(key);
    },
    async close() {
      await Promise.all([...pods.values()].map((pod) => pod.end(0)));
      pods.clear();
      sweepProcesses(marker);
    },
  };
}

function keyOf({ namespace, name }: { readonly namespace: string; readonly name: string }): string {
  return `${namespace}/${name}`;
}

/** The containers of a pod, and additional commands that run in it. */
class LocalPod implements RunningPod {
  readonly name: string;
  readonly uid: string;
  readonly containers: readonly Container[];
  readonly ephemeral: Container[] = [];
  readonly #namespace: string;
  readonly #directory: string;
  readonly #startTime: string;
  readonly #dependencies: PodDependencies;
  readonly #commands = new Set<RunningProcess>();

  constructor(pod: ApiObject, dependencies: PodDependencies) {
    const { namespace, name, uid } = identify(pod);
    this.name = name;
    this.uid = uid;
    this.#namespace = namespace;
    this.#dependencies = dependencies;
    this.#startTime = timestamp(dependencies.now());
    this.#directory = prepareHome(join(dependencies.scratch, uid), `${namespace}/${name}`);
    this.containers = podContainers(pod).map((spec) => this.#run(spec, restartPolicyOf(pod)));
  }

  get #marker(): string {
    return `${this.#dependencies.marker}/${this.uid}`;
  }

  status(): ApiObject {
    const { containers, ephemeral } = this;
    return describePodStatus({
      containers,
      ephemeral,
      ip: this.#dependencies.ip,
      startTime: this.#startTime,
    });
  }

  exec(container: Container, argv: readonly string[], options: CommandOptions): RunningProcess {
    const command = this.#launch(container.spec, argv, options);
    this.#commands.add(command);
    void command.exited.then(() => this.#commands.delete(command));
    return command;
  }

  async localPort(containerPort: number): Promise<number> {
    const owner = this.containers.find(({ spec }) => spec.ports.includes(containerPort));
    if (owner === undefined) {
      throw new Error(`pod ${this.name} declares no container port ${String(containerPort)}`);
    }
    return (await owner.port()) ?? containerPort;
  }

  refresh(pod: ApiObject): void {
    for (const spec of ephemeralContainers(pod)) {
      if (this.ephemeral.some((container) => container.spec.name === spec.name)) continue;
      this.ephemeral.push(this.#run(spec, 'Never'));
    }
  }

  async end(graceMs: number): Promise<void> {
    await Promise.all([...this.containers, ...this.ephemeral].map((container) => container.stop(graceMs)));
    for (const command of this.#commands) command.kill('SIGKILL');
    sweepProcesses(this.#marker);
    rmSync(this.#directory, { recursive: true, force: true });
  }

  #run(spec: ContainerSpec, restartPolicy: RestartPolicy): Container {
    return new Container(spec, {
      id: randomBytes(32).toString('hex'),
      restartPolicy,
      now: this.#dependencies.now,
      start: (size) => this.#startProgram(spec, size),
      onChange: () => {
        this.#dependencies.onChange(this.#namespace, this.name);
      },
    });
  }

  #startProgram(spec: ContainerSpec, size: TerminalSize): RunningProcess | BuiltInProgram {
    const program = chooseProgram(spec, this.#dependencies.shell);
    switch (program.kind) {
      case 'command':
        return this.#launch(spec, program.argv, { tty: spec.tty, stdin: spec.stdin, size });
      case 'web':
        return startWebProgram(this.name);
      case 'idle':
        return startIdleProgram(program.lines);
    }
  }

  #launch(spec: ContainerSpec, argv: readonly string[], options: CommandOptions): RunningProcess {
    const { searchPath, terminals } = this.#dependencies;
    const { tty, stdin, size = DEFAULT_SIZE } = options;
    const directory = this.#directory;
    const program = findProgram(argv[0] ?? '', searchPath, directory);
    const plan = { program, argv, directory, environment: this.#environment(spec, tty), stdin };
    return tty ? terminals.start(plan, size) : startOnPipes(plan);
  }

  #environment(spec: ContainerSpec, tty: boolean): Record<string, string> {
    return {
      PATH: this.#dependencies.searchPath,
      HOME: this.#directory,
      HOSTNAME: this.name,
      LANG: 'C.UTF-8',
      PS1: `${this.#namespace}/${this.name} $ `,
      ...(tty ? { TERM: 'xterm-256color' } : {}),
      ...spec.environment,
      [MARKER_VARIABLE]: this.#marker,
    };
  }
}

function restartPolicyOf(pod: ApiObject): RestartPolicy {
  const policy = stringAt(pod, 'spec', 'restartPolicy');
  return policy === 'Never' || policy === 'OnFailure' ? policy : 'Always';
}

/**
 * Creates a home directory for a pod. Shells with this home directory show the pod's name in the prompt, even if
 * start-up files of the OS set another prompt.
 */
function prepareHome(directory: string, title: string): string {
  mkdirSync(directory, { recursive: true, mode: 0o700 });
  writeFileSync(join(directory, '.bashrc'), `PS1='\\[\\e[36m\\]${title}\\[\\e[0m\\]:\\w\\$ '\n`);
  return directory;
}
