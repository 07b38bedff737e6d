/** Runs the gateway in one process, or in several that share its port, with one process over them. */
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:net';
import { Registry } from 'prom-client';
import type { CommandContext } from '../config/command-context.ts';
import type { GatewayConfig } from '../config/gateway.ts';
import { TailcastError, errorText } from '../errors.ts';
import { listenOn } from '../listen.ts';
import { createLogger, type Logger } from '../observe/logger.ts';
import { openLastResort } from '../observe/last-resort.ts';
import { openOpsServer, type OpsServer } from '../observe/ops-server.ts';
import { createClusterFork, isWorker, openPrimaryChannel } from '../workers/cluster-process.ts';
import { createLineForwarder } from '../workers/forward-lines.ts';
import type { FromWorker } from '../workers/messages.ts';
import { createPrimaryMetrics } from '../workers/primary-metrics.ts';
import { createQuestions } from '../workers/questions.ts';
import { SessionPlaces } from '../workers/session-places.ts';
import { SummedMetrics } from '../workers/summed-metrics.ts';
import {
  describeExit,
  Supervisor,
  type SupervisorTimes,
  type Worker,
  type WorkerExit,
} from '../workers/supervisor.ts';
import { joinPrimary, type WorkerLink } from '../workers/worker-link.ts';

/** What it needs of the settings. */
type RoleConfig = Pick<GatewayConfig, 'workers' | 'listen' | 'opsListen' | 'drainSeconds' | 'logLevel'>;

export interface RoleOptions {
  readonly config: RoleConfig;
  readonly context: CommandContext;
  /** Runs the role in this process until the signal. `link` is undefined when it is the only one. */
  readonly run: (context: CommandContext, link: WorkerLink | undefined) => Promise<void>;
}

const TIMES: Omit<SupervisorTimes, 'stopMs'> = {
  readyMs: 90_000,
  backoffMs: 200,
  maxBackoffMs: 30_000,
  stableMs: 60_000,
};
/** What a worker may take beyond its drain before it is killed: less than the 15 s that the chart gives a pod. */
const STOP_MARGIN_MS = 10_000;
/** How long a worker may take to tell its counts or its health. */
const ASK_MS = 1500;
const TICKET_KEY_BYTES = 48;

/** @throws what `run` throws; TailcastError `WORKER_FAILED` when workers do not come up at the start */
export async function runRole(options: RoleOptions): Promise<void> {
  const { config, context, run } = options;
  if (isWorker()) {
    const channel = openPrimaryChannel();
    const link = await joinPrimary(channel);
    const signal = AbortSignal.any([context.signal, link.signal]);
    try {
      await run({ ...context, signal }, link);
    } finally {
      await link.close();
    }
    return;
  }
  if (config.workers === 1) return run(context, undefined);
  await supervise(options);
}

async function supervise({ config, context }: RoleOptions): Promise<void> {
  const log = createLogger({ level: config.logLevel });
  const port = await sharedPort(config.listen);
  const primary = new Primary({ config, port, log, output: context });
  await primary.supervisor.start();
  let ops: OpsServer | undefined;
  const restart = createRestarts(primary.supervisor, log);
  process.on('SIGHUP', restart);
  const resort = openLastResort({ log, stop: context.signal });
  try {
    ops = await openOps(config, primary);
    const { host } = config.listen;
    log.info({ listen: `${host}:${port}`, workers: config.workers, ops: ops?.address }, 'workers are ready');
    if (!resort.signal.aborted) await once(resort.signal, 'abort');
    await primary.supervisor.stop();
  } finally {
    await primary.supervisor.stop();
    process.off('SIGHUP', restart);
    await ops?.close();
  }
  resort.close();
}

/** One restart at a time; those asked for meanwhile become one more. */
function createRestarts(supervisor: Supervisor, log: Logger): () => void {
  let running: Promise<void> | undefined;
  let again = false;
  async function run(): Promise<void> {
    do {
      again = false;
      log.info({}, 'restarting the workers one by one');
      if (await supervisor.restart()) log.info({}, 'all workers were restarted');
    } while (again);
    running = undefined;
  }
  return () => {
    again = running !== undefined;
    running ??= run();
  };
}

/** The process over the workers: what it knows of them, and what it does when they speak or end. */
class Primary {
  readonly supervisor: Supervisor;
  readonly #log: Logger;
  readonly #places = new SessionPlaces(() => performance.now());
  readonly #metrics = new SummedMetrics();
  readonly #questions = createQuestions(ASK_MS);
  readonly #own = createPrimaryMetrics(() => this.supervisor.workers);

