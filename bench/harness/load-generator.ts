/**
 * Controls the process of the load generator. The process runs one plan at a time. If a plan exceeds its time limit, a
 * new process replaces the old one.
 */
import { spawn, type ChildProcess } from 'node:child_process';
import { createInterface } from 'node:readline';
import type { LoadMessage, LoadPlan, LoadResult, Target } from '../programs/plan.ts';

export class LoadGenerator {
  readonly #program: string;
  #child: ChildProcess | undefined;
  #onMessage: (message: LoadMessage) => void = () => {};
  #onEnd: (error: Error) => void = () => {};

  /** @param program the compiled `programs/load.js` */
  constructor(program: string) {
    this.#program = program;
  }

  /**
   * Runs a plan. Calls `onSteady` when the load is steady, for example after all connections of the plan are open.
   * @throws Error for a wrong response, a broken connection, or after `timeoutMs`
   */
  run(
    target: Target,
    plan: LoadPlan,
    timeoutMs: number,
    onSteady: () => void = () => {},
  ): Promise<LoadResult> {
    const child = (this.#child ??= this.#start());
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        reject(new Error(`not done within ${timeoutMs / 1000} s`));
        this.stop();
      }, timeoutMs);
      const done = (): void => {
        clearTimeout(timer);
        this.#onMessage = () => {};
        this.#onEnd = () => {};
      };
      this.#onMessage = (message) => {
        if ('steady' in message) return onSteady();
        done();
        if ('result' in message) return resolve(message.result);
        // stop the process after a failed plan, because the plan's connections would disturb the next plan
        this.stop();
        reject(new Error(message.error));
      };
      this.#onEnd = (error) => {
        done();
        reject(error);
      };
      child.stdin?.write(`${JSON.stringify({ target, plan })}\n`);
    });
  }

  /** Stops the process; a running plan fails. */
  stop(): void {
    this.#child?.kill('SIGKILL');
    this.#child = undefined;
    this.#onEnd(new Error('the load generator was stopped'));
  }

  #start(): ChildProcess {
    const child = spawn(process.execPath, [this.#program], { stdio: ['pipe', 'pipe', 'inherit'] });
    createInterface({ input: child.stdout }).on('line', (line) => {
      if (this.#child === child) this.#onMessage(JSON.parse(line) as LoadMessage);
    });
    child.once('exit', () => {
      if (this.#child !== child) return;
      this.#child = undefined;
      this.#onEnd(new Error('the load generator has ended'));
    });
    return child;
  }
}
