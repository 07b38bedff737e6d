/** A 403 that the API server means for the gateway's account becomes a 503; a 403 for the caller stays what it is. */
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { openArena, type Arena, type Outcome } from './arena.ts';
import { send, type Transport } from './transports.ts';

let arena: Arena;
beforeAll(async () => {
  arena = await openArena();
});
afterAll(() => arena.close());
afterEach(() => {
  arena.apiServer.script = undefined;
});

const ACCOUNT = 'User "system:serviceaccount:t:gw" cannot impersonate resource "users" in API group ""';

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
  return `HTTP/1.1 403 Forbidden\r\nAudit-Id: a\r\nContent-Type: application/json\r\n${fields}Content-Length: ${body.length}\r\n\r\n${body}`;
}

const REFUSAL = statusBody(
  `users "alice@example.com" is forbidden: ${ACCOUNT} at the cluster scope`,
  'users',
);

describe.each(['h1 request', 'h1 upgrade', 'h2 request'] as const)('%s', (transport: Transport) => {
  async function ask(answer: string | undefined): Promise<Extract<Outcome, { kind: 'response' }>> {
    arena.apiServer.script = () => answer;
    const outcome = await send(arena, transport);
    if (outcome.kind !== 'response') throw new Error('there was no response');
    return outcome;
  }

  it('is answered 503 with Retry-After and a sentence about the account, logged', async () => {
    const outcome = await ask(response(REFUSAL));
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
  });

  it.each([
    ['an ordinary refusal', response(statusBody('pods is forbidden: User "alice" cannot list', 'pods'))],
    [
      'a refusal of a resource that is named as the account’s',
      response(
        statusBody(
          `users is forbidden: ${ACCOUNT} is forbidden: User "alice" cannot list`,
          `users is forbidden: ${ACCOUNT}`,
        ),
      ),
    ],
    ['a response after priority and fairness', response(REFUSAL, 'X-Kubernetes-Pf-Flowschema-Uid: f\r\n')],
    ['a long body', response(JSON.stringify({ message: 'x'.repeat(40_000) }))],
    ['an empty body', response('')],
  ])('stays 403 for %s, byte for byte', async (_name, answer) => {
    const outcome = await ask(answer);
    expect(outcome.status).toBe(403);
    expect(outcome.body).toBe(answer.slice(answer.indexOf('\r\n\r\n') + 4));
    if (transport !== 'h2 request') expect(outcome.head).toMatch(/^audit-id: a\r?$/im);
  });

  it('is not confused by the next request', async () => {
    expect((await ask(response(REFUSAL))).status).toBe(503);
    expect((await ask(undefined)).status).toBe(transport === 'h1 upgrade' ? 101 : 200);
  });
});
