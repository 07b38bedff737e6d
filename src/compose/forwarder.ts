/** Builds the forwarder role. */
import { collectDefaultMetrics, Registry } from 'prom-client';
import type { CommandContext } from '../config/command-context.ts';
import type { ForwarderConfig } from '../config/forwarder.ts';
import { errorText, TailcastError } from '../errors.ts';
import { createForwarderMetrics } from '../forwarder/metrics.ts';
import { openForwarder, type Forwarder } from '../forwarder/server.ts';
import { openLastResort } from '../observe/last-resort.ts';
import { createLogger } from '../observe/logger.ts';
import { openOpsServer } from '../observe/ops-server.ts';
import { createLocalApi } from '../tailnet/local-api.ts';
import { CleanUp } from './clean-up.ts';
import { tailscaledCheck } from './readiness.ts';

/**
 * `tailcast forwarder`: carries connections into the tailnet until the signal.
 *
 * @throws TailcastError `CONFIG_INVALID` when there is nothing to carry, or it cannot listen
 */
export async function runForwarder(config: ForwarderConfig, context: CommandContext): Promise<void> {
  const { target, ports, host, socket } = config;
  if (target === undefined)
    throw new TailcastError('CONFIG_INVALID', 'target: name where connections go (--target)');
  if (ports.length === 0)
    throw new TailcastError('CONFIG_INVALID', 'ports: name those to listen on (--ports)');
  const log = createLogger({ level: config.logLevel });
  const registry = new Registry();
  collectDefaultMetrics({ register: registry });
  const resort = openLastResort({ log, stop: context.signal, registry });
  const { signal } = resort;
  await using cleanUp = new CleanUp();
  cleanUp.defer(() => resort.close());
  const localApi = createLocalApi({ socketPath: socket ?? '' });
  cleanUp.defer(() => localApi.close());
  const opened: { forwarder?: Forwarder } = {};
  const { ended } = createForwarderMetrics(registry, () => opened.forwarder?.open ?? 0);
  const forwarder = await openForwarder({
    host,
    ports,
    dial: (port, use) => localApi.dial(target, port, use),
    onEnd: (outcome) => ended.inc({ outcome }),
    log,
  }).catch((error: unknown) => {
    const detail = `ports: cannot listen on ${host}, ${ports.join(', ')}: ${errorText(error)}`;
    throw new TailcastError('CONFIG_INVALID', detail, { cause: error });
  });
  opened.forwarder = forwarder;
  cleanUp.defer(() => forwarder.close());
  const ops =
    config.opsListen === undefined
      ? undefined
      : await openOpsServer({
          ...config.opsListen,
          metrics: registry,
          checks: [tailscaledCheck(localApi)],
        });
  cleanUp.defer(() => ops?.close());
  log.info({ target, ports, ops: ops?.address }, 'forwarder is ready');
  const stopped = Promise.withResolvers<void>();
  if (signal.aborted) return;
  signal.addEventListener('abort', () => stopped.resolve(), { once: true });
  await stopped.promise;
}
