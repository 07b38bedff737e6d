/** Builds the gateway role. The only module that knows all parts of it. */
import { join } from 'node:path';
import type { CommandContext } from '../config/command-context.ts';
import { defaultStateDirectory } from '../config/environment.ts';
import type { GatewayConfig } from '../config/gateway.ts';
import { listenAddress } from '../config/values.ts';
import type { ListenAddress } from '../listen.ts';
import type { AccessRequests } from '../access/requests.ts';
import { checkFormat, GATEWAY_STATE_FORMAT } from '../folder-format.ts';
import { capacityOf, readMemory } from '../memory/capacity.ts';
import { collectEarly } from '../memory/stream-garbage.ts';
import { createAccessLog, createNullAccessLog, type LineSink } from '../observe/access-log.ts';
import { createEvents, type Events } from '../observe/events.ts';
import { openFatalErrors } from '../observe/fatal-errors.ts';
import { createLogger, type Logger } from '../observe/logger.ts';
import { createMetrics, type Metrics } from '../observe/metrics.ts';
import { openOpsServer, type OpsServer } from '../observe/ops-server.ts';
import { Account } from '../proxy/gate/account.ts';
import { refusedPort, type Policy } from '../proxy/gate/policy.ts';
import { createRechecks } from '../proxy/gate/recheck.ts';
import { createUserLimits, type UserLimits } from '../proxy/front/user-limits.ts';
import { createProxyServer, MAX_CONNECTIONS, type ProxyServer } from '../proxy/front/server.ts';
import { translateToSpdy } from '../proxy/session/exec-upstream.ts';
import { createSessionCounts } from '../proxy/session/session-counts.ts';
import { createSessionRegistry } from '../proxy/session/session-registry.ts';
import { createUpgradeHandler } from '../proxy/session/upgrade.ts';
import { createClusterList } from '../portal/cluster-list.ts';
import { createEventPoster } from '../recording/event-poster.ts';
import { findRecorders } from '../recording/find-recorders.ts';
import { createRecorderClient, type RecorderClient } from '../recording/recorder-client.ts';
import { createRequestEvents, REQUEST_EVENT_LIMITS, type RequestEvents } from '../recording/request-event.ts';
import type { Identity } from '../tailnet/identity.ts';
import { createTailnetListener, type TailnetListener } from '../tailnet/listener.ts';
import { assertLoopbackListener } from '../tailnet/static-identity.ts';
import { openAccess } from './access.ts';
import { cannotStart } from './cannot-start.ts';
import { CleanUp } from './clean-up.ts';
import { loadPolicy } from './gateway-policy.ts';
import { openUpstream, type GatewayUpstream } from './gateway-upstream.ts';
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
  const tailnet = await openTailnet(options, abort.signal);
  const limits = requestLimits(options);
  const policy = loadPolicy(config.policy);
  const stateDirectory = stateDirectoryOf(options);
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
  const { signal } = abort;
  const access = await openAccess({ ...options, stateDirectory, requestEvents, signal, stack });
  const upstream = await openUpstream({
    ...options,
    elevations: access,
    callerToken: options.callerToken,
    policy,
    tailnet,
    metrics,
    maxRequests: Math.ceil(limits.requests / 2),
    signal: abort.signal,
  });
  stack.defer(() => upstream.clusters?.close());
  await checkFormat(stateDirectory, GATEWAY_STATE_FORMAT);
  const certificates = await openCertificates(config, stateDirectory, tailnet.localApi, {
    log,
    signal: abort.signal,
  });
  const server = await openServer({
    options,
    upstream,
    access,
    events,
    requestEvents,
    limits,
    policy,
    tailnet,
    metrics,
    stateDirectory,
    stack,
    signal: abort.signal,
  });
  const ops = await openOps(config, { tailnet, upstream, metrics, server });
  if (ops !== undefined) stack.defer(() => ops.close());
  const listeners = await listenAll(config, certificates, { options, upstream, stack });
  for (const listener of listeners) {
    listener.onConnection((socket, alpn, peer) => server.serve(socket, alpn, peer));
  }
  if (config.checkRights) upstream.warnOfRights(abort.signal);
  const [{ address }] = listeners;
  return {
    host: address.address,
    port: address.port,
    caPem: certificates?.caPem,
    apiServer: upstream.describe(),
    opsAddress: ops?.address,
    async close(limitMs) {
      const closed = listeners.map((one) => one.close(AbortSignal.timeout(limitMs + 1000)));
      await server.drain(limitMs, () => sum(listeners.map(({ halfOpenConnections }) => halfOpenConnections)));
      await Promise.all(closed);
      await stack.disposeAsync();
    },
  };
}

