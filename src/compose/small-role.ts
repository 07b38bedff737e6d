/** What roles without sessions begin and end with: a log, metrics, what catches exceptions, and a port for the people who run them. */
import { collectDefaultMetrics, Registry } from 'prom-client';
import type { CommandContext } from '../config/command-context.ts';
import type { ListenAddress } from '../listen.ts';
import { openLastResort } from '../observe/last-resort.ts';
import type { LogLevel } from '../observe/log-levels.ts';
import { createLogger, type Logger } from '../observe/logger.ts';
import { openOpsServer, type OpsServer, type ReadinessCheck } from '../observe/ops-server.ts';
import { CleanUp } from './clean-up.ts';

/** What each of them can be told. */
interface SmallRoleConfig {
  readonly logLevel: LogLevel;
  readonly opsListen: ListenAddress | undefined;
}

/** To be used with `await using`: what it has opened and what was deferred ends with it. */
export class SmallRole extends CleanUp {
  readonly log: Logger;
  readonly registry = new Registry();
  /** Aborts when the role is to end. */
  readonly signal: AbortSignal;
  readonly #opsListen: ListenAddress | undefined;

  constructor({ logLevel, opsListen }: SmallRoleConfig, { signal: stop }: CommandContext) {
    super();
    this.log = createLogger({ level: logLevel });
    collectDefaultMetrics({ register: this.registry });
    const resort = openLastResort({ log: this.log, stop, registry: this.registry });
    this.defer(() => resort.close());
    this.signal = resort.signal;
    this.#opsListen = opsListen;
  }

  /**
   * @returns where it listens; undefined when that is turned off
   * @throws TailcastError `START_FAILED` when it cannot listen
   */
  async openOps(checks: readonly ReadinessCheck[]): Promise<OpsServer['address'] | undefined> {
    if (this.#opsListen === undefined) return undefined;
    const ops = await openOpsServer({ ...this.#opsListen, metrics: this.registry, checks });
    this.defer(() => ops.close());
    return ops.address;
  }
}
