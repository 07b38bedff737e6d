import { describe, expect, it } from 'vitest';
import { createSizeReader } from '../../src/wire/remotecommand/resize.ts';
import { utf8 } from '../support/stream-peers.ts';

function read(...chunks: readonly string[]): readonly string[] {
  const sizes: string[] = [];
  const push = createSizeReader(({ columns, rows }) => void sizes.push(`${columns}x${rows}`));
  for (const chunk of chunks) push(utf8(chunk));
  return sizes;
}

describe('a parser of terminal sizes', () => {
  it('returns every size up to the first invalid one, however the stream is split', () => {
    const text = '{"Width":80,"Height":24}{"Width":81}x{"Width":82}';
    const expected = ['80x24', '81x0'];
    expect(read(text)).toEqual(expected);
    expect(read(...text.split(''))).toEqual(expected);
    expect(read(text.slice(0, 30), text.slice(30))).toEqual(expected);
  });
});
