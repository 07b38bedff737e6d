import { describe, expect, it } from 'vitest';
import { createEvents } from '../../src/observe/events.ts';
import { createLogger } from '../../src/observe/logger.ts';
import { createMetrics } from '../../src/observe/metrics.ts';

function setUp() {
  const lines: Record<string, unknown>[] = [];
  const log = createLogger({
    level: 'info',
    destination: { write: (line: string) => void lines.push(JSON.parse(line) as Record<string, unknown>) },
  });
  const metrics = createMetrics();
  const valuesOf = async (name: string): Promise<unknown> => {
    const metric = (await metrics.registry.getMetricsAsJSON()).find((candidate) => candidate.name === name);
    // ignores labelled series with the value 0: they exist from the start
    const seen = metric?.values.filter(
      ({ labels, value }) => value !== 0 || Object.keys(labels).length === 0,
    );
    return seen?.map(({ labels, value }) => [labels, value]);
  };
  return { lines, metrics, events: createEvents(metrics, log), valuesOf };
}

const session = { sessionId: 's1', user: 'alice', node: 'laptop', kind: 'exec' } as const;

describe('events', () => {
  it('log a line and move a metric together', async () => {
    const { lines, events, valuesOf } = setUp();
    events.sessionStarted({ ...session, recorder: '100.64.0.9:80' });
    expect(await valuesOf('tailcast_sessions_active')).toEqual([[{}, 1]]);
    events.sessionUnrecorded({ ...session, reason: 'no recorder' });
    events.recordingGap({ ...session, reason: 'full', bytes: 10 });
    events.recorderLost({ ...session, mode: 'failOpen', recorder: 'r', reason: 'x', resumed: false });
    events.sessionViolated({ ...session, reason: 'bad frame' });
    events.sessionEnded({ ...session, outcome: 'violated', durationMs: 5, outputBytes: 1, inputBytes: 2 });
    events.requestRefused({
      code: 'POLICY_REFUSED',
      reason: 'no',
      protocol: 'h1',
      peer: '100.64.0.1',
      method: 'GET',
      path: '/x',
    });
    events.apiEventFailed({ id: 'r1', mode: 'failClosed', reason: 'down', user: 'alice' });
    events.upstreamFailed({ id: 'r2', code: 'UPSTREAM_BROKEN', reason: 'reset' });
    expect(await valuesOf('tailcast_sessions_active')).toEqual([[{}, 0]]);
    expect(await valuesOf('tailcast_sessions_total')).toEqual([[{ outcome: 'violated' }, 1]]);
    expect(await valuesOf('tailcast_sessions_unrecorded_total')).toEqual([[{}, 1]]);
    expect(await valuesOf('tailcast_recording_gaps_total')).toEqual([[{}, 1]]);
    expect(await valuesOf('tailcast_recorder_lost_total')).toEqual([[{ mode: 'failOpen' }, 1]]);
    expect(await valuesOf('tailcast_sessions_violated_total')).toEqual([[{}, 1]]);
    expect(await valuesOf('tailcast_refusals_total')).toEqual([[{ code: 'POLICY_REFUSED' }, 1]]);
    expect(await valuesOf('tailcast_api_event_failures_total')).toEqual([[{ mode: 'failClosed' }, 1]]);
    expect(await valuesOf('tailcast_upstream_failures_total')).toEqual([[{ code: 'UPSTREAM_BROKEN' }, 1]]);
    expect(lines.map(({ level, msg }) => [level, msg])).toEqual([
      ['info', 'session started'],
      ['warn', 'session is not recorded'],
      ['warn', 'recording has a gap'],
      ['warn', 'recorder lost'],
      ['warn', 'session violated its protocol'],
      ['info', 'session ended'],
      ['info', 'request refused'],
      ['warn', 'api request event was not recorded'],
      ['warn', 'exchange with the api server failed'],
    ]);
    expect(lines[0]).toMatchObject({ sessionId: 's1', recorder: '100.64.0.9:80' });
  });
});

describe('events about the ends of recordings', () => {
  it('tell what waits, and what became of it', async () => {
    const { lines, events, valuesOf } = setUp();
    events.recordingIncomplete({ ...session, bytes: 10 });
    events.recordingIncomplete({ ...session, sessionId: 's2', bytes: 5 });
    expect(await valuesOf('tailcast_late_recordings_waiting')).toEqual([[{}, 2]]);
    expect(await valuesOf('tailcast_late_bytes_waiting')).toEqual([[{}, 15]]);
    events.recordingDelivered({ ...session, bytes: 10, recorder: 'r', waitedMs: 7 });
    // of the five pending bytes, two were acknowledged and three are dropped
    events.recordingDropped({ ...session, sessionId: 's2', bytes: 3, ofBytes: 5, reason: 'too old' });
    expect(await valuesOf('tailcast_late_recordings_waiting')).toEqual([[{}, 0]]);
    expect(await valuesOf('tailcast_late_bytes_waiting')).toEqual([[{}, 0]]);
    expect(await valuesOf('tailcast_late_recordings_total')).toEqual([
      [{ outcome: 'delivered' }, 1],
      [{ outcome: 'dropped' }, 1],
    ]);
    expect(await valuesOf('tailcast_late_bytes_total')).toEqual([
      [{ outcome: 'delivered' }, 10],
      [{ outcome: 'dropped' }, 3],
    ]);
    expect(lines.map(({ level, sessionId, bytes }) => [level, sessionId, bytes])).toEqual([
      ['warn', 's1', 10],
      ['warn', 's2', 5],
      ['info', 's1', 10],
      ['error', 's2', 3],
    ]);
  });
});

describe('request metrics', () => {
  it('count by protocol and status, and keep long-running requests out of the durations', async () => {
    const { metrics, valuesOf } = setUp();
    const request = {
      protocol: 'h1',
      status: 200,
      seconds: 0.004,
      longRunning: false,
      requestBytes: 3,
      responseBytes: 7,
    } as const;
    for (let index = 0; index < 3; index++) metrics.requestStarted();
    metrics.requestFinished(request);
    metrics.requestFinished({ ...request, protocol: 'h2', status: 499, longRunning: true, seconds: 4000 });
    // a second scrape must not count the requests again
    await valuesOf('tailcast_requests_total');
    expect(await valuesOf('tailcast_requests_total')).toEqual([
      [{ protocol: 'h1', code: '200' }, 1],
      [{ protocol: 'h2', code: '499' }, 1],
    ]);
    expect(await valuesOf('tailcast_requests_in_flight')).toEqual([[{}, 1]]);
    expect(await valuesOf('tailcast_body_bytes_total')).toEqual([
      [{ direction: 'request' }, 6],
      [{ direction: 'response' }, 14],
    ]);
    const text = await metrics.registry.metrics();
    expect(text).toContain('tailcast_request_duration_seconds_bucket{le="0.005",protocol="h1"} 1');
    expect(text).toContain('tailcast_request_duration_seconds_count{protocol="h1"} 1');
    expect(text).not.toContain('tailcast_request_duration_seconds_count{protocol="h2"} 1');
  });
});
