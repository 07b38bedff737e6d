/** Builds the gateway role. */
import { join } from 'node:path';
import type { CommandContext } from '../config/command-context.ts';
import { defaultStateDirectory } from '../config/environment.ts';
import type { GatewayConfig } from '../config/gateway.ts';
import { listenAddress } from '../config/values.ts';
import type { ListenAddress } from '../listen.ts';
import { checkFormat, GATEWAY_STATE_FORMAT } from '../folder-format.ts';
import { createEvents } from '../observe/events.ts';
import { openFatalErrors } from '../observe/fatal-errors.ts';
import { createLogger } from '../observe/logger.ts';
import { createMetrics } from '../observe/metrics.ts';
import { openOpsServer } from '../observe/ops-server.ts';
import { MAX_CONNECTIONS } from '../proxy/front/server.ts';
import { createEventPoster } from '../recording/event-poster.ts';
import { createRequestEvents } from '../recording/request-event.ts';
import { createTailnetListener, type TailnetListener } from '../tailnet/listener.ts';
import { assertPrivateProxyListener } from '../tailnet/proxied-listener.ts';
import { assertLoopbackListener } from '../tailnet/static-identity.ts';
import { openAccess } from './access.ts';
import { cannotStart } from './cannot-start.ts';
import { refuseUncoveredHosts } from './cluster-hosts.ts';
import { CleanUp } from './clean-up.ts';
import { loadPolicy } from './gateway-policy.ts';
import { openUpstream } from './gateway-upstream.ts';
import { openSettingDirectory } from './setting-directory.ts';
import { readStaticIdentity } from './static-identity-file.ts';
import { createLocalTailnet, createStaticTailnet, openCertificates, type Tailnet } from './tailnet.ts';
import type { GatewayOptions, GatewayParts } from './gateway-parts.ts';
import { openServer, requestLimits } from './gateway-server.ts';
import { untilAborted } from '../async/with-timeout.ts';

/** Number of connections beyond the limit to which the gateway still sends an error response. */
const SURPLUS_CONNECTIONS = 256;

export type RunningGateway = Awaited<ReturnType<typeof assemble>>;

/** `tailcast gateway`: runs until `signal` aborts, and then waits a limited time until sessions have finished. */
export async function runGateway(config: GatewayConfig, context: CommandContext): Promise<void> {
  const log = createLogger({ level: config.logLevel });
  const { environment } = context;
  const metrics = createMetrics({ processMetrics: true });
  const fatalErrors = openFatalErrors({ log, stop: context.signal, registry: metrics.registry });
  const { signal } = fatalErrors;
  const gateway = await startGateway({ config, environment, log, accessSink: context.stdout, metrics });
  log.info(
    {
      listen: `${gateway.host}:${gateway.port}`,
      mode: config.mode,
      apiServer: gateway.apiServer,
      ops: gateway.opsAddress,
    },
    'gateway is ready',
  );
  await untilAborted(signal);
  await gateway.close(config.drainSeconds * 1000);
  fatalErrors.close();
}

/**
 * Starts the gateway. If the start fails, closes everything that is already open.
 *
 * @throws TailcastError with the cause and the fix
 */
export async function startGateway(options: GatewayOptions): Promise<RunningGateway> {
  const stack = new CleanUp();
  try {
    const { config } = options;
    if (config.stateDirectory !== undefined)
      await openSettingDirectory('stateDirectory', config.stateDirectory);
    if (!config.k3s) return await assemble(options, stack);
    const { prepareK3s } = await import('./k3s.ts');
    const stateDirectory = stateDirectoryOf(options);
    const prepared = await prepareK3s(options, stateDirectory, stack);
    const gateway = await assemble({ ...options, config: prepared.config }, stack);
    const ca = join(stateDirectory, 'ca', 'ca.crt');
    const trust = gateway.caPem === undefined ? '' : ` --certificate-authority ${ca}`;
    const command = `tailcast kubeconfig https://${prepared.nodeName ?? gateway.host}:${gateway.port}${trust}`;
    options.log.info({ command }, 'clients add this cluster to their kubeconfig with this command');
    return gateway;
  } catch (error) {
    await stack.disposeAsync();
    throw cannotStart('gateway', error, [stateDirectoryOf(options)]);
  }
}

function stateDirectoryOf({ config, environment }: GatewayOptions): string {
  return config.stateDirectory ?? join(defaultStateDirectory(environment), 'gateway');
}

