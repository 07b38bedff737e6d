/**
 * What the gateway counts, as Prometheus metrics. The counters of the hot path are plain array cells that are copied
 * into the registry when somebody scrapes; everything else uses prom-client directly. Labels never carry anything a
 * client chose.
 */
import { Counter, Gauge, Histogram, Registry, collectDefaultMetrics } from 'prom-client';

/** How a request came in. */
export type Protocol = 'h1' | 'h2' | 'upgrade';

const PROTOCOLS = ['h1', 'h2', 'upgrade'] as const satisfies readonly Protocol[];
const STATUS_CELLS = 600;

/** One finished request, as far as counting goes. */
export interface RequestCount {
  readonly protocol: Protocol;
  /** HTTP status sent to the client; 499 when the client went away before one was sent. */
  readonly status: number;
  /** From admission to the last byte. */
  readonly seconds: number;
  /** Watches, log follows and the like: counted, but kept out of the duration histogram. */
  readonly longRunning: boolean;
  readonly requestBytes: number;
  readonly responseBytes: number;
}

/** The metrics of one gateway process. */
export interface Metrics {
  readonly registry: Registry;
  requestStarted(): void;
  requestFinished(count: RequestCount): void;
  readonly sessionsActive: Gauge;
  readonly sessions: Counter<'outcome'>;
  readonly unrecordedSessions: Counter;
  readonly recordingGaps: Counter;
  readonly recorderLosses: Counter<'mode'>;
  /** Ends of recordings that wait for a recorder after their session, and their bytes. */
  readonly lateWaiting: Gauge;
  readonly lateBytesWaiting: Gauge;
  readonly late: Counter<'outcome'>;
  readonly lateBytes: Counter<'outcome'>;
  /** What could not be kept on disk until it is acknowledged, by the reason: `room` or `disk`. */
  readonly journalRefusals: Counter<'reason'>;
  /** On disk: bytes of all sessions, ends that are to be delivered, and what cannot be read. */
  readonly journalBytes: Gauge;
  readonly journalsLeft: Gauge;
  readonly journalsUnreadable: Gauge;
  /** Sessions whose API server had to wait, and those whose file could not be written. */
  readonly outputHeldUp: Counter;
  readonly bufferFileLosses: Counter;
  readonly violations: Counter;
  readonly refusals: Counter<'code'>;
  readonly apiEventFailures: Counter<'mode'>;
  readonly upstreamFailures: Counter<'code'>;
  readonly connections: Gauge<'alpn'>;
  /** Registers a gauge whose value is asked for at scrape time. */
  gauge(name: string, help: string, read: () => number): void;
}

/** Of a gateway, or of the process over its workers. */
export function endedSessions(registers: Registry[]): Counter<'outcome'> {
  return new Counter({
    name: 'tailcast_sessions_total',
    help: 'Interactive sessions that ended, by outcome.',
    labelNames: ['outcome'],
    registers,
  });
}

/** Creates a registry of its own, so that two gateways in one process (tests) do not share counts. */
export function createMetrics(options: { readonly processMetrics?: boolean } = {}): Metrics {
  const registry = new Registry();
  const registers = [registry];
  if (options.processMetrics === true) {
    collectDefaultMetrics({ register: registry, eventLoopMonitoringPrecision: 100 });
  }
  const requests = createRequestMetrics(registers);
  const failures = createFailureCounters(registers);
  const late = createLateMetrics(registers);
  return {
    registry,
    ...requests,
    ...failures,
    ...late,
    sessionsActive: new Gauge({
      name: 'tailcast_sessions_active',
      help: 'Interactive sessions now open.',
      registers,
    }),
    sessions: endedSessions(registers),
    unrecordedSessions: new Counter({
      name: 'tailcast_sessions_unrecorded_total',
      help: 'Sessions that should have been recorded but ran without a recorder.',
      registers,
    }),
    recordingGaps: new Counter({
      name: 'tailcast_recording_gaps_total',
      help: 'Gaps in recordings of sessions that went on.',
      registers,
    }),
    recorderLosses: new Counter({
      name: 'tailcast_recorder_lost_total',
      help: 'Recorders lost in mid-session, by recording mode.',
      labelNames: ['mode'],
      registers,
    }),
    outputHeldUp: new Counter({
      name: 'tailcast_output_held_up_total',
      help: 'Sessions whose API server had to wait because the buffer for their output held all it may.',
      registers,
    }),
    bufferFileLosses: new Counter({
      name: 'tailcast_output_file_failures_total',
      help: 'Sessions whose file for waiting output could not be written.',
      registers,
    }),
    violations: new Counter({
      name: 'tailcast_sessions_violated_total',
      help: 'Sessions ended because their stream could not be understood.',
      registers,
    }),
    connections: new Gauge({
      name: 'tailcast_client_connections',
      help: 'Client connections now open, by protocol.',
      labelNames: ['alpn'],
      registers,
    }),
    gauge(name, help, read) {
      const gauge: Gauge = new Gauge({ name, help, registers, collect: () => gauge.set(read()) });
    },
  };
}

