import { describe, expect, it } from 'vitest';
import type { ChannelVersion } from '../../../src/wire/remotecommand/channel.ts';
import {
  createStatusCollector,
  encodeStatus,
  MAX_STATUS_BYTES,
  parseExitStatus,
  translateStatus,
  type ExitStatus,
} from '../../../src/wire/remotecommand/exit-status.ts';
import { concat, thrownBy, utf8 } from '../bytes.ts';

const V4 = [4, 5] as const satisfies readonly ChannelVersion[];
const BEFORE_V4 = [1, 2, 3] as const satisfies readonly ChannelVersion[];
const parse = (text: string, version: ChannelVersion = 4): ExitStatus => parseExitStatus(utf8(text), version);

describe('exit status from v4 on', () => {
  it.each(V4)('reads success, v%d', (version) => {
    expect(parse('{"metadata":{},"status":"Success"}', version)).toEqual({ kind: 'success' });
    expect(parse('{"status":"Success"}', version)).toEqual({ kind: 'success' });
  });

  it.each(V4)('reads an exit code, v%d', (version) => {
    const status =
      '{"metadata":{},"status":"Failure","message":"command terminated with non-zero exit code: exit status 7",' +
      '"reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"7"}]}}';
    expect(parse(status, version)).toEqual({
      kind: 'exit',
      code: 7,
      message: 'command terminated with non-zero exit code: exit status 7',
    });
  });

  it('takes the cause that names the exit code, among others, and codes of 32 bits', () => {
    const causes = '[{"reason":"Other","message":"1"},{},{"reason":"ExitCode","message":"3221225786"}]';
    expect(parse(`{"status":"Failure","reason":"NonZeroExitCode","details":{"causes":${causes}}}`)).toEqual({
      kind: 'exit',
      code: 3_221_225_786,
      message: '',
    });
    const negative = '[{"reason":"ExitCode","message":"-1"}]';
    expect(
      parse(`{"status":"Failure","reason":"NonZeroExitCode","details":{"causes":${negative}}}`),
    ).toMatchObject({
      code: -1,
    });
  });

  it('reads a failure that is not the command’s', () => {
    expect(
      parse(
        '{"metadata":{},"status":"Failure","message":"no such file","reason":"InternalError","code":500}',
      ),
    ).toEqual({ kind: 'failure', message: 'no such file', reason: 'InternalError' });
    expect(parse('{"status":"Failure"}')).toEqual({ kind: 'failure', message: '' });
  });

  it('does not take silence for success', () => {
    expect(parse('')).toMatchObject({ kind: 'failure', reason: 'StatusMissing' });
  });

  it.each([
    'plain text',
    '[]',
    '{}',
    '{"status":"success"}',
    '{"status":7}',
    '{"status":"Failure","message":7}',
    '{"status":"Failure","reason":"NonZeroExitCode"}',
    '{"status":"Failure","reason":"NonZeroExitCode","details":[]}',
    '{"status":"Failure","reason":"NonZeroExitCode","details":{"causes":{}}}',
    '{"status":"Failure","reason":"NonZeroExitCode","details":{"causes":[]}}',
    '{"status":"Failure","reason":"NonZeroExitCode","details":{"causes":["ExitCode"]}}',
    '{"status":"Failure","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode"}]}}',
    '{"status":"Failure","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"7x"}]}}',
    '{"status":"Failure","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":7}]}}',
  ])('refuses %s', (text) => {
    expect(thrownBy(() => parse(text)).code).toBe('malformed');
  });
});

describe('exit status before v4', () => {
  it.each(BEFORE_V4)('is text, and nothing means success, v%d', (version) => {
    expect(parse('', version)).toEqual({ kind: 'success' });
    expect(parse('command failed', version)).toEqual({ kind: 'failure', message: 'command failed' });
    expect(parse('{"status":"Success"}', version)).toMatchObject({ kind: 'failure' });
  });

  it.each(BEFORE_V4)('has the exit code at the end of the text, v%d', (version) => {
    const message =
      "command terminated with non-zero exit code: error executing command [sh -c 'x'], exit code 42";
    expect(parse(message, version)).toEqual({ kind: 'exit', code: 42, message });
    expect(parse(`${message}, or not`, version)).toMatchObject({ kind: 'failure' });
    expect(parse(`error: ${message}`, version)).toMatchObject({ kind: 'failure' });
  });

  it('replaces bytes that are not UTF-8', () => {
    expect(parseExitStatus(concat(utf8('a'), Uint8Array.of(0xff)), 1)).toEqual({
      kind: 'failure',
      message: 'a\ufffd',
    });
  });
});

it('takes a status of the limit and refuses one byte more', () => {
  expect(parse('x'.repeat(MAX_STATUS_BYTES), 1)).toMatchObject({ kind: 'failure' });
  expect(thrownBy(() => parse('x'.repeat(MAX_STATUS_BYTES + 1), 1)).code).toBe('limit');
});

