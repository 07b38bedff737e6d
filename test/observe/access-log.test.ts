import { describe, expect, it } from 'vitest';
import { createAccessLog, loggedPath, type AccessEntry } from '../../src/observe/access-log.ts';

const startMs = Date.parse('2026-11-21T08:00:00.123Z');
const entry: AccessEntry = {
  id: 'id-1',
  protocol: 'h1',
  peer: '100.64.0.1',
  user: 'alice@example.com',
  method: 'GET',
  path: '/api/v1/pods',
  status: 200,
  durationMs: 1.23456,
  requestBytes: 0,
  responseBytes: 5,
};

function sink() {
  const writes: string[] = [];
  return { writes, writableLength: 0, write: (text: string) => writes.push(text) > 0 };
}

describe('the path of a request in logs', () => {
  it.each([
    ['/api/v1/pods', '/api/v1/pods'],
    ['/api/v1/pods?watch=1&x=?', '/api/v1/pods'],
    ['?watch=1', ''],
    ['/'.repeat(1024), '/'.repeat(1024)],
    ['/'.repeat(1025), '/'.repeat(1024)],
    [`${'/'.repeat(1024)}?watch=1`, '/'.repeat(1024)],
  ])('has neither a query nor an end that nobody reads', (target, path) => {
    expect(loggedPath(target)).toBe(path);
  });
});

describe('access log', () => {
  it('writes one JSON line per request, together', () => {
    const out = sink();
    let nowMs = startMs + entry.durationMs;
    const log = createAccessLog(out, { nowMs: () => nowMs });
    log.write(entry);
    nowMs += 900;
    log.write({ ...entry, error: 'UPSTREAM_BROKEN' });
    expect(out.writes).toEqual([]);
    log.close();
    expect(out.writes).toHaveLength(1);
    const lines = out.writes[0]!.trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line) as Record<string, unknown>);
    expect(lines[0]).toEqual({
      time: '2026-11-21T08:00:00.123Z',
      level: 'info',
      msg: 'request',
      id: 'id-1',
      protocol: 'h1',
      peer: '100.64.0.1',
      user: 'alice@example.com',
      method: 'GET',
      path: '/api/v1/pods',
      status: 200,
      durationMs: 1.235,
      requestBytes: 0,
      responseBytes: 5,
    });
    expect(lines[1]).toMatchObject({ time: '2026-11-21T08:00:01.023Z', error: 'UPSTREAM_BROKEN' });
  });

  it('keeps one line per request whatever a client writes into it', () => {
    const out = sink();
    const log = createAccessLog(out);
    const path = '/a"b\\c\nd\u2028é';
    log.write({ ...entry, path });
    log.close();
    expect(out.writes[0]!.match(/\n/g)).toHaveLength(1);
    expect(JSON.parse(out.writes[0]!)).toMatchObject({ path });
  });

  it('drops lines while the destination does not keep up', () => {
    const out = sink();
    const log = createAccessLog(out, { maxPendingBytes: 10 });
    out.writableLength = 10;
    log.write(entry);
    out.writableLength = 11;
    log.write(entry);
    log.close();
    expect(out.writes.join('').match(/\n/g)).toHaveLength(1);
  });

  it('flushes by itself', async () => {
    const out = sink();
    createAccessLog(out, { flushMs: 5 }).write(entry);
    await expect.poll(() => out.writes.length).toBe(1);
  });
});
