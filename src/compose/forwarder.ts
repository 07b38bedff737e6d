/** Builds the forwarder role. */
import type { CommandContext } from '../config/command-context.ts';
import type { ForwarderConfig } from '../config/forwarder.ts';
import { cannotListen, TailcastError } from '../errors.ts';
import { createForwarderMetrics } from '../forwarder/metrics.ts';
import { openForwarder, type Forwarder } from '../forwarder/server.ts';
import { isLoopback } from '../tailnet/addresses.ts';
import { createLocalApi } from '../tailnet/local-api.ts';
import { tailscaledCheck } from './readiness.ts';
import { SmallRole } from './small-role.ts';
import { untilAborted } from '../async/with-timeout.ts';

/** The forwarder listens on all addresses of the pod. */
const HOST = '::';

/**
 * `tailcast forwarder`: forwards connections into the tailnet until `signal` aborts.
 *
 * @throws TailcastError `CONFIG_INVALID` without targets, `START_FAILED` if it cannot listen
 */
export async function runForwarder(config: ForwarderConfig, context: CommandContext): Promise<void> {
  const { target, ports, socket } = config;
  if (target === undefined)
    throw new TailcastError('CONFIG_INVALID', 'target: name where connections go (--target)');
  if (ports.length === 0)
    throw new TailcastError('CONFIG_INVALID', 'ports: name those to listen on (--ports)');
  await using role = new SmallRole(config, context);
  const { log, registry, signal } = role;
  const localApi = createLocalApi({ socketPath: socket ?? '' });
  role.defer(() => localApi.close());
  const opened: { forwarder?: Forwarder } = {};
  const { ended } = createForwarderMetrics(registry, () => opened.forwarder?.open ?? 0);
  const forwarder = await openForwarder({
    host: HOST,
    ports,
    // If a userspace tailscaled forwards a connection of a tailnet peer to this pod, the connection comes from a
    // loopback address. Through the forwarder, the peer would reach the target with the rights of this tailnet node.
    accepts: (address) => !isLoopback(address),
    dial: (port, use) => localApi.dial(target, port, use),
    onEnd: (outcome) => ended.inc({ outcome }),
    log,
  }).catch(cannotListen(`${HOST}, ${ports.join(', ')}`));
  opened.forwarder = forwarder;
  role.defer(() => forwarder.close());
  const ops = await role.openOps([tailscaledCheck(localApi)]);
  log.info({ target, ports, ops }, 'forwarder is ready');
  await untilAborted(signal);
}
