import { beforeEach, describe, expect, it } from 'vitest';
import { TailcastError } from '../../../src/errors.ts';
import type { AccessEntry } from '../../../src/observe/access-log.ts';
import type { RequestCount } from '../../../src/observe/metrics.ts';
import { Account } from '../../../src/proxy/gate/account.ts';
import { person } from '../rig.ts';

const INBOUND = {
  method: 'GET',
  target: '/api/v1/pods?labelSelector=secret',
  peer: { address: '100.64.0.1', port: 1, source: 'socket' },
} as const;
const CALLER = { id: 'request-1', identity: person() };

let nowMs = 0;
let started = 0;
let counted: RequestCount[] = [];
let written: AccessEntry[] = [];
let refused: unknown[] = [];
beforeEach(() => {
  [nowMs, started, counted, written, refused] = [1000, 0, [], [], []];
});

function open(): Account {
  return new Account('h1', INBOUND, {
    metrics: { requestStarted: () => (started += 1), requestFinished: (count) => counted.push(count) },
    accessLog: { write: (entry) => written.push(entry) },
    events: { requestRefused: (event) => refused.push(event) },
    monotonicMs: () => nowMs,
  });
}

describe('the access-log entry of a request', () => {
  it('is counted and written once, when the request is closed', () => {
    const account = open();
    expect(started).toBe(1);
    account.recognised(CALLER);
    account.answered(200);
    account.requestBytes += 3;
    account.responseBytes += 4;
    nowMs += 2500;
    expect([counted, written]).toEqual([[], []]);
    account.close();
    account.close();
    const sizes = { requestBytes: 3, responseBytes: 4 };
    expect(counted).toEqual([{ protocol: 'h1', status: 200, seconds: 2.5, longRunning: false, ...sizes }]);
    expect(written).toEqual([
      {
        id: 'request-1',
        protocol: 'h1',
        peer: '100.64.0.1',
        user: 'alice@example.com',
        method: 'GET',
        path: '/api/v1/pods',
        status: 200,
        durationMs: 2500,
        ...sizes,
      },
    ]);
  });

  it('reports that the client disconnected before the response', () => {
    open().close();
    expect(counted[0]?.status).toBe(499);
    expect(written[0]).toMatchObject({ id: '', user: '', status: 499 });
    expect(written[0]).not.toHaveProperty('error');
  });

  it('counts a response before its entry is written, and then stays unchanged', () => {
    const account = open();
    account.answered(101);
    account.count();
    account.answered(500);
    account.responseBytes = 9;
    nowMs += 10;
    account.failed('RECORDER_LOST');
    account.close();
    expect(counted.map(({ status, seconds, responseBytes }) => [status, seconds, responseBytes])).toEqual([
      [101, 0, 0],
    ]);
    expect(written[0]).toMatchObject({
      status: 101,
      durationMs: 10,
      responseBytes: 9,
      error: 'RECORDER_LOST',
    });
  });

  it('of a refused request contains the caller, as far as known, and the target', () => {
    const account = open();
    account.refused(new Error('a secret of the machine'), 500);
    expect(account.begun).toBe(true);
    account.recognised(CALLER);
    account.refused(new TailcastError('ACCESS_ENDED'));
    account.close();
    const asked = { protocol: 'h1', peer: '100.64.0.1', method: 'GET', path: '/api/v1/pods' };
    expect(refused).toEqual([
      { code: 'INTERNAL', reason: 'a secret of the machine', ...asked },
      {
        id: 'request-1',
        user: 'alice@example.com',
        code: 'ACCESS_ENDED',
        reason: new TailcastError('ACCESS_ENDED').message,
        ...asked,
      },
    ]);
    expect(written[0]).toMatchObject({ status: 500, error: 'ACCESS_ENDED' });
  });

  it('shortens an invalid method', () => {
    const account = new Account(
      'h2',
      { ...INBOUND, method: 'X'.repeat(5000) },
      {
        metrics: { requestStarted: () => {}, requestFinished: () => {} },
        accessLog: { write: (entry) => written.push(entry) },
        events: { requestRefused: () => {} },
        monotonicMs: () => 0,
      },
    );
    account.close();
    expect(written[0]?.method).toBe('X'.repeat(20));
  });
});
