/** Builds the gateway role. The only module that knows all parts of it. */
import { openAccountRefusals } from './account-refusals.ts';
import { homedir } from 'node:os';
import { join } from 'node:path';
import type { CommandContext } from '../config/command-context.ts';
import { defaultStateDirectory } from '../config/environment.ts';
import type { GatewayConfig } from '../config/gateway.ts';
import { errorText } from '../errors.ts';
import { checkFormat, GATEWAY_STATE_FORMAT } from '../folder-format.ts';
import { createApiServer, type ApiServer, type ApiServerOptions } from '../kube/api-server.ts';
import { capacityOf, readMemory } from '../memory/capacity.ts';
import { collectEarly } from '../memory/stream-garbage.ts';
import { createAccessLog, createNullAccessLog, type LineSink } from '../observe/access-log.ts';
import { createEvents } from '../observe/events.ts';
import { openFatalErrors } from '../observe/fatal-errors.ts';
import { createLogger, type Logger } from '../observe/logger.ts';
import { createMetrics, type Metrics } from '../observe/metrics.ts';
import { openOpsServer, type OpsServer, type ReadinessCheck } from '../observe/ops-server.ts';
import { createRechecks } from '../proxy/gate/recheck.ts';
import { createUserLimits, type UserLimits } from '../proxy/front/user-limits.ts';
import { createProxyServer, MAX_CONNECTIONS, type ProxyServer } from '../proxy/front/server.ts';
import { createSessionCounts } from '../proxy/session/session-counts.ts';
import { createSessionRegistry } from '../proxy/session/session-registry.ts';
import { createUpgradeHandler } from '../proxy/session/upgrade.ts';
import { createUpstreamConnector, type UpstreamConnector } from '../proxy/upstream/upstream-connect.ts';
import { DEFAULT_POOL_LIMITS, UpstreamPool } from '../proxy/upstream/upstream-pool.ts';
import { createEventPoster } from '../recording/event-poster.ts';
import { createRecorderClient, type RecorderClient } from '../recording/recorder-client.ts';
import { createRequestEvents, REQUEST_EVENT_LIMITS } from '../recording/request-event.ts';
import type { Identity } from '../tailnet/identity.ts';
import { createTailnetListener, type TailnetListener } from '../tailnet/listener.ts';
import { cannotStart } from './cannot-start.ts';
import { CleanUp } from './clean-up.ts';
import { openGate } from './gateway-gate.ts';
import { loadPolicy } from './gateway-policy.ts';
import { warnOfRights } from './gateway-rights.ts';
import { openJournals } from './journals.ts';
import { openSettingDirectories } from './setting-directory.ts';
import { openBuffers } from './output-buffers.ts';
import { openPortal } from './portal.ts';
import { readStaticIdentity } from './static-identity-file.ts';
import {
  assertPrivateProxyListener,
  createLocalTailnet,
  createStaticTailnet,
  openCertificates,
  type Tailnet,
} from './tailnet.ts';

/** Connections above the limit that still get a response. */
const SURPLUS_CONNECTIONS = 256;
/** Interval of the checks for new certificates, in milliseconds. */
const FOLLOW_EVERY_MS = 1000;

export interface GatewayOptions {
  readonly config: GatewayConfig;
  readonly environment: ReadonlyMap<string, string>;
  readonly log: Logger;
  /** Destination of the access log. */
  readonly accessSink: LineSink;
  /** Replacement of the identity file in the settings. */
  readonly identity?: Identity;
  /** Token that every request must contain. Default: none. */
  readonly callerToken?: string;
  /** Default: a new registry. */
  readonly metrics?: Metrics;
  /** Limits per user. Default: derived from the available memory and `requestsPerUser`. */
  readonly userLimits?: { readonly connections: number; readonly bytes: number };
}

export interface RunningGateway {
  readonly host: string;
  readonly port: number;
  /** CA certificate for clients, if the gateway's certificate is self-signed. */
  readonly caPem: string | undefined;
  readonly apiServer: string;
  readonly opsAddress: { readonly host: string; readonly port: number } | undefined;
  /** Drains for at most `limitMs`, then closes everything. */
  close(limitMs: number): Promise<void>;
}

/** `tailcast gateway`: runs until the signal, then drains. */
export async function runGateway(config: GatewayConfig, context: CommandContext): Promise<void> {
  const log = createLogger({ level: config.logLevel });
  const { environment } = context;
  collectEarly(true);
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
  if (!signal.aborted)
    await new Promise((resolve) => signal.addEventListener('abort', resolve, { once: true }));
  await gateway.close(config.drainSeconds * 1000);
  fatalErrors.close();
}

/**
 * Starts all parts. After a failure, closes the parts that were already open.
 *
 * @throws TailcastError with the cause and the fix
 */
