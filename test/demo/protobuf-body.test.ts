import { describe, expect, it } from 'vitest';
import { decodeProtobufObject } from '../../demo/protobuf-body.ts';

/** One length-delimited field; lengths above 127 bytes are not needed here. */
function field(number: number, value: string | Uint8Array): Buffer {
  const bytes = Buffer.from(value);
  return Buffer.concat([Uint8Array.of((number << 3) | 2, bytes.byteLength), bytes]);
}

function envelope(apiVersion: string, kind: string, raw: Uint8Array): Buffer {
  const typeMeta = Buffer.concat([field(1, apiVersion), field(2, kind)]);
  return Buffer.concat([Buffer.from('k8s\0'), field(1, typeMeta), field(2, raw), field(3, ''), field(4, '')]);
}

describe('an object in protobuf', () => {
  it('is read into the same JSON', () => {
    const entry = Buffer.concat([field(1, 'key'), field(2, 'value')]);
    const metadata = Buffer.concat([field(1, 'x'), field(2, ''), field(11, entry)]);
    const raw = Buffer.concat([field(1, metadata), field(2, entry), Uint8Array.of(0x20, 1)]);
    expect(decodeProtobufObject(envelope('v1', 'ConfigMap', raw))).toEqual({
      kind: 'ConfigMap',
      apiVersion: 'v1',
      metadata: { name: 'x', labels: { key: 'value' } },
      data: { key: 'value' },
      immutable: true,
    });
  });

  it('keeps lists, zero replicas and bytes', () => {
    const container = Buffer.concat([
      field(1, 'c'),
      field(3, 'sh'),
      field(3, '-c'),
      Uint8Array.of(0x80, 1, 1),
    ]);
    const template = field(2, field(2, container));
    const deployment = field(2, Buffer.concat([Uint8Array.of(0x08, 0), field(3, template)]));
    expect(decodeProtobufObject(envelope('apps/v1', 'Deployment', deployment))['spec']).toEqual({
      replicas: 0,
      template: { spec: { containers: [{ name: 'c', command: ['sh', '-c'], stdin: true }] } },
    });
    const secret = field(2, Buffer.concat([field(1, 'k'), field(2, Uint8Array.of(0, 255))]));
    expect(decodeProtobufObject(envelope('v1', 'Secret', secret))['data']).toEqual({ k: 'AP8=' });
  });

  it.each([
    ['no magic', Buffer.from('{"kind":"Pod"}'), 'no magic number'],
    ['an unknown kind', envelope('v1', 'Widget', Buffer.alloc(0)), 'the kind "Widget" is not known'],
    ['a short field', envelope('v1', 'Pod', Uint8Array.of(0x0a, 5, 1)), 'longer than what is left'],
    ['a cut number', envelope('v1', 'Pod', Uint8Array.of(0x08, 0x80)), 'ends inside a number'],
    ['an endless number', envelope('v1', 'Pod', Buffer.alloc(12, 0x80)), 'a number is too long'],
    ['a group', envelope('v1', 'Pod', Uint8Array.of(0x0b)), 'unknown wire type'],
  ])('is refused with %s', (_name, bytes, message) => {
    expect(() => decodeProtobufObject(bytes)).toThrow(message);
  });
});
