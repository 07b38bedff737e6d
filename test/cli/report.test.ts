import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect, it, onTestFinished } from 'vitest';
import { runCommand } from '../support/run-command.ts';
import { listenOn } from '../support/listen.ts';

const SECONDS = Math.floor(Date.now() / 1000);
const STEP = {
  request: 'r1',
  step: 'granted',
  requester: 'alice@example.com',
  node: 'laptop',
  groups: ['sre'],
  user: '',
  writes: false,
  namespaces: [],
  reason: '',
  call: '',
  expires: new Date((SECONDS + 3600) * 1000).toISOString(),
  approvers: ['carol@example.com'],
};

/**
 * Runs a report on one approved access request.
 *
 * @param uses one trust level for each event; an event reports one use of the request
 * @param skipped batches that the recorder cannot read
 */
async function run(
  uses: readonly string[],
  skipped?: readonly string[],
  more: readonly string[] = [],
): Promise<{ readonly code: number; readonly out: string; readonly err: string }> {
  const server = createServer((request, response) => {
    const isStep = request.url?.includes('tailcast-access-request');
    const events = isStep
      ? [
          {
            event: {
              type: 'tailcast-access-request',
              timestamp: SECONDS,
              source: { node: 'g' },
              access: STEP,
            },
            trust: 'verified',
          },
          ...more.map((step) => ({
            event: {
              type: 'tailcast-access-request',
              timestamp: SECONDS,
              source: { node: 'g' },
              access: { ...STEP, step },
            },
            trust: 'verified',
          })),
          // anyone with write access to the store can add events with any content
          ...[9e15, -9e15, 0.5].map((timestamp) => ({
            event: { type: 'tailcast-access-request', timestamp, source: { node: 'g' }, access: STEP },
            trust: 'unverified',
          })),
        ]
      : uses.map((trust) => ({
          event: { timestamp: SECONDS, kubernetes: { Subresource: 'exec' }, access: { request: 'r1' } },
          trust,
        }));
    response
      .setHeader('content-type', 'application/json')
      .end(JSON.stringify({ events, ...(skipped && !isStep ? { skipped } : {}) }));
  });
  await listenOn(server);
  onTestFinished(() => void server.close());
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return runCommand('report', '--recorder', url, '--since', '1d', '--format', 'json');
}

function rowIn(out: string): Record<string, unknown> {
  return (JSON.parse(out) as { requests: Record<string, unknown>[] }).requests[0] ?? {};
}

const report = async (...uses: readonly string[]): Promise<Record<string, unknown>> =>
  rowIn((await run(uses)).out);

it('a report is unverified if an event of a request or of its use has no proof', async () => {
  expect(await report('verified', 'verified')).toMatchObject({ calls: 2, unused: false, trust: 'verified' });
  expect(await report()).toMatchObject({ calls: 0, unused: true, trust: 'verified' });
  // anyone with write access to the store can add events
  expect(await report('verified', 'unverified')).toMatchObject({
    calls: 2,
    sessions: 2,
    trust: 'unverified',
  });
});

it('a report is unverified and incomplete if the recorder skips a batch of events', async () => {
  // anyone with write access to the store can make a batch too large to read
  const { code, out, err } = await run([], ['2026-01-31T00:00:01Z_aa']);
  expect(rowIn(out)).toMatchObject({ calls: 0, unused: false, trust: 'unverified' });
  expect(JSON.parse(out)).toMatchObject({ skipped: ['2026-01-31T00:00:01Z_aa'] });
  expect(err).toContain('the report is incomplete. The recorder could not read: 2026-01-31T00:00:01Z_aa');
  expect(code).toBe(1);
});

it('a report shows a grant that did not take effect as failed', async () => {
  expect(rowIn((await run([], undefined, ['requestFailed'])).out)).toMatchObject({
    result: 'failed',
    granted: '',
    unused: false,
  });
});
