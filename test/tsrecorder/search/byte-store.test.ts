import { expect, it } from 'vitest';
import { ByteStore, type Stored } from '../../../src/tsrecorder/search/sqlite/byte-store.ts';

const textOf = (store: ByteStore, stored: Stored): string => Buffer.from(store.get(stored)).toString();

it('texts and bytes are returned unchanged, also after the store has grown', () => {
  const store = new ByteStore();
  const texts = ['', 'plain', 'käferß 日本語 👍', 'x'.repeat(3_000_000), '\ud800 alone', 'end'];
  const stored = texts.map((text) => store.addText(text));
  const bytes = store.add(Uint8Array.of(0, 255, 10));
  expect(stored.map((one) => textOf(store, one))).toEqual(texts.map((text) => text.toWellFormed()));
  expect([...store.get(bytes)]).toEqual([0, 255, 10]);
  expect(store.size).toBe(bytes.end);
});

it('a cut leaves the rest unchanged, and its space is reused', () => {
  const store = new ByteStore();
  const kept = store.addText('kept');
  const gone = store.addText('gone');
  store.cut(kept.end);
  const next = store.addText('next');
  expect([textOf(store, kept), textOf(store, next)]).toEqual(['kept', 'next']);
  expect(next.start).toBe(gone.start);
});

it('a large store that was emptied releases its memory', () => {
  const store = new ByteStore();
  store.addText('x'.repeat(40_000_000));
  const large = store.get({ start: 0, end: 1 }).buffer.byteLength;
  store.cut(0);
  const small = store.addText('small');
  expect(store.get(small).buffer.byteLength).toBeLessThan(large / 10);
  expect(textOf(store, small)).toBe('small');
});