/** With the series that alerts look at from the start: an increase from nothing to 1 is none to Prometheus. */
function createFailureCounters(
  registers: Registry[],
): Pick<Metrics, 'refusals' | 'apiEventFailures' | 'upstreamFailures'> {
  const counters = {
    refusals: new Counter({
      name: 'tailcast_refusals_total',
      help: 'Requests the gateway refused, by error code.',
      labelNames: ['code'],
      registers,
    }),
    apiEventFailures: new Counter({
      name: 'tailcast_api_event_failures_total',
      help: 'API request events no recorder accepted, by recording mode.',
      labelNames: ['mode'],
      registers,
    }),
    upstreamFailures: new Counter({
      name: 'tailcast_upstream_failures_total',
      help: 'Exchanges with the API server that failed, by error code.',
      labelNames: ['code'],
      registers,
    }),
  };
  for (const code of ['RECORDING_REQUIRED', 'RECORDER_LOST']) counters.refusals.inc({ code }, 0);
  for (const mode of ['failOpen', 'failClosed']) counters.apiEventFailures.inc({ mode }, 0);
  counters.upstreamFailures.inc({ code: 'UPSTREAM_UNAVAILABLE' }, 0);
  return counters;
}

function createLateMetrics(
  registers: Registry[],
): Pick<
  Metrics,
  | 'lateWaiting'
  | 'lateBytesWaiting'
  | 'late'
  | 'lateBytes'
  | 'journalRefusals'
  | 'journalBytes'
  | 'journalsLeft'
  | 'journalsUnreadable'
> {
  const metrics = {
    lateWaiting: new Gauge({
      name: 'tailcast_late_recordings_waiting',
      help: 'Sessions that are over and the end of whose recording waits for a recorder.',
      registers,
    }),
    lateBytesWaiting: new Gauge({
      name: 'tailcast_late_bytes_waiting',
      help: 'Bytes of recordings that wait for a recorder after their session.',
      registers,
    }),
    late: new Counter({
      name: 'tailcast_late_recordings_total',
      help: 'Ends of recordings whose recorder was lost for good, by what became of them: delivered or dropped.',
      labelNames: ['outcome'],
      registers,
    }),
    lateBytes: new Counter({
      name: 'tailcast_late_bytes_total',
      help: 'Bytes of these ends, by what became of them.',
      labelNames: ['outcome'],
      registers,
    }),
    journalBytes: new Gauge({
      name: 'tailcast_journal_bytes',
      help: 'Bytes on disk that no recorder had acknowledged when they were written.',
      registers,
    }),
    journalsLeft: new Gauge({
      name: 'tailcast_journal_recordings_left',
      help: 'Sessions that are over and the end of whose recording is on disk, those found at the start included.',
      registers,
    }),
    journalsUnreadable: new Gauge({
      name: 'tailcast_journal_unreadable',
      help: 'Files of such ends that cannot be read, and folders of gateways with another key.',
      registers,
    }),
    journalRefusals: new Counter({
      name: 'tailcast_journal_refusals_total',
      help: 'Output that could not be kept on disk until it is acknowledged, by reason (room, disk): its sessions waited for the recorder.',
      labelNames: ['reason'],
      registers,
    }),
  };
  for (const outcome of ['delivered', 'dropped']) {
    metrics.late.inc({ outcome }, 0);
    metrics.lateBytes.inc({ outcome }, 0);
  }
  for (const reason of ['room', 'disk']) metrics.journalRefusals.inc({ reason }, 0);
  return metrics;
}

function createRequestMetrics(registers: Registry[]): Pick<Metrics, 'requestStarted' | 'requestFinished'> {
  const cells = new Float64Array(PROTOCOLS.length * STATUS_CELLS);
  const total = new Counter({
    name: 'tailcast_requests_total',
    help: 'Requests answered, by protocol and HTTP status (499: the client left first).',
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
    help: 'Time from admission to the last byte, without long-running requests.',
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
  const flying: Gauge = new Gauge({
    name: 'tailcast_requests_in_flight',
    help: 'Requests now being served, sessions included.',
    registers,
    collect: () => flying.set(inFlight),
  });
  const transferred = new Counter({
    name: 'tailcast_body_bytes_total',
    help: 'Body bytes relayed, by direction.',
    labelNames: ['direction'],
    registers,
    collect: () => {
      transferred.reset();
      transferred.inc({ direction: 'request' }, bytes.request);
      transferred.inc({ direction: 'response' }, bytes.response);
    },
  });
  return {
    requestStarted() {
      inFlight += 1;
    },
    requestFinished(count) {
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
