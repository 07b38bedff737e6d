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
  expires: new Date((SECONDS + 3600) * 1000).toISOString(),
  approvers: ['carol@example.com'],
};

/** Runs a report for one approved access request, with one event of its use for each of these trust levels. */
async function report(...uses: readonly string[]): Promise<Record<string, unknown>> {
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
        ]
      : uses.map((trust) => ({
          event: { timestamp: SECONDS, kubernetes: { Subresource: 'exec' }, access: { request: 'r1' } },
          trust,
        }));
    response.setHeader('content-type', 'application/json').end(JSON.stringify({ events }));
  });
  await listenOn(server);
  onTestFinished(() => void server.close());
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const { out } = await runCommand('report', '--recorder', url, '--since', '1d', '--format', 'json');
  return (JSON.parse(out) as { requests: Record<string, unknown>[] }).requests[0] ?? {};
}

it('a report is unverified if an event of a request or of its use has no proof', async () => {
  expect(await report('verified', 'verified')).toMatchObject({ calls: 2, unused: false, trust: 'verified' });
  expect(await report()).toMatchObject({ calls: 0, unused: true, trust: 'verified' });
  // a writer of the store can add events
  expect(await report('verified', 'unverified')).toMatchObject({
    calls: 2,
    sessions: 2,
    trust: 'unverified',
  });
});