  constructor(parts: {
    readonly config: RoleConfig;
    readonly port: number;
    readonly log: Logger;
    readonly output: Pick<CommandContext, 'stdout' | 'stderr'>;
  }) {
    const { config, port, log, output } = parts;
    const count = config.workers;
    const ticketKeys = randomBytes(TICKET_KEY_BYTES).toString('base64');
    const fork = createClusterFork({
      stdout: createLineForwarder(output.stdout),
      stderr: createLineForwarder(output.stderr),
    });
    this.#log = log;
    this.supervisor = new Supervisor({
      count,
      times: { ...TIMES, stopMs: config.drainSeconds * 1000 + STOP_MARGIN_MS },
      monotonicMs: () => performance.now(),
      log,
      fork(slot) {
        const worker = fork();
        worker.send({ kind: 'start', slot, count, port, ticketKeys });
        return worker;
      },
      onMessage: (worker, message) => this.#hear(worker, message),
      onEnd: (worker, exit, wanted) => this.#ended(worker, exit, wanted),
    });
  }

  /** Of all workers and of the primary, summed. A worker that does not answer counts with what it said last. */
  async metricsText(): Promise<string> {
    const { workers } = this.supervisor;
    await Promise.all(
      workers.map(async (worker) => {
        const answer = await this.#questions.ask(worker, 'metrics');
        // one that has ended meanwhile is counted already
        if (answer?.kind !== 'metrics' || !this.supervisor.workers.includes(worker)) return;
        this.#metrics.update(worker, answer.metrics);
      }),
    );
    return this.#metrics.text(await this.#own.registry.getMetricsAsJSON());
  }

  /** @throws Error saying what is wrong with a worker */
  async checkSlot(slot: number): Promise<void> {
    const worker = this.supervisor.serving(slot);
    if (worker === undefined) throw new Error('it is being replaced');
    if (worker.state === 'stopping') throw new Error('draining');
    const answer = await this.#questions.ask(worker, 'health');
    if (answer?.kind !== 'health') throw new Error('it does not answer');
    if (answer.failures.length > 0) throw new Error(answer.failures.join('; '));
  }

  #hear(worker: Worker, message: FromWorker): void {
    switch (message.kind) {
      case 'enter': {
        const refusal = this.#places.enter(worker, message.id, message.user, message.limits);
        const answer = { kind: 'place', id: message.id } as const;
        return worker.process.send(refusal === undefined ? answer : { ...answer, refusal });
      }
      case 'leave':
        return this.#places.leave(worker, message.id);
      case 'began':
        return this.#places.began(worker, message.session);
      case 'over':
        return this.#places.over(worker, message.sessionId);
      case 'last':
        return this.#metrics.update(worker, message.metrics);
      case 'metrics':
      case 'health':
        return this.#questions.answered(message);
      case 'failing':
        return;
      case 'ready':
        this.#log.info({ worker: worker.slot, pid: worker.process.pid }, 'worker is ready');
    }
  }

  #ended(worker: Worker, exit: WorkerExit, wanted: boolean): void {
    this.#metrics.retire(worker);
    const fields = { worker: worker.slot, pid: worker.process.pid, exit: describeExit(exit) };
    if (wanted) this.#log.info(fields, 'worker ended');
    else this.#log.error(fields, 'worker ended by itself');
    this.#own.ends.inc({ wanted: String(wanted) });
    for (const { session, durationMs } of this.#places.lost(worker)) {
      this.#own.lostSessions.inc();
      this.#own.sessions.inc({ outcome: 'interrupted' });
      const reason = `its worker process ended (${fields.exit})`;
      this.#log.warn({ ...session, outcome: 'interrupted', reason, durationMs }, 'session ended');
    }
  }
}

async function openOps(config: RoleConfig, primary: Primary): Promise<OpsServer | undefined> {
  if (config.opsListen === undefined) return undefined;
  return openOpsServer({
    ...config.opsListen,
    metrics: { contentType: Registry.PROMETHEUS_CONTENT_TYPE, metrics: () => primary.metricsText() },
    checks: Array.from({ length: config.workers }, (_, slot) => ({
      name: `worker ${slot}`,
      check: () => primary.checkSlot(slot),
    })),
  });
}

/** Workers that come later must find the port of the first: what the system is to choose is chosen here. */
async function sharedPort({ host, port }: RoleConfig['listen']): Promise<number> {
  if (port !== 0) return port;
  const server = createServer();
  const chosen = await listenOn(server, { host, port: 0 }).catch((error: unknown) => {
    throw new TailcastError('CONFIG_INVALID', `listen ${host}: ${errorText(error)}`, { cause: error });
  });
  server.close();
  await once(server, 'close');
  return chosen.port;
}