async function openServer(parts: {
  readonly options: GatewayOptions;
  readonly upstream: GatewayUpstream;
  readonly access: AccessRequests | undefined;
  readonly events: Events;
  readonly requestEvents: RequestEvents;
  readonly limits: ReturnType<typeof requestLimits>;
  readonly policy: Policy;
  readonly tailnet: Tailnet;
  readonly metrics: Metrics;
  readonly stateDirectory: string;
  readonly stack: CleanUp;
  readonly signal: AbortSignal;
}): Promise<ProxyServer> {
  const { upstream, access, events, requestEvents, limits, policy, tailnet, metrics } = parts;
  const { stateDirectory, stack, signal, options } = parts;
  const { config, log } = options;
  const monotonicMs = (): number => performance.now();
  const { gate, basePath, accountRefusals, clusters } = upstream;
  const sessions = createSessionRegistry();
  const rechecks = createRechecks({ gate, monotonicMs, elevations: access });
  stack.defer(() => rechecks.close());
  const accessLog = openAccessLog(options, stack);
  const recorders = await openRecorders({ ...options, stateDirectory, tailnet, events, metrics, stack });
  const common = {
    gate,
    basePath,
    events,
    metrics,
    accessLog,
    rechecks,
    accountRefusals,
    recordApiRequest: requestEvents.record.bind(requestEvents),
    keepCookies: config.mode === 'noauth',
    monotonicMs,
  };
  return createProxyServer({
    pump: {
      ...common,
      pool: upstream.pool,
      credentialRefused: upstream.credentialRefused,
      eventBodyBytes: REQUEST_EVENT_LIMITS.maxBodyBytes,
      maxInFlight: limits.requests,
    },
    upgrade: createUpgradeHandler({
      ...common,
      openAccount: (inbound) => new Account('upgrade', inbound, common),
      connect: upstream.connect,
      ...(config.execUpstream === 'spdy' ? { translateExec: translateToSpdy } : {}),
      recorders,
      findRecorders: (recording, during) => findRecorders(recording, tailnet, during),
      sessions,
      buffers: openBuffers(config, metrics),
      counts: createSessionCounts({ perUser: policy.sessions.perUser, total: policy.sessions.total }),
      maxDurationMs: policy.sessions.maxDurationMs,
      idleMs: policy.sessions.idleMs,
      isPortRefused: (port) => refusedPort(policy, [port]) !== undefined,
      unixMs: Date.now,
      signal,
    }),
    sessions,
    late: recorders.late,
    metrics,
    log,
    users: limits.users,
    upstreamSize: clusters && (() => clusters.size()),
    own: [
      await openPortal(config, tailnet, { ...common, signal, access }),
      clusters && createClusterList({ ...common, clusters: () => clusters.current().byName.values() }),
    ].filter((service) => service !== undefined),
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

/** Opens the listener of the settings, and one for each cluster that has its own. */
async function listenAll(
  config: GatewayConfig,
  certificates: Awaited<ReturnType<typeof openCertificates>>,
  {
    options: { log },
    upstream: { clusters },
    stack,
  }: Pick<Parameters<typeof openServer>[0], 'options' | 'upstream' | 'stack'>,
): Promise<readonly [TailnetListener, ...TailnetListener[]]> {
  const { proxyProtocol } = config;
  const maxConnections = MAX_CONNECTIONS + SURPLUS_CONNECTIONS;
  const withEntry = clusters !== undefined;
  const listen = async (address: ListenAddress, cluster?: string): Promise<TailnetListener> => {
    const common = { ...address, proxyProtocol, log, maxConnections, withEntry, cluster };
    const listener = await createTailnetListener(
      certificates === undefined ? { ...common, tls: 'none' } : { ...common, certificates },
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

interface HealthParts {
  readonly tailnet: Tailnet;
  readonly upstream: GatewayUpstream;
  readonly metrics: Metrics;
  readonly server: ProxyServer;
}

async function openOps(config: GatewayConfig, parts: HealthParts): Promise<OpsServer | undefined> {
  if (config.opsListen === undefined) return undefined;
  return openOpsServer({
    ...config.opsListen,
    metrics: parts.metrics.registry,
    draining: () => parts.server.draining,
    checks: [...parts.tailnet.checks, parts.upstream.check],
  });
}
