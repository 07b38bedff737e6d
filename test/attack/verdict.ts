/** Required properties of every request at the API server, and allowed results of an attack. */
import { expect } from 'vitest';
import type { Arena, Caller, Outcome } from './arena.ts';
import { GATEWAY_TOKEN } from './arena.ts';
import { valuesOf, type EchoedRequest } from './echo-api-server.ts';

/** Text in hostile values. Tests search for this text in the bytes of forwarded requests. */
export const MARK = 'attacker';

/** Headers that must not reach the API server in mode `auth`. This list shares no code with `src/`. */
const NEVER =
  /^(impersonate(?!-(user|group|extra-tailcast\.dev%2f(request|session|node))$)|x-remote|x-forwarded|forwarded$|x-real-ip$|tailscale|cookie|proxy-|te$|trailer$|keep-alive$|http2-settings$|traceparent$|tracestate$|baggage$|b3$|x-b3-|x-request-id$|x-correlation-id$)/i;

export interface Sent {
  readonly caller: Caller;
  readonly method: string;
  readonly target: string;
  readonly upgrade: boolean;
}

/** Checks that a request runs only as the caller, has an unambiguous framing, and has the requested target. */
export function expectFaithful(request: EchoedRequest, sent: Sent): void {
  const { caller, method, target, upgrade } = sent;
  expect(request.requestLine).toBe(`${method} ${target} HTTP/1.1`);
  const port = valuesOf(request, 'host')[0]?.split(':')[1];
  expect(valuesOf(request, 'host')).toEqual([`localhost:${port}`]);
  expect(valuesOf(request, 'authorization')).toEqual([`Bearer ${GATEWAY_TOKEN}`]);
  expect(valuesOf(request, 'impersonate-user')).toEqual([caller.login]);
  expect(valuesOf(request, 'impersonate-group')).toEqual(caller.groups);
  expect(valuesOf(request, 'audit-id')).toEqual([
    expect.stringMatching(/^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/),
  ]);
  expect(valuesOf(request, 'connection')).toEqual(upgrade ? ['Upgrade'] : []);
  expect(valuesOf(request, 'upgrade')).toHaveLength(upgrade ? 1 : 0);
  expect(
    valuesOf(request, 'transfer-encoding').length + valuesOf(request, 'content-length').length,
  ).toBeLessThan(2);
  expect(request.headers.map(([name]) => name).filter((name) => NEVER.test(name))).toEqual([]);
}

/** The result of an attack, and the bytes that the API server received. */
export interface Observed {
  readonly outcome: Outcome;
  readonly requests: readonly EchoedRequest[];
  readonly bytes: number;
}

/** Runs one attack. No other attack may run at the same time. */
export async function observe(arena: Arena, attack: () => Promise<Outcome>): Promise<Observed> {
  const { apiServer } = arena;
  const before = { requests: apiServer.requests.length, bytes: apiServer.receivedBytes };
  const outcome = await attack();
  return {
    outcome,
    requests: apiServer.requests.slice(before.requests),
    bytes: apiServer.receivedBytes - before.bytes,
  };
}

/** Checks that the API server received nothing, and that the client got a Status or a closed connection. */
export function expectDenied({ outcome, bytes }: Observed, statuses?: readonly number[]): void {
  expect(bytes).toBe(0);
  if (outcome.kind === 'closed') {
    expect(statuses ?? ['closed']).toContain('closed');
    return;
  }
  expect(outcome.status).toBeGreaterThanOrEqual(400);
  expect(outcome.status).toBeLessThan(500);
  if (statuses !== undefined) expect(statuses).toContain(outcome.status);
  expect(JSON.parse(outcome.body)).toMatchObject({ kind: 'Status', status: 'Failure', code: outcome.status });
}

/** Checks that the request was forwarded once, as the caller, and without the attack. */
export function expectStripped(observed: Observed, sent: Sent): void {
  const request = expectForwarded(observed, sent);
  expect(request.head.toLowerCase()).not.toContain(MARK);
}

/** Checks that the request was forwarded once, as the caller. */
export function expectForwarded({ outcome, requests }: Observed, sent: Sent): EchoedRequest {
  expect(outcome).toMatchObject({ kind: 'response', status: sent.upgrade ? 101 : 200 });
  expect(requests).toHaveLength(1);
  const [request] = requests;
  if (request === undefined) throw new Error('unreachable');
  expectFaithful(request, sent);
  return request;
}
