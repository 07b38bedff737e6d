/**
 * Keeps a number of worker processes going: starts them, replaces those that end, restarts them one after another, and
 * ends them all.
 *
 * ```
 *  fork ──► starting ──ready──► ready ──────────── stop ──► stopping ──► ended
 *              │                  │
 *              └── ended by itself ┴──► replaced, later each time
 * ```
 *
 * A worker has a slot, and its replacement has the same one. What happens to a slot happens one thing after another.
 */
import { createBackoff, type Backoff } from '../async/backoff.ts';
import { createSequence, type Sequence } from '../async/sequence.ts';
import { TailcastError, errorText } from '../errors.ts';
import type { Logger } from '../observe/logger.ts';
import type { FromWorker, ToWorker } from './messages.ts';

/** How a process ended. */
export interface WorkerExit {
  readonly code: number | null;
  readonly signal: string | null;
}

/** A process that has been started; what is sent to one that has ended is lost. */
export interface WorkerProcess {
  readonly pid: number | undefined;
  send(message: ToWorker): void;
  onMessage(listener: (message: FromWorker) => void): void;
  kill(signal: 'SIGKILL'): void;
  /** Resolves, never rejects. */
  readonly exited: Promise<WorkerExit>;
}

/** One process, from its start to its end. */
export interface Worker {
  readonly slot: number;
  readonly process: WorkerProcess;
  readonly state: 'starting' | 'ready' | 'stopping';
}

export interface SupervisorTimes {
  /** How long a worker may take until it serves. */
  readonly readyMs: number;
  /** Pause before a worker is replaced the first time; doubles up to `maxBackoffMs`. */
  readonly backoffMs: number;
  readonly maxBackoffMs: number;
  /** A worker that lived this long was no failure from the start: its replacement comes soon again. */
  readonly stableMs: number;
  /** How long a worker may take to end after it was told to. */
  readonly stopMs: number;
}

export interface SupervisorOptions {
  readonly count: number;
  readonly fork: (slot: number) => WorkerProcess;
  readonly times: SupervisorTimes;
  readonly monotonicMs: () => number;
  readonly log: Logger;
  readonly onMessage: (worker: Worker, message: FromWorker) => void;
  /** @param wanted the worker had been told to end */
  readonly onEnd: (worker: Worker, exit: WorkerExit, wanted: boolean) => void;
}

interface Running extends Worker {
  state: 'starting' | 'ready' | 'stopping';
  readonly startedAtMs: number;
  readonly ready: PromiseWithResolvers<void>;
}

interface Slot {
  readonly number: number;
  current: Running | undefined;
  timer: NodeJS.Timeout | undefined;
  /** What is done to the slot, one after another. */
  readonly next: Sequence;
  readonly backoff: Backoff;
}

/** One per primary process. */
export class Supervisor {
  readonly #options: SupervisorOptions;
  readonly #slots: readonly Slot[];
  readonly #running = new Set<Running>();
  #stopping = false;

