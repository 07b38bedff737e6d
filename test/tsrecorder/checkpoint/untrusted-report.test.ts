import { Gauge } from 'prom-client';
import { expect, it } from 'vitest';
import { createSilentLogger } from '../../../src/observe/logger.ts';
import type { UntrustedSession } from '../../../src/tsrecorder/checkpoint/takeover.ts';
import { createUntrustedReport } from '../../../src/tsrecorder/checkpoint/untrusted-report.ts';

const DAY_MS = 86_400_000;

it('sessions under changing names cause a limited number of events per day', () => {
  let nowMs = 0;
  const events: string[] = [];
  const untrusted = new Gauge({ name: 'test_untrusted', help: 'test', registers: [] });
  const report = createUntrustedReport({
    events: { record: async (event) => void events.push(event) },
    metrics: { untrusted },
    nowMs: () => nowMs,
    log: createSilentLogger(),
  });
  const sessions = (pass: number): readonly UntrustedSession[] =>
    Array.from({ length: 400 }, (_, at) => ({
      recording: `n_${at}`,
      folder: `.open/${pass}/${at}`,
      trust: 'unverified',
      reason: 'forged',
    }));
  report(sessions(0));
  report(sessions(0));
  expect(events).toHaveLength(400);
  for (let pass = 1; pass < 10; pass += 1) report(sessions(pass));
  expect(events).toHaveLength(1000);
  nowMs += DAY_MS;
  report(sessions(9));
  // the sessions that were not reported before are reported now
  expect(events).toHaveLength(1400);
});