describe('encoding a status', () => {
  const text = (...args: Parameters<typeof encodeStatus>): string =>
    Buffer.from(encodeStatus(...args)).toString();

  it('writes what the kubelet writes', () => {
    expect(text({ kind: 'success' }, 4)).toBe('{"metadata":{},"status":"Success"}');
    expect(text({ kind: 'exit', code: 7, message: 'm' }, 5)).toBe(
      '{"metadata":{},"status":"Failure","message":"m","reason":"NonZeroExitCode",' +
        '"details":{"causes":[{"reason":"ExitCode","message":"7"}]}}',
    );
    expect(text({ kind: 'failure', message: 'm' }, 4)).toBe(
      '{"metadata":{},"status":"Failure","message":"m","reason":"InternalError","code":500}',
    );
    expect(text({ kind: 'failure', message: 'm', reason: 'Forbidden', httpStatus: 403 }, 4)).toBe(
      '{"metadata":{},"status":"Failure","message":"m","reason":"Forbidden","code":403}',
    );
  });

  it('writes text before v4', () => {
    expect(text({ kind: 'success' }, 3)).toBe('');
    expect(text({ kind: 'failure', message: 'm' }, 1)).toBe('m');
    expect(text({ kind: 'exit', code: 7 }, 2)).toContain('exit status 7');
    expect(text({ kind: 'exit', code: 7, message: 'm' }, 2)).toBe('m');
  });

  it.each([1, 2, 3, 4, 5] as const)('round-trips, v%d', (version) => {
    expect(parseExitStatus(encodeStatus({ kind: 'success' }, version), version)).toEqual({ kind: 'success' });
    const exit = parseExitStatus(encodeStatus({ kind: 'exit', code: 137 }, version), version);
    expect(exit).toMatchObject({ kind: 'exit', code: 137 });
    const failure = parseExitStatus(encodeStatus({ kind: 'failure', message: 'm' }, version), version);
    expect(failure).toMatchObject({ kind: 'failure', message: 'm' });
  });
});

describe('a collector of the error stream', () => {
  it('parses a status that arrives byte by byte', () => {
    const collector = createStatusCollector(4);
    for (const byte of utf8('{"status":"Success"}')) collector.push(Uint8Array.of(byte));
    expect(collector.finish()).toEqual({ kind: 'success' });
  });

  it('seldom copies the bytes, and keeps no more than the limit', () => {
    const collector = createStatusCollector(4);
    const copies = new Set<unknown>();
    for (let count = 0; count < MAX_STATUS_BYTES + 10; count += 1) {
      collector.push(Uint8Array.of(0x20));
      copies.add(collector.bytes.buffer);
    }
    expect(copies.size).toBeLessThan(20);
    expect(collector.bytes).toHaveLength(MAX_STATUS_BYTES + 1);
  });

  it('parses the bytes of a server that sends many messages a limited number of times', () => {
    const collector = createStatusCollector(4);
    for (let count = 0; count < 100; count += 1) {
      collector.push(Uint8Array.of(0x20));
      collector.finish();
    }
    collector.push(utf8('{"status":"Success"}'));
    expect(collector.finish()).toBeUndefined();
  });
});

describe('a status for WebSocket clients of version 5', () => {
  const translated = (status: string): unknown =>
    JSON.parse(new TextDecoder().decode(translateStatus(utf8(status))));
  const internal = (message: string): object => ({
    metadata: {},
    status: 'Failure',
    message: `Internal error occurred: ${message}`,
    reason: 'InternalError',
    details: { causes: [{ message }] },
    code: 500,
  });

  it.each<[string, string, object]>([
    ['success', '{"status":"Success"}', { metadata: {}, status: 'Success' }],
    [
      'an exit code',
      '{"status":"Failure","message":"exit status ' +
        '7","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"7"}]}}',
      {
        metadata: {},
        status: 'Failure',
        message: 'command terminated with non-zero exit code: command terminated with exit code 7',
        reason: 'NonZeroExitCode',
        details: { causes: [{ reason: 'ExitCode', message: '7' }] },
      },
    ],
    [
      'a program that does not exist',
      '{"status":"Failure","message":"error executing command in container: no such ' +
        'file","reason":"InternalError","code":500}',
      internal('error executing command in container: no such file'),
    ],
    [
      'an exit code that client-go does not read',
      '{"status":"Failure","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"256"}]}}',
      internal('error stream protocol error: invalid exit code value "256"'),
    ],
  ])('%s', (_name, status, expected) => {
    expect(translated(status)).toEqual(expected);
  });

  it('is an error if the kubelet sent something else', () => {
    expect(translated('no JSON')).toMatchObject({ reason: 'InternalError', code: 500 });
    expect(translated('{"status":"Maybe"}')).toMatchObject({ reason: 'InternalError' });
  });

  it('stays below the limit of a status', () => {
    const message = '\u0001'.repeat(10_000);
    const status = translateStatus(utf8(`{"status":"Failure","message":"${message}"}`));
    expect(status.length).toBeLessThan(MAX_STATUS_BYTES);
  });
});
