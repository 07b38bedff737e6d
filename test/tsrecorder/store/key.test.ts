import { posix } from 'node:path';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  decodeNodeId,
  encodeNodeId,
  eventKey,
  formatTime,
  parseRecordingId,
  parseRecordingKey,
  parseTime,
  recordingId,
  recordingKey,
} from '../../../src/tsrecorder/store/key.ts';

const nasty = fc.string({
  unit: fc.constantFrom(
    '.',
    '/',
    '\\',
    '%',
    '_',
    ':',
    'a',
    'Z',
    '0',
    '\0',
    '\n',
    ' ',
    '\u00e9',
    '\u{1f600}',
    '-',
  ),
  minLength: 1,
  maxLength: 25,
});
const nodeId = fc.oneof(nasty, fc.stringMatching(/^n[A-Za-z0-9]{1,20}CNTRL$/));
const time = fc
  .bigInt({ min: 0n, max: 253_402_300_799_999_999_999n })
  .map((nanoseconds) => ({ nanoseconds, text: formatTime(nanoseconds) }));

describe('keys of the store', () => {
  it('equal those of the reference for its own node ids', () => {
    const key = { nodeId: 'nABC123CNTRL', time: '2026-07-29T11:50:50.033425744Z' };
    expect(recordingKey(key)).toBe('nABC123CNTRL/2026-07-29T11:50:50.033425744Z.cast');
    expect(eventKey(key)).toBe('nABC123CNTRL/events/2026-07-29T11:50:50.033425744Z.event');
    expect(recordingId(key)).toBe('nABC123CNTRL_2026-07-29T11:50:50.033425744Z');
    expect(encodeNodeId('5')).toBe('5');
  });

  it('are parsed to the same node and time', () => {
    fc.assert(
      fc.property(nodeId, time, (node, { text }) => {
        const key = { nodeId: node, time: text };
        expect(parseRecordingKey(recordingKey(key))).toEqual(key);
        expect(parseRecordingId(recordingId(key))).toEqual(key);
        expect(decodeNodeId(encodeNodeId(node))).toBe(node);
      }),
      { numRuns: 1000 },
    );
  });

  it('stay in the folder of their node for every id', () => {
    fc.assert(
      fc.property(nodeId, time, (node, { text }) => {
        for (const key of [
          recordingKey({ nodeId: node, time: text }),
          eventKey({ nodeId: node, time: text }),
        ]) {
          expect(posix.normalize(key)).toBe(key);
          expect(key).toMatch(/^[A-Za-z0-9_%-]+\/(events\/)?[0-9TZ:.-]+\.(cast|event)$/);
        }
      }),
    );
  });

  it('differ when node or time differ', () => {
    fc.assert(
      fc.property(nodeId, nodeId, time, time, (node1, node2, time1, time2) => {
        const same = node1 === node2 && time1.text === time2.text;
        const first = { nodeId: node1, time: time1.text };
        const second = { nodeId: node2, time: time2.text };
        expect(recordingKey(first) === recordingKey(second)).toBe(same);
        expect(recordingId(first) === recordingId(second)).toBe(same);
      }),
    );
  });

  it('sort by time', () => {
    fc.assert(
      fc.property(time, time, (first, second) => {
        expect(first.text < second.text).toBe(first.nanoseconds < second.nanoseconds);
        expect(parseTime(first.text)).toBe(first.nanoseconds);
      }),
    );
  });

  it('are parsed and written before 1970 as after it', () => {
    expect(formatTime(-1n)).toBe('1969-12-31T23:59:59.999999999Z');
    expect(formatTime(-1_000_000_000n)).toBe('1969-12-31T23:59:59.000000000Z');
    for (const text of ['1969-12-31T23:59:59.900000000Z', '0026-01-02T03:04:05.000000001Z'])
      expect(formatTime(parseTime(text) ?? 0n)).toBe(text);
  });

  it('are parsed with trimmed fractions, as the reference writes them', () => {
    expect(parseTime('2026-07-29T11:50:50.0334257Z')).toBe(parseTime('2026-07-29T11:50:50.033425700Z'));
    expect(parseRecordingKey('n1/2026-07-29T11:50:50Z.cast')).toEqual({
      nodeId: 'n1',
      time: '2026-07-29T11:50:50Z',
    });
  });

  it.each([
    '../2026-07-29T11:50:50Z.cast',
    'n1/2026-02-30T11:50:50Z.cast',
    'n1/2026-02-28T24:00:00Z.cast',
    'n1/2026-02-28T23:59:60Z.cast',
    'n1/2026-07-29T11:50:50.0334257441Z.cast',
    'n1/2026-07-29T11:50:50+02:00.cast',
    'n1/x/2026-07-29T11:50:50Z.cast',
    'n%2f1/2026-07-29T11:50:50Z.cast',
    'n%41/2026-07-29T11:50:50Z.cast',
    '/2026-07-29T11:50:50Z.cast',
    'n1/2026-07-29T11:50:50Z.json',
    'check-write-access',
  ])('are not %s', (name) => {
    expect(parseRecordingKey(name)).toBeUndefined();
  });

  it('reject a node id that is empty, too long or half a character', () => {
    for (const bad of ['', 'x'.repeat(129), '\ud800']) {
      expect(() => encodeNodeId(bad)).toThrow(expect.objectContaining({ code: 'UPLOAD_REFUSED' }));
    }
    expect(encodeNodeId('x'.repeat(128))).toHaveLength(128);
  });
});
