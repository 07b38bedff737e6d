import { Writable } from 'node:stream';
import { expect, it } from 'vitest';
import { joinSmallWrites } from '../../src/memory/join-writes.ts';

/** A missing argument as Node.js's HTTP streams pass it: `null`, which the types do not allow. */
const nothing = null as unknown as undefined;

/** Creates a stream whose writes complete on request. */
function slowStream() {
  const chunks: Buffer[] = [];
  let release: (() => void) | undefined;
  const stream = new Writable({
    highWaterMark: 64 * 1024,
    write(chunk: Buffer, _encoding, done) {
      chunks.push(chunk);
      release = done;
    },
  });
  joinSmallWrites(stream);
  const next = (): void => {
    const done = release;
    release = undefined;
    done?.();
  };
  return { stream, chunks, next };
}

it('joins small writes to a stream with unsent bytes, and keeps their order and their callbacks', async () => {
  const { stream, chunks, next } = slowStream();
  const written: number[] = [];
  let isFull = false;
  stream.write(Buffer.alloc(1024, 'a'));
  for (let index = 0; index < 60_000 && !isFull; index += 1) {
    isFull = !stream.write(Buffer.from(String(index % 10)), () => written.push(index));
  }
  stream.write('text', 'latin1');
  stream.write(Buffer.alloc(2000, 'z'));
  stream.write(Buffer.from('last'));
  stream.end('!');
  const finished = new Promise((resolve) => stream.once('finish', resolve));
  const pump = setInterval(next, 0);
  await finished;
  clearInterval(pump);
  const digits = '0123456789'.repeat(6_000);
  expect(Buffer.concat(chunks).toString()).toBe(`${'a'.repeat(1024)}${digits}text${'z'.repeat(2000)}last!`);
  expect(chunks.length).toBeLessThan(25);
  expect(written).toEqual(Array.from({ length: 60_000 }, (_, index) => index));
});

it('sends a joined piece when an earlier write is complete', () => {
  const { stream, chunks, next } = slowStream();
  stream.write(Buffer.alloc(2048));
  stream.write(Buffer.from('x'));
  expect(chunks).toHaveLength(1);
  next();
  expect(chunks.at(-1)?.toString()).toBe('x');
});

it('changes nothing for a stream without unsent bytes', () => {
  const { stream, chunks, next } = slowStream();
  for (const text of ['a', 'b', 'c']) {
    stream.write(Buffer.from(text));
    next();
  }
  expect(chunks.map(String)).toEqual(['a', 'b', 'c']);
});

it('accepts writes without a callback, as HTTP streams of Node make them', async () => {
  const { stream, chunks, next } = slowStream();
  for (const size of [2048, 1, 2048]) stream.write(Buffer.alloc(size), 'latin1', nothing);
  stream.end();
  const finished = new Promise((resolve, reject) => stream.once('finish', resolve).once('error', reject));
  const pump = setInterval(next, 0);
  await finished;
  clearInterval(pump);
  expect(Buffer.concat(chunks)).toHaveLength(4097);
});
