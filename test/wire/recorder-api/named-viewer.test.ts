import { describe, expect, it } from 'vitest';
import {
  decodeNamedViewer,
  encodeNamedViewer,
  type NamedViewer,
} from '../../../src/wire/recorder-api/named-viewer.ts';

const ALICE: NamedViewer = {
  node: 'laptop.tail1.ts.net',
  nodeId: 'nA1CNTRL',
  address: '100.64.0.4',
  user: 'alice@example.com',
  tags: [],
};
const CI: NamedViewer = { ...ALICE, user: undefined, tags: ['tag:ci', 'tag:dev'] };

function headersOf(viewer: NamedViewer): string[] {
  const headers = encodeNamedViewer(viewer);
  if (headers === undefined) throw new Error('a viewer that cannot be named');
  return [...headers];
}

describe('a named viewer', () => {
  it('is a person or a tagged node, and reads back as it was written', () => {
    expect(decodeNamedViewer(headersOf(ALICE))).toEqual(ALICE);
    expect(decodeNamedViewer(headersOf(CI))).toEqual(CI);
  });

  it('is not named where its values could be read in two ways', () => {
    for (const odd of [
      { ...ALICE, user: '' },
      { ...ALICE, user: 'alice bob' },
      { ...ALICE, user: 'alice\r\nx: y' },
      { ...ALICE, tags: ['tag:ci'] },
      { ...ALICE, node: '' },
      { ...ALICE, nodeId: '' },
      { ...ALICE, address: 'é' },
      { ...CI, tags: [] },
      { ...CI, tags: ['tag:a,tag:admin'] },
      { ...CI, tags: ['admin'] },
      { ...CI, tags: Array.from({ length: 101 }, (_, index) => `tag:${index}`) },
    ]) {
      expect(encodeNamedViewer(odd)).toBeUndefined();
    }
  });

  it('is nobody without our fields, whatever other proxies say', () => {
    expect(decodeNamedViewer([])).toBeUndefined();
    expect(decodeNamedViewer(['Tailscale-User-Login', 'eve@example.com', 'Host', 'x'])).toBeUndefined();
  });

  it('is malformed with a field missing, repeated, unknown or odd', () => {
    const whole = headersOf(ALICE);
    for (let index = 0; index < whole.length; index += 2) {
      const missing = whole.toSpliced(index, 2);
      expect(decodeNamedViewer(missing)).toBe('malformed');
      const again = [...whole, (whole[index] ?? '').toUpperCase(), whole[index + 1] ?? ''];
      expect(decodeNamedViewer(again)).toBe('malformed');
      expect(decodeNamedViewer(whole.with(index + 1, ''))).toBe('malformed');
    }
    expect(decodeNamedViewer([...whole, 'X-Tailcast-Viewer-Admin', '1'])).toBe('malformed');
    expect(decodeNamedViewer([...whole, 'X-Tailcast-Viewer-Tags', 'tag:admin'])).toBe('malformed');
    expect(decodeNamedViewer([...headersOf(CI), 'Tailscale-User-Login', 'eve'])).toBe('malformed');
  });
});