export async function startGateway(options: GatewayOptions): Promise<RunningGateway> {
  const stack = new CleanUp();
  try {
    const gateway = await assemble(options, stack);
    return gateway;
  } catch (error) {
    await stack.disposeAsync();
    throw cannotStart('gateway', error, [stateDirectoryOf(options)]);
  }
}

function stateDirectoryOf({ config, environment }: GatewayOptions): string {
  return config.stateDirectory ?? join(defaultStateDirectory(environment), 'gateway');
}

async function assemble(options: GatewayOptions, stack: CleanUp): Promise<RunningGateway> {
  const { config, log } = options;
  await openSettingDirectories(config, ['stateDirectory', 'outputBufferDirectory']);
  const abort = new AbortController();
  stack.defer(() => abort.abort(new Error('the gateway has ended')));
  const metrics = options.metrics ?? createMetrics({ processMetrics: true });
  const apiServer = await openApiServer(config, options.environment, {
    // an API server prefers a client certificate to the credentials of a request
    anonymous: config.mode === 'noauth',
    onUnusable: (error) =>
      log.error({ error: errorText(error) }, 'replaced certificates cannot be used, the last ones stay'),
  });
  // in this mode and before the first request, no other code checks for new certificates
  const following = setInterval(() => void apiServer.followAuthorities(), FOLLOW_EVERY_MS);
  stack.defer(() => clearInterval(following));
  const tailnet = await openTailnet(options, abort.signal);
  const stateDirectory = stateDirectoryOf(options);
  await checkFormat(stateDirectory, GATEWAY_STATE_FORMAT);
  const certificates = await openCertificates(config, stateDirectory, tailnet.localApi, {
    log,
    signal: abort.signal,
  });
  const connector = createUpstreamConnector(apiServer);
  const server = await openServer({
    options,
    apiServer,
    tailnet,
    connector,
    metrics,
    stateDirectory,
    stack,
    signal: abort.signal,
  });
  const ops = await openOps(config, { tailnet, connector, metrics, server });
  if (ops !== undefined) stack.defer(() => ops.close());
  const listener = await listen(config, certificates, options);
  listener.onConnection((socket, alpn, peer) => server.serve(socket, alpn, peer));
  const podName = options.environment.get('POD_NAME') ?? options.environment.get('HOSTNAME');
  if (config.checkRights) void warnOfRights({ apiServer, mode: config.mode, podName, log }, abort.signal);
  return {
    host: listener.address.address,
    port: listener.address.port,
    caPem: certificates?.caPem,
    apiServer: apiServer.describe(),
    opsAddress: ops?.address,
    async close(limitMs) {
      const closed = listener.close(AbortSignal.timeout(limitMs + 1000));
      await server.drain(limitMs, () => listener.halfOpenConnections);
      await closed;
      await stack.disposeAsync();
    },
  };
}

async function openServer(parts: {
  readonly options: GatewayOptions;
  readonly apiServer: ApiServer;
  readonly tailnet: Tailnet;
  readonly connector: UpstreamConnector;
  readonly metrics: Metrics;
  readonly stateDirectory: string;
  readonly stack: CleanUp;
  readonly signal: AbortSignal;
}): Promise<ProxyServer> {
  const { apiServer, tailnet, connector, metrics, stateDirectory, stack, signal, options } = parts;
  const { config, log } = options;
  const monotonicMs = (): number => performance.now();
  const events = createEvents(metrics, log);
  const policy = loadPolicy(config.policy);
  const gate = openGate({ config, policy, apiServer, tailnet, log, callerToken: options.callerToken });
  const poster = createEventPoster({ dial: tailnet.dialRecorder, nowMs: monotonicMs });
  stack.defer(() => poster.close());
  const requestEvents = createRequestEvents({
    poster,
    resolveRecorderTags: tailnet.resolveRecorderTags,
    carriesTag: tailnet.carriesTag,
    events,
    unixMs: Date.now,
  });
  const sessions = createSessionRegistry();
  const rechecks = createRechecks({ gate, monotonicMs });
  stack.defer(() => rechecks.close());
  const accessLog = openAccessLog(options, stack);
  const recorders = await openRecorders({ ...options, stateDirectory, tailnet, events, metrics, stack });
  const limits = requestLimits(options);
  const pool = new UpstreamPool(connector, DEFAULT_POOL_LIMITS, monotonicMs);
  const common = {
    gate,
    basePath: apiServer.basePath,
    events,
    metrics,
    accessLog,
    rechecks,
    accountRefusals: openAccountRefusals(config, apiServer),
    recordApiRequest: requestEvents.record.bind(requestEvents),
    keepCookies: config.mode === 'noauth',
    monotonicMs,
  };
  return createProxyServer({
    pump: {
      ...common,
      pool,
      credentialRefused: () => apiServer.refused(),
      eventBodyBytes: REQUEST_EVENT_LIMITS.maxBodyBytes,
      maxInFlight: limits.requests,
    },
    upgrade: createUpgradeHandler({
      ...common,
      connect: () => connector.connectStream(),
      execUpstream: config.execUpstream,
      recorders,
      resolveRecorderTags: tailnet.resolveRecorderTags,
      carriesTag: tailnet.carriesTag,
      sessions,
      buffers: openBuffers(config, metrics),
      counts: createSessionCounts({ perUser: policy.sessions.perUser, total: policy.sessions.total }),
      maxDurationMs: policy.sessions.maxDurationMs,
      idleMs: policy.sessions.idleMs,
      refusedPorts: policy.refusedPorts,
      unixMs: Date.now,
      signal,
    }),
    sessions,
    late: recorders.late,
    metrics,
    log,
    users: limits.users,
    own: await openPortal(config, tailnet, { ...common, signal }),
  });
}

