/** Saved searches, and an attacker who has write access to the store but no signing key. */
import { mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { beforeEach, expect, it } from 'vitest';
import { openSavedSearches, type SearchStore } from '../../../src/tsrecorder/evidence/saved-searches.ts';
import { generateSigningKey, keysById } from '../../../src/tsrecorder/evidence/signing-key.ts';
import { encodeStatement } from '../../../src/tsrecorder/evidence/statement.ts';
import { createDiskStore } from '../../../src/tsrecorder/store/disk.ts';
import type { RecordingStore } from '../../../src/tsrecorder/store/store.ts';

const KEY = generateSigningKey();
const OTHER_KEY = generateSigningKey();
const TRUSTED = keysById([KEY.public, OTHER_KEY.public]);
const CAROL = 'carol@example.com';

let directory = '';
let store: RecordingStore;
let nowMs = 0;
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'tailcast-searches-'));
  store = await createDiskStore(directory);
  nowMs = 0;
});

function opened(key = KEY): SearchStore {
  return openSavedSearches({ store, key, trusted: TRUSTED, nowMs: () => nowMs });
}

it('the searches of another recorder appear after the refresh time', async () => {
  const mine = opened();
  expect(await mine.of(CAROL)).toEqual({ personal: [], shared: [] });
  await opened(OTHER_KEY).change(CAROL, CAROL, { kind: 'save', name: 'a', query: 'b', isShared: false });
  expect((await mine.of(CAROL)).personal).toEqual([]);
  nowMs += 30_000;
  expect((await mine.of(CAROL)).personal).toEqual([{ name: 'a', query: 'b' }]);
});

it('documents without a valid signature and copied documents have no effect', async () => {
  await opened().change(CAROL, CAROL, { kind: 'save', name: 'a', query: 'b', isShared: false });
  const [document = ''] = await store.listDocuments('.searches/');
  const signed = (await store.readDocument(document))!;
  const forged = { by: 'dave@example.com', name: 'forged', query: 'x' };
  const texts = [
    encodeStatement('search', forged, generateSigningKey()),
    encodeStatement('review', forged, KEY),
    Buffer.from(signed).toString().replace(CAROL, 'dave@example.com'),
    Buffer.from(signed).toString(),
    '{',
  ];
  for (const [index, text] of texts.entries())
    await store.putDocument(`.searches/${index}`, Buffer.from(text));
  const found = opened();
  expect(await found.of(CAROL)).toEqual({ personal: [{ name: 'a', query: 'b' }], shared: [] });
  expect(await found.of('dave@example.com')).toEqual({ personal: [], shared: [] });
});

it('forged documents delay a search, but do not hide it', async () => {
  await opened().change(CAROL, CAROL, { kind: 'save', name: 'a', query: 'b', isShared: false });
  const forged = Array.from({ length: 12_000 }, (_, at) => `.searches/!${at}`);
  const found = openSavedSearches({
    store: {
      ...store,
      listDocuments: async (prefix) => [...forged, ...(await store.listDocuments(prefix))],
      readDocument: async (name, maxBytes) =>
        name.includes('!') ? Buffer.from('{}') : store.readDocument(name, maxBytes),
    },
    key: KEY,
    trusted: TRUSTED,
    nowMs: () => nowMs,
  });
  let calls = 1;
  for (; calls < 4 && (await found.of(CAROL)).personal.length === 0; calls += 1) nowMs += 30_000;
  expect(calls).toBeLessThanOrEqual(3);
});