  constructor(options: SupervisorOptions) {
    this.#options = options;
    this.#slots = Array.from({ length: options.count }, (_, number) => ({
      number,
      current: undefined,
      timer: undefined,
      next: createSequence(),
      backoff: createBackoff({ baseMs: options.times.backoffMs, maxMs: options.times.maxBackoffMs }),
    }));
  }

  /** All processes, those that drain included. */
  get workers(): readonly Worker[] {
    return [...this.#running];
  }

  /** The worker that serves in a slot; undefined while it is being replaced. */
  serving(slot: number): Worker | undefined {
    return this.#slots[slot]?.current;
  }

  /**
   * Starts all workers. The first one starts alone: it makes what all of them share and finds out whether the settings are
   * any good.
   *
   * @throws TailcastError `WORKER_FAILED`; no worker is left then
   */
  async start(): Promise<void> {
    const [first, ...others] = this.#slots;
    try {
      if (first !== undefined) await this.#fill(first);
      await Promise.all(others.map((slot) => this.#fill(slot)));
    } catch (error) {
      await this.stop();
      throw new TailcastError('WORKER_FAILED', errorText(error), { cause: error });
    }
  }

  /**
   * Replaces all workers, one after another: the new one serves before the old one stops. When a new one does not come up the rest is left as it is.
   *
   * @returns whether all were replaced
   */
  async restart(): Promise<boolean> {
    for (const slot of this.#slots) {
      try {
        await slot.next(() => this.#renew(slot));
      } catch (error) {
        if (this.#stopping) return false;
        this.#options.log.error({ worker: slot.number, error: errorText(error) }, 'restart was given up');
        return false;
      }
    }
    return true;
  }

  /** Ends all workers; resolves when they have ended. Can be called again. */
  async stop(): Promise<void> {
    this.#stopping = true;
    for (const slot of this.#slots) clearTimeout(slot.timer);
    await Promise.all([...this.#running].map((worker) => this.#end(worker)));
  }

  /** Puts a worker into an empty slot. */
  async #fill(slot: Slot): Promise<void> {
    const worker = this.#launch(slot);
    await worker.ready.promise;
    slot.current = worker;
  }

  async #renew(slot: Slot): Promise<void> {
    if (this.#stopping) throw new Error('everything is being stopped');
    slot.backoff.reset();
    const old = slot.current;
    try {
      await this.#fill(slot);
    } catch (error) {
      this.#replaceLater(slot);
      throw error;
    }
    if (old !== undefined && this.#running.has(old)) await this.#end(old);
  }

  #launch(slot: Slot): Running {
    const { fork, times, monotonicMs, log } = this.#options;
    if (this.#stopping) throw new Error('everything is being stopped');
    const process = fork(slot.number);
    const worker: Running = {
      slot: slot.number,
      process,
      state: 'starting',
      startedAtMs: monotonicMs(),
      ready: Promise.withResolvers(),
    };
    // whoever does not wait for it need not care
    worker.ready.promise.catch(() => undefined);
    this.#running.add(worker);
    const deadline = setTimeout(() => {
      log.error({ worker: slot.number, pid: process.pid }, 'worker did not come up in time');
      process.kill('SIGKILL');
    }, times.readyMs);
    process.onMessage((message) => {
      // whatever it asks for, nobody would give it back
      if (!this.#running.has(worker)) return;
      if (message.kind === 'ready' && worker.state === 'starting') {
        clearTimeout(deadline);
        worker.state = 'ready';
        worker.ready.resolve();
      }
      if (message.kind === 'failing') this.#leave(slot, worker);
      this.#options.onMessage(worker, message);
    });
    void process.exited.then((exit) => {
      clearTimeout(deadline);
      this.#ended(slot, worker, exit);
    });
    return worker;
  }

  /** It drains of its own accord; its replacement comes at once. */
  #leave(slot: Slot, worker: Running): void {
    const { log, times } = this.#options;
    log.error({ worker: slot.number, pid: worker.process.pid }, 'worker has failed and drains');
    const limit = setTimeout(() => worker.process.kill('SIGKILL'), times.stopMs);
    void worker.process.exited.then(() => clearTimeout(limit));
    if (slot.current !== worker) return;
    slot.current = undefined;
    this.#replaceLater(slot);
  }

  #ended(slot: Slot, worker: Running, exit: WorkerExit): void {
    const { times, monotonicMs } = this.#options;
    this.#running.delete(worker);
    this.#options.onEnd(worker, exit, worker.state === 'stopping');
    worker.ready.reject(new Error(`it ended with ${describeExit(exit)}`));
    if (slot.current !== worker) return;
    slot.current = undefined;
    if (monotonicMs() - worker.startedAtMs >= times.stableMs) slot.backoff.reset();
    this.#replaceLater(slot);
  }

  #replaceLater(slot: Slot): void {
    if (this.#stopping || slot.timer !== undefined) return;
    slot.timer = setTimeout(() => {
      slot.timer = undefined;
      void slot
        .next(async () => {
          if (this.#stopping || slot.current !== undefined) return;
          await this.#fill(slot);
        })
        .catch((error: unknown) => {
          this.#options.log.error(
            { worker: slot.number, error: errorText(error) },
            'worker could not be replaced',
          );
          this.#replaceLater(slot);
        });
    }, slot.backoff.next());
  }

  async #end(worker: Running): Promise<void> {
    worker.state = 'stopping';
    worker.process.send({ kind: 'stop' });
    const limit = setTimeout(() => {
      this.#options.log.error({ worker: worker.slot, pid: worker.process.pid }, 'worker did not end in time');
      worker.process.kill('SIGKILL');
    }, this.#options.times.stopMs);
    await worker.process.exited;
    clearTimeout(limit);
  }
}

/** `code 1`, or the name of a signal. */
export function describeExit({ code, signal }: WorkerExit): string {
  return signal ?? `code ${code ?? 'unknown'}`;
}