async function openRecorders(
  parts: Parameters<typeof openJournals>[0] & { readonly stack: CleanUp },
): Promise<RecorderClient> {
  const { config, tailnet, log, stack } = parts;
  const journals = await openJournals(parts);
  stack.defer(() => journals?.close());
  const recorders = createRecorderClient({
    dial: tailnet.dialRecorder,
    nowMs: () => performance.now(),
    log,
    nodeOf: tailnet.nodeOf,
    limits: { maxPendingBytes: config.recorderWindow },
    journals,
  });
  stack.defer(() => recorders.close());
  return recorders;
}

function openAccessLog(
  { config, accessSink }: GatewayOptions,
  stack: CleanUp,
): ReturnType<typeof createAccessLog> {
  const accessLog = config.accessLog ? createAccessLog(accessSink) : createNullAccessLog();
  stack.defer(() => accessLog.close());
  return accessLog;
}

/** Derives the limits without a setting from the available memory. */
function requestLimits({ config, userLimits }: GatewayOptions): {
  readonly requests: number;
  readonly users: UserLimits;
} {
  const capacity = capacityOf(readMemory());
  const total = config.maxRequests ?? capacity.requests;
  const requests =
    config.requestsPerUser ??
    (config.maxRequests === undefined ? capacity.requestsPerUser : Math.max(1, Math.floor(total / 3)));
  return {
    requests: total,
    users: createUserLimits({
      requests,
      connections: userLimits?.connections ?? requests,
      bytes: userLimits?.bytes ?? capacity.bytesPerUser,
      headBytes: capacity.headBytes,
    }),
  };
}

/** Opens the API server in the settings: a kubeconfig, or the service account of the pod. */
export async function openApiServer(
  config: Pick<GatewayConfig, 'kubeconfig' | 'context'>,
  environment: ReadonlyMap<string, string>,
  options: Pick<ApiServerOptions, 'anonymous' | 'onUnusable'> = {},
): Promise<ApiServer> {
  const host = environment.get('KUBERNETES_SERVICE_HOST');
  const port = environment.get('KUBERNETES_SERVICE_PORT');
  const { kubeconfigPaths } = await import('../kube/kubeconfig.ts');
  const outside = host === undefined || port === undefined;
  const named = config.kubeconfig === undefined ? undefined : [config.kubeconfig];
  const common: ApiServerOptions = {
    ...options,
    context: config.context,
    environment: Object.fromEntries(environment),
    now: () => performance.now(),
    wallClock: Date.now,
  };
  if (named !== undefined || outside) {
    return createApiServer({
      ...common,
      kubeconfig: named ?? kubeconfigPaths(environment.get('KUBECONFIG'), homedir()),
    });
  }
  return createApiServer({ ...common, inCluster: { host, port } });
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
  // Report a missing socket now instead of at the first request.
  for (const readiness of tailnet.checks) await readiness.check(AbortSignal.timeout(10_000));
  return tailnet;
}

function listen(
  config: GatewayConfig,
  certificates: Awaited<ReturnType<typeof openCertificates>>,
  { log }: GatewayOptions,
): Promise<TailnetListener> {
  const { host, port } = config.listen;
  const { proxyProtocol } = config;
  const maxConnections = MAX_CONNECTIONS + SURPLUS_CONNECTIONS;
  const common = { host, port, proxyProtocol, log, maxConnections };
  return createTailnetListener(
    certificates === undefined ? { ...common, tls: 'none' } : { ...common, certificates },
  );
}

interface HealthParts {
  readonly tailnet: Tailnet;
  readonly connector: UpstreamConnector;
  readonly metrics: Metrics;
  readonly server: ProxyServer;
}

async function openOps(config: GatewayConfig, parts: HealthParts): Promise<OpsServer | undefined> {
  if (config.opsListen === undefined) return undefined;
  return openOpsServer({
    ...config.opsListen,
    metrics: parts.metrics.registry,
    draining: () => parts.server.draining,
    checks: checksOf(parts),
  });
}

function checksOf({ tailnet, connector }: HealthParts): readonly ReadinessCheck[] {
  return [
    ...tailnet.checks,
    { name: 'api server', check: async () => void (await connector.connect()).destroy() },
  ];
}
