/**
 * Prometheus metrics of the gateway. For speed, counters that change with each request are array cells, which are
 * copied to the registry at scrape time. All other metrics use prom-client directly. Labels never contain client
 * input.
 */
import { Counter, Gauge, Histogram, Registry, collectDefaultMetrics } from 'prom-client';
import { createMakers, type MetricMakers } from './metric-makers.ts';

/** Protocol of a request. */
export type Protocol = 'h1' | 'h2' | 'upgrade';

const PROTOCOLS = ['h1', 'h2', 'upgrade'] as const satisfies readonly Protocol[];
const STATUS_CELLS = 600;

/** Metrics data of one finished request. */
export interface RequestCount {
  readonly protocol: Protocol;
  /** HTTP status that the client received, or 499 if the client disconnected before the response. */
  readonly status: number;
  /** Time from the admission of the request to the last byte of the response. */
  readonly seconds: number;
  /**
   * True if the request is a watch, a followed log or similar. The duration histogram does not include such requests.
   */
  readonly longRunning: boolean;
  readonly requestBytes: number;
  readonly responseBytes: number;
}

/** The metrics of one gateway process. */
export type Metrics = ReturnType<typeof createMetrics>;

/** Creates metrics with their own registry. In tests, several gateways in one process therefore do not share counts. */
export function createMetrics(options: { readonly processMetrics?: boolean } = {}) {
  const registry = new Registry();
  if (options.processMetrics === true) {
    collectDefaultMetrics({ register: registry, eventLoopMonitoringPrecision: 100 });
  }
  const makers = createMakers(registry);
  return {
    registry,
    ...createRequestMetrics(registry, makers),
    ...createFailureCounters(makers),
    ...createLateMetrics(makers),
    ...createSessionMetrics(makers),
    connections: new Gauge({
      name: 'tailcast_client_connections',
      help: 'Open client connections, by protocol: h2 or http/1.1.',
      labelNames: ['alpn'],
      registers: [registry],
    }),
    /** Gauges of the clusters, if the gateway serves several clusters. */
    clusterGauges: createClusterGauges(registry, makers),
    /** Registers a gauge. Each scrape calls `read`. */
    gauge(name: string, help: string, read: () => number): void {
      makers.gauge(name, help, read);
    },
  };
}

function createClusterGauges(registry: Registry, makers: MetricMakers) {
  const registers = [registry];
  return {
    up: new Gauge({
      name: 'tailcast_cluster_up',
      help: '1 if an API server of the cluster is available, else 0.',
      labelNames: ['cluster'],
      registers,
    }),
    endpointUp: new Gauge({
      name: 'tailcast_cluster_endpoint_up',
      help: '1 if the API server at this endpoint is available, else 0.',
      labelNames: ['cluster', 'endpoint'],
      registers,
    }),
    problems: makers.gauge(
      'tailcast_cluster_problems',
      'Clusters and sources of clusters that cannot be read.',
    ),
  };
}

function createSessionMetrics(makers: MetricMakers) {
  const { counter, labelled, gauge } = makers;
  return {
    sessionsActive: gauge('tailcast_sessions_active', 'Open interactive sessions.'),
    sessions: labelled(
      'tailcast_sessions_total',
      'Interactive sessions that have ended, by outcome: completed, interrupted, violated, client-disconnected, ' +
        'recorder-lost or refused.',
      'outcome',
    ),
    unrecordedSessions: counter(
      'tailcast_sessions_unrecorded_total',
      'Unrecorded sessions of callers whose grants name a recorder.',
    ),
    recordingGaps: counter('tailcast_recording_gaps_total', 'Gaps in recordings of sessions that continued.'),
    recorderLosses: labelled(
      'tailcast_recorder_lost_total',
      'Recorders lost during a session, by recording mode: failClosed (enforceRecorder) or failOpen.',
      'mode',
    ),
    outputHeldUp: labelled(
      'tailcast_output_held_up_total',
      'Sessions in which the API server waited, by exceeded limit: session, userMemory or userDisk.',
      'limit',
      ['session', 'userMemory', 'userDisk'],
    ),
    bufferFileLosses: counter(
      'tailcast_output_file_failures_total',
      'Sessions whose file for buffered output could not be written.',
    ),
    violations: counter(
      'tailcast_sessions_violated_total',
      'Sessions that the gateway ended because of a protocol violation.',
    ),
  };
}

