import { STATUS_CODES } from 'node:http';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { ERROR_TABLE, TailcastError, type ErrorCode } from '../../src/errors.ts';
import { rawStatusResponse, statusOf } from '../../src/kube/status.ts';
import { safeLine } from '../../src/safe-text.ts';

/** Current reason phrases of statuses for which Node's table may still contain an older phrase. */
const RENAMED_IN_RFC_9110: Record<number, readonly string[]> = {
  413: ['Content Too Large'],
  422: ['Unprocessable Content'],
};

const codes = Object.keys(ERROR_TABLE) as ErrorCode[];

describe('statusOf', () => {
  it('is a Status a Kubernetes client understands', () => {
    const { httpStatus, body } = statusOf(new TailcastError('POLICY_REFUSED', 'port-forward is not allowed'));
    expect(httpStatus).toBe(403);
    expect(JSON.parse(body)).toEqual({
      kind: 'Status',
      apiVersion: 'v1',
      metadata: {},
      status: 'Failure',
      message: 'refused by policy: port-forward is not allowed',
      reason: 'Forbidden',
      details: { causes: [{ reason: 'TailcastCode', message: 'POLICY_REFUSED' }] },
      code: 403,
    });
  });

  it.each(codes)('gives %s its own status, reason and cause', (code) => {
    const { httpStatus, body } = statusOf(new TailcastError(code));
    const { status, reason, message } = ERROR_TABLE[code];
    expect(httpStatus).toBe(status);
    expect(JSON.parse(body)).toMatchObject({
      code: status,
      reason,
      message,
      details: { causes: [{ message: code }] },
    });
  });

  it.each([
    new Error('password=hunter2 at /etc/x'),
    'hunter2',
    { toString: () => 'hunter2' },
    null,
    undefined,
  ])('says nothing about the inside of an unexpected error', (thrown) => {
    const { httpStatus, body } = statusOf(thrown);
    expect(httpStatus).toBe(500);
    expect(body).not.toMatch(/hunter2|etc/);
    expect(JSON.parse(body)).toMatchObject({
      reason: 'InternalError',
      details: { causes: [{ message: 'INTERNAL' }] },
    });
  });

  it('never shows the cause of an expected error', () => {
    const error = new TailcastError('UPSTREAM_UNAVAILABLE', undefined, { cause: new Error('hunter2') });
    expect(statusOf(error).body).not.toContain('hunter2');
  });

  it('escapes what a browser could take for markup, and stays the same JSON', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary' }), (detail) => {
        const { body } = statusOf(new TailcastError('USAGE', `<script>&${detail}\u2028`));
        expect(body).not.toMatch(/[<>&\u2028\u2029\n]/);
        const { message } = JSON.parse(body) as { message: string };
        expect(message).toBe(`wrong usage: <script>&${safeLine(detail)}\ufffd`);
      }),
    );
  });

  it('has nothing in its message that a terminal obeys or hides', () => {
    const detail = 'recorder says: \u001b]0;owned\u0007\u009b2J\r\n\u202Egnp.exe\u200b';
    const { message } = JSON.parse(statusOf(new TailcastError('USAGE', detail)).body) as { message: string };
    expect(message).toBe(
      'wrong usage: recorder says: \ufffd]0;owned\ufffd\ufffd2J\ufffd\ufffd\ufffdgnp.exe\ufffd',
    );
  });

  it('cuts a long message', () => {
    expect(statusOf(new TailcastError('USAGE', 'x'.repeat(100_000))).body.length).toBeLessThan(3000);
  });

  it('invites a retry only where one helps', () => {
    expect(statusOf(new TailcastError('OVERLOADED')).retryAfterSeconds).toBe(1);
    expect(JSON.parse(statusOf(new TailcastError('OVERLOADED')).body)).toMatchObject({
      details: { retryAfterSeconds: 1 },
    });
    expect(statusOf(new TailcastError('RECORDING_REQUIRED')).retryAfterSeconds).toBeUndefined();
  });
});

describe('rawStatusResponse', () => {
  it('is a whole response that ends the connection', () => {
    const error = new TailcastError('RECORDING_REQUIRED', 'no recorder “à la carte”');
    const text = Buffer.from(rawStatusResponse(error)).toString('utf8');
    const [head = '', body = ''] = text.split('\r\n\r\n');
    expect(head.split('\r\n')).toEqual([
      'HTTP/1.1 403 Forbidden',
      'Content-Type: application/json',
      'X-Content-Type-Options: nosniff',
      'Cache-Control: no-cache, private',
      `Content-Length: ${Buffer.byteLength(body)}`,
      'Connection: close',
    ]);
    expect(body).toBe(statusOf(error).body);
  });

  it.each(codes)('has a phrase for the status of %s', (code) => {
    const [line = ''] = Buffer.from(rawStatusResponse(new TailcastError(code)))
      .toString('utf8')
      .split('\r\n');
    const { status } = ERROR_TABLE[code];
    const phrases = [STATUS_CODES[status], ...(RENAMED_IN_RFC_9110[status] ?? [])];
    expect(phrases.map((phrase) => `HTTP/1.1 ${status} ${phrase}`)).toContain(line);
  });

  it('sends Retry-After with what may be retried', () => {
    expect(Buffer.from(rawStatusResponse(new TailcastError('SHUTTING_DOWN'))).toString()).toContain(
      '\r\nRetry-After: 1\r\n',
    );
  });
});
