import { describe, expect, it } from 'vitest';
import { decodeRecording, type Recording } from '../../../src/wire/recorder-api/recording.ts';

const WHOLE: Recording = {
  id: 'n1_2026-01-02T03:04:05.000000000Z',
  key: 'n1/2026-01-02T03:04:05.000000000Z.cast',
  state: 'completed',
  startedAt: '2026-01-02T03:04:05.000Z',
  durationSeconds: 1.5,
  bytes: 10,
  width: 80,
  height: 24,
  command: 'sh',
  kind: 'exec',
  source: { node: 'laptop', nodeId: 'n1', user: 'alice@example.com' },
  destination: { node: 'cluster', nodeId: 'n2' },
  kubernetes: { namespace: 'web', pod: 'nginx', container: 'app' },
  result: '0',
};

describe('a recording of the read API', () => {
  it('is what it was before it was JSON', () => {
    expect(decodeRecording(JSON.parse(JSON.stringify(WHOLE)))).toEqual(WHOLE);
    const { durationSeconds, command, kubernetes, result, ...least } = WHOLE;
    expect(decodeRecording(least)).toEqual(least);
    expect([durationSeconds, command, kubernetes, result]).not.toContain(undefined);
  });

  it('may be of a recorder that is newer', () => {
    const newer = { ...WHOLE, state: 'sealed', kind: 'ssh-2', more: [1] };
    expect(decodeRecording(newer)).toEqual(newer);
  });

  it.each([undefined, null, 1, 'x', [], {}])('is not %j', (value) => {
    expect(decodeRecording(value)).toBeUndefined();
  });

  it.each(['id', 'key', 'state', 'startedAt', 'kind', 'bytes', 'width', 'height', 'source', 'destination'])(
    'has its %s',
    (name) => {
      const { [name as 'id']: _, ...rest } = WHOLE;
      expect(decodeRecording(rest)).toBeUndefined();
      expect(decodeRecording({ ...WHOLE, [name]: true })).toBeUndefined();
    },
  );

  it.each([
    { durationSeconds: '1' },
    { result: 0 },
    { result: 'fine' },
    { trust: 'great' },
    { problem: 1 },
    { source: { ...WHOLE.source, tags: 'tag:ci' } },
    { source: { ...WHOLE.source, tags: [1] } },
    { destination: { node: 'n' } },
    { kubernetes: { namespace: 'web' } },
  ])('has no field of another type: %j', (odd) => {
    expect(decodeRecording({ ...WHOLE, ...odd })).toBeUndefined();
  });
});
