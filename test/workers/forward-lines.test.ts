import { PassThrough } from 'node:stream';
import { once } from 'node:events';
import { describe, expect, it } from 'vitest';
import { createLineForwarder } from '../../src/workers/forward-lines.ts';

async function ended(stream: PassThrough): Promise<void> {
  stream.end();
  if (!stream.closed) await once(stream, 'close');
}

describe('lines of several workers', () => {
  it('reach the output whole, in whatever pieces they come', async () => {
    const sink = new PassThrough();
    const forwarder = createLineForwarder(sink);
    const [one, two] = [new PassThrough(), new PassThrough()];
    forwarder.take(one);
    forwarder.take(two);
    const expected: string[] = [];
    for (let line = 0; line < 200; line++) {
      const text = `${line} ${'x'.repeat((line * 37) % 90)}`;
      expected.push(`one ${text}`, `two ${text}`);
      for (const piece of `one ${text}\n`.match(/.{1,13}\n?|\n/g) ?? []) {
        one.write(piece);
        two.write('');
      }
      two.write(`two ${text}\n`);
    }
    one.write('without an end');
    await ended(one);
    await ended(two);
    sink.end();
    const lines = Buffer.concat(await sink.toArray())
      .toString()
      .split('\n');
    expect(lines.pop()).toBe('');
    expect(lines.toSorted()).toEqual([...expected, 'without an end'].toSorted());
  });

  it('are not read while nobody takes them', async () => {
    const sink = new PassThrough({ highWaterMark: 1000 });
    const source = new PassThrough();
    createLineForwarder(sink).take(source);
    const line = Buffer.from(`${'y'.repeat(999)}\n`);
    let written = 0;
    while (source.write(line) && written < 1000) {
      written += 1;
      await new Promise((resolve) => setImmediate(resolve));
    }
    expect(written).toBeLessThan(500);
    sink.resume();
    await once(source, 'drain');
  });

  it('that never end are passed on in pieces', async () => {
    const sink = new PassThrough();
    const source = new PassThrough();
    createLineForwarder(sink).take(source);
    let bytes = 0;
    sink.on('data', (chunk: Buffer) => (bytes += chunk.length));
    for (let piece = 0; piece < 10; piece++) source.write(Buffer.alloc(64 * 1024, 'z'));
    expect(bytes).toBeGreaterThan(256 * 1024);
    await ended(source);
    expect(bytes).toBe(10 * 64 * 1024);
  });
});
