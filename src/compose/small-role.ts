/** Common parts of roles that handle no sessions: log, metrics, exception handler and operations port. */
import { collectDefaultMetrics, Registry } from 'prom-client';
import type { CommandContext } from '../config/command-context.ts';
import type { ListenAddress } from '../listen.ts';
import { openFatalErrors } from '../observe/fatal-errors.ts';
import type { LogLevel } from '../observe/log-levels.ts';
import { createLogger, type Logger } from '../observe/logger.ts';
import { openOpsServer, type OpsServer, type ReadinessCheck } from '../observe/ops-server.ts';
import { CleanUp } from './clean-up.ts';

/** Common settings of these roles. */
interface SmallRoleConfig {
  readonly logLevel: LogLevel;
  readonly opsListen: ListenAddress | undefined;
}

/** A role that is declared with `await using`. Its disposal closes the open resources and runs the deferred actions. */
export class SmallRole extends CleanUp {
  readonly log: Logger;
  readonly registry = new Registry();
  /** Aborts when the role must stop. */
  readonly signal: AbortSignal;
  readonly #opsListen: ListenAddress | undefined;

  constructor({ logLevel, opsListen }: SmallRoleConfig, { signal: stop }: CommandContext) {
    super();
    this.log = createLogger({ level: logLevel });
    collectDefaultMetrics({ register: this.registry });
    const fatalErrors = openFatalErrors({ log: this.log, stop, registry: this.registry });
    this.defer(() => fatalErrors.close());
    this.signal = fatalErrors.signal;
    this.#opsListen = opsListen;
  }

  /**
   * @returns the address of the operations port; undefined if the port is disabled
   * @throws TailcastError `START_FAILED` if the role cannot listen
   */
  async openOps(checks: readonly ReadinessCheck[]): Promise<OpsServer['address'] | undefined> {
    const ops = await openOpsServer(this.#opsListen, { metrics: this.registry, checks });
    this.defer(() => ops?.close());
    return ops?.address;
  }
}
