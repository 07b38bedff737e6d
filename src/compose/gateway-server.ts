/** Assembles the server of the gateway role: gate, requests, sessions and recorders. */
import type { AccessRequests } from '../access/requests.ts';
import { createKeyedRate } from '../keyed-rate.ts';
import { capacityOf, readMemory } from '../memory/capacity.ts';
import { createAccessLog } from '../observe/access-log.ts';
import { Account } from '../proxy/gate/account.ts';
import { refusedPort } from '../proxy/gate/policy.ts';
import { createRechecks } from '../proxy/gate/recheck.ts';
import { admitCounted, createUserLimits } from '../proxy/gate/user-limits.ts';
import { createProxyServer, type ProxyServer } from '../proxy/front/server.ts';
import { translateToSpdy } from '../proxy/session/exec-upstream.ts';
import { refuseHiddenTerminal } from '../proxy/session/container-terminal.ts';
import { holdSession } from '../proxy/session/moderated.ts';
import { createSessionCounts } from '../proxy/session/session-counts.ts';
import { createSessionRegistry } from '../proxy/session/session-registry.ts';
import { createUpgradeHandler } from '../proxy/session/upgrade.ts';
import { createClusterList } from '../portal/cluster-list.ts';
import { findRecorders } from '../recording/find-recorders.ts';
import { createRecorderClient, type RecorderClient } from '../recording/recorder-client.ts';
import { PORT_FORWARD_RATE } from '../recording/tap-port-forward.ts';
import { REQUEST_EVENT_LIMITS } from '../recording/request-event.ts';
import type { GatewayOptions, GatewayParts } from './gateway-parts.ts';
import type { GatewayUpstream } from './gateway-upstream.ts';
import { openJournals } from './journals.ts';
import { openBuffers } from './output-buffers.ts';
import { openPortal } from './portal.ts';

/** Opens the server with its gate, sessions and recorders. */
export async function openServer(
  parts: GatewayParts & { readonly upstream: GatewayUpstream; readonly access: AccessRequests | undefined },
): Promise<ProxyServer> {
  const { config, log, upstream, access, events, requestEvents, limits, policy, tailnet, metrics } = parts;
  const { stack, signal } = parts;
  const monotonicMs = (): number => performance.now();
  const { gate, basePath, accountRefusals, clusters } = upstream;
  const listed = clusters && (() => clusters.current().byName.values());
  const sessions = createSessionRegistry();
  const rechecks = createRechecks({ gate, monotonicMs, elevations: access });
  stack.defer(() => rechecks.close());
  const accessLog = config.accessLog ? createAccessLog(parts.accessSink) : undefined;
  stack.defer(() => accessLog?.close());
  const recorders = await openRecorders(parts);
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
      refuseHiddenTerminal,
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

async function openRecorders(parts: GatewayParts): Promise<RecorderClient> {
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

/** Returns the limits for concurrent requests. Limits without a setting are derived from the available memory. */
export function requestLimits({ config, userLimits }: GatewayOptions): GatewayParts['limits'] {
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
