/**
 * If the API server refuses the gateway's own account with 403, the client gets 503. A 403 for the caller stays a 403.
 * Pods and aggregated APIs can also send a 403, so the gateway relies only on the API server's response to the
 * gateway's own request.
 */
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { openArena, type Arena, type Outcome } from './arena.ts';
import type { EchoedRequest } from './echo-api-server.ts';
import { send, type Ask, type Transport } from './transports.ts';

let arena: Arena;
// one arena per test: the gateway caches the API server's response for one second
beforeEach(async () => {
  arena = await openArena();
});
afterEach(() => arena.close());

const ACCOUNT = 'User "system:serviceaccount:t:gw" cannot impersonate resource "users" in API group ""';
const REVIEW = 'POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews HTTP/1.1';

function statusBody(message: string, kind: string): string {
  const details = { name: 'alice@example.com', kind };
  return JSON.stringify({
    kind: 'Status',
    apiVersion: 'v1',
    message,
    reason: 'Forbidden',
    details,
    code: 403,
  });
}

function response(body: string, fields = ''): string {
  return (
    `HTTP/1.1 403 Forbidden\r\nAudit-Id: a\r\nContent-Type: application/json\r\n${fields}Content-Length: ` +
    `${body.length}\r\n\r\n${body}`
  );
}

const REFUSAL = response(
  statusBody(`users "alice@example.com" is forbidden: ${ACCOUNT} at the cluster scope`, 'users'),
);
const FORBIDDEN = response(statusBody('pods is forbidden: User "alice" cannot list', 'pods'));
const REVIEWED = JSON.stringify({ kind: 'SelfSubjectAccessReview', status: { allowed: false } });
const ALLOWED = `HTTP/1.1 201 Created\r\nContent-Length: ${REVIEWED.length}\r\n\r\n${REVIEWED}`;

/**
 * Sends one request. The API server sends the response `answer` to the client's request, and `own` to the gateway's own
 * request.
 */
async function ask(
  transport: Transport,
  answer: string,
  own: string,
  request: Ask = {},
): Promise<{ readonly outcome: Extract<Outcome, { kind: 'response' }>; readonly reviews: EchoedRequest[] }> {
  arena.apiServer.script = ({ requestLine }) => (requestLine === REVIEW ? own : answer);
  const outcome = await send(arena, transport, request);
  if (outcome.kind !== 'response') throw new Error('there was no response');
  return { outcome, reviews: arena.apiServer.requests.filter(({ requestLine }) => requestLine === REVIEW) };
}

describe.each(['h1 request', 'h1 upgrade', 'h2 request'] as const)('%s', (transport) => {
  it('is answered 503 with Retry-After and a sentence about the account, logged', async () => {
    const { outcome, reviews } = await ask(transport, REFUSAL, REFUSAL);
    expect(outcome.status).toBe(503);
    if (transport !== 'h2 request') expect(outcome.head).toMatch(/^retry-after: 1\r?$/im);
    expect(JSON.parse(outcome.body)).toMatchObject({
      kind: 'Status',
      reason: 'ServiceUnavailable',
      message: expect.stringContaining(
        'own account impersonate; this says nothing about your rights',
      ) as unknown,
      details: { retryAfterSeconds: 1, causes: [{ message: 'UPSTREAM_REFUSED_ACCOUNT' }] },
    });
    expect(arena.logged()).toContain('"code":"UPSTREAM_REFUSED_ACCOUNT"');
    expect(reviews.map(({ head }) => head.match(/^impersonate-.*$/gim))).toEqual([
      ['Impersonate-User: alice@example.com', 'Impersonate-Group: devs', 'Impersonate-Group: ops'],
    ]);
  });

  it.each([
    ['YAML', response('kind: Status\ncode: 403\n')],
    ['protobuf', response('k8s\0\u0001')],
    ['an empty body', response('')],
    [
      'a body without a length',
      'HTTP/1.1 403 Forbidden\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n',
    ],
  ])('is answered 503 for %s', async (_name, answer) => {
    expect((await ask(transport, answer, REFUSAL)).outcome.status).toBe(503);
  });

  it.each([
    ['an ordinary refusal', FORBIDDEN, ALLOWED],
    ['a response of a pod that imitates the API server', REFUSAL, ALLOWED],
    [
      'a caller who may not create reviews',
      FORBIDDEN,
      response(statusBody('no', 'selfsubjectaccessreviews')),
    ],
    [
      'an API server that does not respond to the gateway',
      REFUSAL,
      'HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n',
    ],
    ['a proxy that refuses the gateway', REFUSAL, response('{}')],
    ['a long body', response(JSON.stringify({ message: 'x'.repeat(40_000) })), ALLOWED],
    ['an empty body', response(''), ALLOWED],
  ])('stays 403 for %s, byte for byte', async (_name, answer, own) => {
    const { outcome } = await ask(transport, answer, own);
    expect(outcome.status).toBe(403);
    expect(outcome.body).toBe(answer.slice(answer.indexOf('\r\n\r\n') + 4));
    if (transport !== 'h2 request') expect(outcome.head).toMatch(/^audit-id: a\r?$/im);
  });

  it('stays 403 after priority and fairness, without a request of the gateway', async () => {
    const late = REFUSAL.replace('Content-Length', 'X-Kubernetes-Pf-Flowschema-Uid: f\r\nContent-Length');
    const { outcome, reviews } = await ask(transport, late, REFUSAL);
    expect(outcome.status).toBe(403);
    expect(reviews).toEqual([]);
  });

  it('asks once for the refusals of a second', async () => {
    const all = await Promise.all(Array.from({ length: 5 }, () => ask(transport, REFUSAL, ALLOWED)));
    expect(all.map(({ outcome }) => outcome.status)).toEqual([403, 403, 403, 403, 403]);
    expect(all.at(-1)?.reviews.length).toBe(1);
  });
});

it.each([
  '/api/v1/namespaces/n/pods/p/proxy/x',
  '/api/v1/namespaces/n/services/s/proxy/x',
  '/api/v1/nodes/n/proxy/x',
  '/apis/metrics.k8s.io/v1beta1/nodes',
])('a program behind %s cannot cause a 503', async (target) => {
  expect((await ask('h1 request', REFUSAL, ALLOWED, { target })).outcome.status).toBe(403);
});

it('a HEAD request gets 503 if the account is refused', async () => {
  const head = 'HTTP/1.1 403 Forbidden\r\nContent-Length: 9\r\n\r\n';
  expect((await ask('h1 request', head, REFUSAL, { method: 'HEAD' })).outcome.status).toBe(503);
});
