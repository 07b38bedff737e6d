import { createServer } from 'node:http';
import { expect, it } from 'vitest';
import { runChecks, type CheckFinding } from '../../src/doctor/checks.ts';
import { serverClockCheck } from '../../src/doctor/clock-check.ts';
import { listenOn } from '../support/listen.ts';

const NOON = Date.UTC(2026, 10, 21, 12);

/** A store that rejects all requests and returns its time. */
async function examine(date: string | undefined): Promise<CheckFinding | undefined> {
  const server = createServer((_request, response) => {
    response.sendDate = false;
    if (date !== undefined) response.setHeader('date', date);
    response.writeHead(403).end();
  });
  const url = new URL(`http://127.0.0.1:${await listenOn(server)}`);
  const check = serverClockCheck(url, 'the store', () => NOON);
  const [finding] = await runChecks([check], new AbortController().signal);
  server.closeAllConnections();
  server.close();
  return finding;
}

it.each([
  [0, 'ok', 'agrees with the store’s'],
  [-6000, 'warning', '5 s ahead of the store’s'],
  [6000, 'warning', '6 s behind the store’s'],
  [120_000, 'failed', '120 s behind the store’s'],
])('a store that is off by %i ms: %s', async (offMs, status, summary) => {
  expect(await examine(new Date(NOON + offMs).toUTCString())).toMatchObject({ id: 'clock', status, summary });
});

it('takes no time for no answer', async () => {
  expect(await examine(undefined)).toMatchObject({
    status: 'ok',
    summary: 'the store does not report its time',
  });
});

it('fails where nobody answers', async () => {
  const check = serverClockCheck(new URL('http://127.0.0.1:1'), 'the store', () => NOON);
  const [finding] = await runChecks([check], new AbortController().signal);
  expect(finding).toMatchObject({ id: 'clock', status: 'failed' });
});
