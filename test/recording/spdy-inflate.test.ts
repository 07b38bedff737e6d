import { constants, deflateRawSync } from 'node:zlib';
import { describe, expect, it } from 'vitest';
import { inflateSpdyBlock } from '../../src/recording/spdy-inflate.ts';

const text = Buffer.from('streamtype stdout stdout stdout');
const flushed = (bytes: Uint8Array, dictionary: Uint8Array): Uint8Array =>
  deflateRawSync(bytes, { level: 9, dictionary, finishFlush: constants.Z_SYNC_FLUSH });

describe('inflateSpdyBlock', () => {
  it('inflates a flushed block with the history it was deflated with', () => {
    const history = Buffer.from('streamtype stderr');
    expect(Buffer.from(inflateSpdyBlock(flushed(text, history), history, 64)).toString()).toBe(
      text.toString(),
    );
  });

  it('takes output of the limit and refuses one byte more', () => {
    const history = Buffer.from('-');
    expect(inflateSpdyBlock(flushed(text, history), history, text.length)).toHaveLength(text.length);
    expect(() => inflateSpdyBlock(flushed(text, history), history, text.length - 1)).toThrow(
      expect.objectContaining({ name: 'WireError', code: 'limit' }),
    );
  });

  it('refuses a bomb without inflating it', () => {
    const history = Buffer.from('-');
    const bomb = flushed(Buffer.alloc(50_000_000), history);
    const before = process.memoryUsage().arrayBuffers;
    expect(() => inflateSpdyBlock(bomb, history, 65_536)).toThrow(expect.objectContaining({ code: 'limit' }));
    expect(process.memoryUsage().arrayBuffers - before).toBeLessThan(5_000_000);
  });

  it('says malformed for anything that is not deflate', () => {
    expect(() => inflateSpdyBlock(Buffer.from('ffffff', 'hex'), Buffer.from('-'), 64)).toThrow(
      expect.objectContaining({ name: 'WireError', code: 'malformed' }),
    );
  });
});
