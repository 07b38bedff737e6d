/** Assembles the server of the gateway role: gate, requests, sessions and recorders. */
import type { GatewayConfig } from '../config/gateway.ts';
import type { AccessRequests } from '../access/requests.ts';
import { createKeyedRate } from '../keyed-rate.ts';
import { capacityOf, readMemory } from '../memory/capacity.ts';
import { createAccessLog, createNullAccessLog, type LineSink } from '../observe/access-log.ts';
import type { Events } from '../observe/events.ts';
import type { Logger } from '../observe/logger.ts';
import type { Metrics } from '../observe/metrics.ts';
import { Account } from '../proxy/gate/account.ts';
import { refusedPort, type Policy } from '../proxy/gate/policy.ts';
import { createRechecks } from '../proxy/gate/recheck.ts';
import { admitCounted, createUserLimits } from '../proxy/gate/user-limits.ts';
import { createProxyServer, type ProxyServer } from '../proxy/front/server.ts';
import { translateToSpdy } from '../proxy/session/exec-upstream.ts';
import { holdSession } from '../proxy/session/moderated.ts';
import { createSessionCounts } from '../proxy/session/session-counts.ts';
import { createSessionRegistry } from '../proxy/session/session-registry.ts';
import { createUpgradeHandler } from '../proxy/session/upgrade.ts';
import { createClusterList } from '../portal/cluster-list.ts';
import { findRecorders } from '../recording/find-recorders.ts';
import { createRecorderClient, type RecorderClient } from '../recording/recorder-client.ts';
import { PORT_FORWARD_RATE } from '../recording/tap-port-forward.ts';
import { REQUEST_EVENT_LIMITS, type RequestEvents } from '../recording/request-event.ts';
import type { Identity } from '../tailnet/identity.ts';
import type { CleanUp } from './clean-up.ts';
import type { GatewayUpstream } from './gateway-upstream.ts';
import { openJournals } from './journals.ts';
import { openBuffers } from './output-buffers.ts';
import { openPortal } from './portal.ts';
import type { Tailnet } from './tailnet.ts';

export interface GatewayOptions {
  readonly config: GatewayConfig;
  readonly environment: ReadonlyMap<string, string>;
  readonly log: Logger;
  /** Receives the lines of the access log. */
  readonly accessSink: LineSink;
  /** Identity to use instead of the identity file in the settings. */
  readonly identity?: Identity;
  /** Token that every request must contain. Default: none. */
  readonly callerToken?: string;
  /** Default: a new registry. */
  readonly metrics?: Metrics;
  /** Limits per user. Default: derived from the available memory and `requestsPerUser`. */
  readonly userLimits?: { readonly connections: number; readonly bytes: number };
}

/** Opens the server with its gate, sessions and recorders. */
export async function openServer(parts: {
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
  const listed = clusters && (() => clusters.current().byName.values());
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
      admit: (request, until) => admitCounted({ gate, users: limits.users }, request, until),
      openAccount: (inbound) => new Account('upgrade', inbound, common),
      connect: upstream.connect,
      holdSession,
      ...(config.execUpstream === 'spdy' ? { translateExec: translateToSpdy } : {}),
      recorders,
      findRecorders: (recording, during) => findRecorders(recording, tailnet, during),
      sessions,
      buffers: openBuffers(config, metrics),
      counts: createSessionCounts({ perUser: policy.sessions.perUser, total: policy.sessions.total }),
      maxDurationMs: policy.sessions.maxDurationMs,
      idleMs: policy.sessions.idleMs,
      notice: policy.sessions.notice,
      asksReason: policy.sessions.askReason,
      portForwards: {
        isPortRefused: (port) => refusedPort(policy, [port]) !== undefined,
        rate: createKeyedRate({ ...PORT_FORWARD_RATE, monotonicMs }),
      },
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
      await openPortal(config, tailnet, { ...common, signal, access, clusters: listed }),
      listed && createClusterList({ ...common, clusters: listed }),
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

/** Returns the limits for concurrent requests. Limits without a setting are derived from the available memory. */
export function requestLimits({ config, userLimits }: GatewayOptions) {
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