function createFailureCounters({ labelled }: MetricMakers) {
  return {
    refusals: labelled(
      'tailcast_refusals_total',
      'Requests that the gateway refused, by error code.',
      'code',
      ['RECORDING_REQUIRED', 'RECORDER_LOST'],
    ),
    apiEventFailures: labelled(
      'tailcast_api_event_failures_total',
      'API request events that no recorder accepted, by recording mode: failClosed (enforceRecorder) or failOpen.',
      'mode',
      ['failOpen', 'failClosed'],
    ),
    upstreamFailures: labelled(
      'tailcast_upstream_failures_total',
      'Failed exchanges with the API server, by error code.',
      'code',
      ['UPSTREAM_UNAVAILABLE'],
    ),
  };
}

/** Creates the metrics of late deliveries, which upload the rest of a recording after its session has ended. */
function createLateMetrics({ labelled, gauge }: MetricMakers) {
  const outcomes = ['delivered', 'dropped'];
  return {
    lateWaiting: gauge('tailcast_late_recordings_waiting', 'Stopped sessions with pending output.'),
    lateBytesWaiting: gauge('tailcast_late_bytes_waiting', 'Pending output of stopped sessions, in bytes.'),
    late: labelled(
      'tailcast_late_recordings_total',
      'Late deliveries to recorders, by outcome: delivered or dropped.',
      'outcome',
      outcomes,
    ),
    lateBytes: labelled(
      'tailcast_late_bytes_total',
      'Bytes of late deliveries, by outcome: delivered or dropped.',
      'outcome',
      outcomes,
    ),
    journalBytes: gauge('tailcast_journal_bytes', 'Unacknowledged bytes in the journal on disk.'),
    journalsLeft: gauge(
      'tailcast_journal_recordings_left',
      'Stopped sessions with pending output on disk, including those of earlier processes.',
    ),
    journalsUnreadable: gauge(
      'tailcast_journal_unreadable',
      'Unreadable files with pending output, plus directories encrypted with another key.',
    ),
    journalRefusals: labelled(
      'tailcast_journal_refusals_total',
      'Times that the journal could not store output, by reason: disk error, or the share of the user is used. The ' +
        'session then waits for the recorder.',
      'reason',
      ['room', 'disk'],
    ),
  };
}

function createRequestMetrics(registry: Registry, makers: MetricMakers) {
  const registers = [registry];
  const cells = new Float64Array(PROTOCOLS.length * STATUS_CELLS);
  const total = new Counter({
    name: 'tailcast_requests_total',
    help: 'Completed requests, by protocol (h1, h2, upgrade) and HTTP status (499: the client disconnected first).',
    labelNames: ['protocol', 'code'],
    registers,
    collect: () => {
      total.reset();
      for (const [index, count] of cells.entries()) {
        if (count === 0) continue;
        const protocol = PROTOCOLS[Math.floor(index / STATUS_CELLS)] ?? 'h1';
        total.inc({ protocol, code: String(index % STATUS_CELLS) }, count);
      }
    },
  });
  const duration = new Histogram({
    name: 'tailcast_request_duration_seconds',
    help: 'Time of a request from admission to the last byte, except long-running requests.',
    labelNames: ['protocol'],
    buckets: [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60],
    registers,
  });
  const durations = {
    h1: duration.labels('h1'),
    h2: duration.labels('h2'),
    upgrade: duration.labels('upgrade'),
  };
  let inFlight = 0;
  const bytes = { request: 0, response: 0 };
  makers.gauge('tailcast_requests_in_flight', 'Requests in flight, including sessions.', () => inFlight);
  const transferred = new Counter({
    name: 'tailcast_body_bytes_total',
    help: 'Relayed body bytes, by direction: request or response.',
    labelNames: ['direction'],
    registers,
    collect: () => {
      transferred.reset();
      transferred.inc({ direction: 'request' }, bytes.request);
      transferred.inc({ direction: 'response' }, bytes.response);
    },
  });
  return {
    requestStarted(): void {
      inFlight += 1;
    },
    requestFinished(count: RequestCount): void {
      inFlight -= 1;
      bytes.request += count.requestBytes;
      bytes.response += count.responseBytes;
      const status = count.status < STATUS_CELLS ? count.status : STATUS_CELLS - 1;
      const cell = PROTOCOLS.indexOf(count.protocol) * STATUS_CELLS + status;
      cells[cell] = (cells[cell] ?? 0) + 1;
      if (!count.longRunning) durations[count.protocol].observe(count.seconds);
    },
  };
}