async function assemble(options: GatewayOptions, stack: CleanUp) {
  const { config, log } = options;
  const abort = new AbortController();
  const { signal } = abort;
  stack.defer(() => abort.abort(new Error('the gateway has ended')));
  const metrics = options.metrics ?? createMetrics({ processMetrics: true });
  const tailnet = await openTailnet(options, signal);
  const limits = requestLimits(options);
  const policy = loadPolicy(config.policy);
  const stateDirectory = stateDirectoryOf(options);
  await checkFormat(stateDirectory, GATEWAY_STATE_FORMAT);
  const events = createEvents(metrics, log);
  const poster = createEventPoster({ dial: tailnet.dialRecorder, nowMs: () => performance.now() });
  stack.defer(() => poster.close());
  const requestEvents = createRequestEvents({
    poster,
    resolveRecorderTags: tailnet.resolveRecorderTags,
    carriesTag: tailnet.carriesTag,
    events,
    unixMs: Date.now,
  });
  const shared = { metrics, policy, tailnet, events, requestEvents, limits, stateDirectory, signal, stack };
  const parts: GatewayParts = { ...options, ...shared };
  const access = await openAccess(parts);
  const upstream = await openUpstream({ ...parts, elevations: access });
  stack.defer(() => upstream.clusters?.close());
  const certificates = await openCertificates(config, stateDirectory, tailnet.localApi, { log, signal });
  const server = await openServer({ ...parts, upstream, access });
  const ops = await openOpsServer(config.opsListen, {
    metrics: metrics.registry,
    draining: () => server.draining,
    checks: [...tailnet.checks, upstream.check],
  });
  stack.defer(() => ops?.close());
  const listeners = await listenAll(config, certificates, { log, upstream, stack });
  for (const listener of listeners) {
    listener.onConnection((socket, alpn, peer) => server.serve(socket, alpn, peer));
  }
  const [{ address }] = listeners;
  return {
    host: address.address,
    port: address.port,
    /** CA certificate that clients need if the gateway's certificate is self-signed. */
    caPem: certificates?.caPem,
    apiServer: upstream.describe(),
    opsAddress: ops?.address,
    /** Waits up to `limitMs` until sessions and requests have finished, then closes everything. */
    async close(limitMs: number) {
      const closed = listeners.map((one) => one.close(AbortSignal.timeout(limitMs + 1000)));
      await server.drain(limitMs, () => sum(listeners.map(({ halfOpenConnections }) => halfOpenConnections)));
      await Promise.all(closed);
      await stack.disposeAsync();
    },
  };
}

async function openTailnet(options: GatewayOptions, signal: AbortSignal): Promise<Tailnet> {
  const { config, log } = options;
  if (config.identity === 'static') {
    return createStaticTailnet(
      options.identity ?? (await readStaticIdentity(config.staticIdentity)),
      config.listen.host,
    );
  }
  if (config.proxyProtocol === 'require') assertPrivateProxyListener(config.listen.host);
  const tailnet = createLocalTailnet(config, { log, signal });
  // A missing socket of tailscaled is reported here instead of at the first request.
  for (const readiness of tailnet.checks) await readiness.check(AbortSignal.timeout(10_000));
  return tailnet;
}

/** Opens the gateway's listener, and the separate listeners of clusters with `listen`. */
async function listenAll(
  config: GatewayConfig,
  certificates: Awaited<ReturnType<typeof openCertificates>>,
  {
    log,
    upstream: { clusters },
    stack,
  }: Pick<Parameters<typeof openServer>[0], 'log' | 'upstream' | 'stack'>,
): Promise<readonly [TailnetListener, ...TailnetListener[]]> {
  const { proxyProtocol } = config;
  const maxConnections = MAX_CONNECTIONS + SURPLUS_CONNECTIONS;
  const withEntry = clusters !== undefined;
  const source =
    clusters && certificates ? refuseUncoveredHosts({ config, clusters, certificates, log }) : certificates;
  const listen = async (address: ListenAddress, cluster?: string): Promise<TailnetListener> => {
    const common = { ...address, proxyProtocol, log, maxConnections, withEntry, cluster };
    const listener = await createTailnetListener(
      source === undefined ? { ...common, tls: 'none' } : { ...common, certificates: source },
    );
    stack.defer(() => listener.close(AbortSignal.abort()));
    return listener;
  };
  const own = await Promise.all(
    [...(clusters?.listeners ?? [])].map(([name, text]) => {
      const address = listenAddress(text);
      if (config.identity === 'static') assertLoopbackListener(address.host);
      else if (proxyProtocol === 'require') assertPrivateProxyListener(address.host);
      return listen(address, name);
    }),
  );
  return [await listen(config.listen), ...own];
}

function sum(numbers: readonly number[]): number {
  return numbers.reduce((total, number) => total + number, 0);
}
