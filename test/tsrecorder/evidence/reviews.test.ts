/** Reviews of recordings, and an attacker who has write access to the store but no signing key. */
import { mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { beforeEach, describe, expect, it, onTestFinished, vi } from 'vitest';
import { forgetReview, openReviews, type Reviews } from '../../../src/tsrecorder/evidence/reviews.ts';
import { openSavedSearches } from '../../../src/tsrecorder/evidence/saved-searches.ts';
import { generateSigningKey, keysById } from '../../../src/tsrecorder/evidence/signing-key.ts';
import { encodeStatement, type StatementPurpose } from '../../../src/tsrecorder/evidence/statement.ts';
import { createDiskStore } from '../../../src/tsrecorder/store/disk.ts';
import { eventually } from '../../support/until.ts';
import type { Recording } from '../../../src/wire/recorder-api/recording.ts';
import type { RecordingStore } from '../../../src/tsrecorder/store/store.ts';

const ID = 'nGATE1CNTRL_2026-01-02T03:04:05.000000000Z';
const OTHER_ID = 'nGATE1CNTRL_2026-01-03T03:04:05.000000000Z';
const AT = '2026-02-01T00:00:00.000Z';
const KEY = generateSigningKey();
const OTHER_KEY = generateSigningKey();
const STRANGER = generateSigningKey();
const TRUSTED = keysById([KEY.public, OTHER_KEY.public]);

let directory = '';
let store: RecordingStore;
let nowMs = 0;
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'tailcast-reviews-'));
  store = await createDiskStore(directory);
  nowMs = Date.parse(AT);
});

function opened(key = KEY): Reviews {
  return openReviews({ store, key, trusted: TRUSTED, nowMs: () => nowMs });
}

function recordingOf(id: string, user: string): Pick<Recording, 'id' | 'source'> {
  return { id, source: { node: 'desk.tail1.ts.net', nodeId: 'nDESK', user } };
}

async function put(name: string, text: string): Promise<void> {
  await store.putDocument(`.reviews/${name}`, Buffer.from(text));
}

/** Stores a signed change of the review of the recording `ID`. */
async function putSigned(document: string, change: object, key = KEY): Promise<void> {
  const value = { recording: ID, document, at: AT, by: 'c', ...change };
  await put(`${ID}/${document}`, encodeStatement('review', value, key));
}

/** Waits until the reviews contain the given number of tags. A busy machine needs longer than one call waits. */
async function readTags(reviews: Reviews, count: number): Promise<void> {
  await eventually('the tags', async () =>
    (await reviews.all()).get(ID)?.tags.length === count ? true : undefined,
  );
}

describe('a review', () => {
  it('is the sum of its changes, and so it is for a recorder that opens the store later', async () => {
    const reviews = opened();
    const by = 'carol@example.com';
    await reviews.change(ID, by, { kind: 'comment', text: 'reads a Secret', seconds: 12.5 });
    await reviews.change(ID, by, { kind: 'tag', text: 'incident' });
    await reviews.change(ID, by, { kind: 'tag', text: 'old' });
    await reviews.change(ID, by, { kind: 'untag', text: 'old' });
    const changed = await reviews.change(ID, by, { kind: 'reviewed' });
    expect(changed).toEqual({
      comments: [{ at: AT, by, text: 'reads a Secret', seconds: 12.5 }],
      tags: ['incident'],
      reviewed: { at: '2026-02-01T00:00:00.004Z', by },
    });
    expect(await opened(OTHER_KEY).all()).toEqual(new Map([[ID, changed]]));
    expect(await reviews.change(ID, by, { kind: 'unreviewed' })).not.toHaveProperty('reviewed');
  });

  it('contains the changes of another recorder after the refresh time', async () => {
    const mine = opened();
    await mine.change(ID, 'carol@example.com', { kind: 'tag', text: 'mine' });
    await opened(OTHER_KEY).change(ID, 'dave@example.com', { kind: 'tag', text: 'theirs' });
    expect((await mine.all()).get(ID)?.tags).toEqual(['mine']);
    nowMs += 30_000;
    expect((await mine.all()).get(ID)?.tags).toEqual(['mine', 'theirs']);
  });

  it('has a limited number of changes', async () => {
    const reviews = opened();
    for (let count = 0; count < 500; count += 1)
      await putSigned(`${AT}-${count}`, { kind: 'tag', text: `t${count}` });
    await readTags(reviews, 500);
    await expect(reviews.change(ID, 'c', { kind: 'reviewed' })).rejects.toThrow('at most 500');
    expect((await reviews.change(OTHER_ID, 'c', { kind: 'reviewed' })).reviewed?.by).toBe('c');
  });

  it('has space for other authors if one author writes many changes', async () => {
    for (let count = 0; count < 250; count += 1)
      await putSigned(`${AT}-${count}`, { kind: 'tag', text: `t${count}` });
    const reviews = opened();
    await readTags(reviews, 250);
    await expect(reviews.change(ID, 'c', { kind: 'reviewed' })).rejects.toThrow('250 are yours');
    expect((await reviews.change(ID, 'd', { kind: 'reviewed' })).reviewed?.by).toBe('d');
  });

  it('is removed with its recording, and other reviews stay', async () => {
    await opened().change(ID, 'c', { kind: 'tag', text: 'gone' });
    await opened().change(OTHER_ID, 'c', { kind: 'tag', text: 'kept' });
    await forgetReview(store, ID);
    expect([...(await opened().all()).keys()]).toEqual([OTHER_ID]);
  });
});

describe('a document without a valid signature', () => {
  const value = { recording: ID, document: `${AT}-1`, at: AT, by: 'carol@example.com', kind: 'reviewed' };
  const signed = encodeStatement('review', value, KEY);
  it.each<[string, string, string]>([
    ['of an unknown key', `${ID}/${AT}-1`, encodeStatement('review', value, STRANGER)],
    ['without a signature', `${ID}/${AT}-1`, `${JSON.stringify({ ...value, recorder: KEY.public.id })}\n`],
    ['for another purpose', `${ID}/${AT}-1`, encodeStatement('hold' satisfies StatementPurpose, value, KEY)],
    ['with a changed author', `${ID}/${AT}-1`, signed.replace('carol', 'admin')],
    ['copied from another recording', `${OTHER_ID}/${AT}-1`, signed],
    ['copied to another name', `${ID}/rule-shadow-tag-0123456789abcdef`, signed],
    ['that is too large', `${ID}/${AT}-1`, `${signed}${' '.repeat(1024 ** 2)}`],
    [
      'with an invalid tag',
      `${ID}/x`,
      encodeStatement('review', { ...value, document: 'x', kind: 'tag', text: 'tag:ci' }, KEY),
    ],
  ])('%s has no effect', async (_name, name, text) => {
    await put(name, text);
    await putSigned(`${AT}-valid`, { kind: 'tag', text: 'valid' }, OTHER_KEY);
    expect(await opened().all()).toEqual(new Map([[ID, { tags: ['valid'], comments: [] }]]));
  });

  it('is compared with a valid document', async () => {
    await put(`${ID}/${AT}-1`, signed);
    expect((await opened().all()).get(ID)?.reviewed).toEqual({ at: AT, by: 'carol@example.com' });
  });
});

describe('the mark of a rule', () => {
  it('replaces a forged document with its name', async () => {
    await opened().mark(recordingOf(ID, 'alice'), 'shadow', 5);
    for (const name of await store.listDocuments('.reviews/'))
      await store.replaceDocument(name, Buffer.from('{}'));
    const other = opened(OTHER_KEY);
    expect((await other.all()).size).toBe(0);
    await opened().mark(recordingOf(ID, 'alice'), 'shadow', 5);
    nowMs += 30_000;
    expect((await other.all()).get(ID)?.comments).toHaveLength(1);
  });

  it('is written into a recording with the maximum number of changes', async () => {
    for (let count = 0; count < 500; count += 1)
      await putSigned(`${AT}-${count}`, { kind: 'comment', text: 'x' });
    const reviews = opened();
    await reviews.mark(recordingOf(ID, 'alice'), 'shadow', 5);
    expect((await reviews.all()).get(ID)?.tags).toEqual(['shadow']);
  });

  it('is written although another user has used up a share of all marks', { timeout: 60_000 }, async () => {
    await opened().mark(recordingOf(ID, 'mallory'), 'shadow', 5);
    const names = await store.listDocuments('.reviews/');
    const marks = new Map<string, Uint8Array>();
    for (let count = 0; count < 5000; count += 1) {
      const recording = `nGATE1CNTRL_${count}`;
      const by = { recording, at: AT, by: 'rule shadow' };
      for (const name of names) {
        const statement = { ...by, document: name.split('/').at(-1), kind: 'tag', text: 'shadow' };
        marks.set(name.replace(ID, recording), Buffer.from(encodeStatement('review', statement, KEY)));
      }
    }
    const reviews = openReviews({
      store: {
        ...store,
        listDocuments: async (prefix) => [...marks.keys(), ...(await store.listDocuments(prefix))],
        readDocument: async (name, maxBytes) => marks.get(name) ?? store.readDocument(name, maxBytes),
      },
      key: KEY,
      trusted: TRUSTED,
      nowMs: () => nowMs,
    });
    await expect
      .poll(
        async () => {
          nowMs += 30_000;
          return (await reviews.all()).size;
        },
        { timeout: 50_000 },
      )
      .toBe(5001);
    await expect(reviews.mark(recordingOf(OTHER_ID, 'mallory'), 'shadow', 5)).rejects.toThrow('no space');
    await reviews.mark(recordingOf(OTHER_ID, 'alice'), 'shadow', 5);
    expect((await reviews.all()).get(OTHER_ID)?.tags).toEqual(['shadow']);
    expect((await reviews.change(OTHER_ID, 'carol', { kind: 'reviewed' })).reviewed?.by).toBe('carol');
  });
});

describe('the limits of changes', () => {
  it('are checked after all documents were read once, and changes fail if this takes too long', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    onTestFinished(() => void vi.useRealTimers());
    for (let count = 0; count < 500; count += 1)
      await putSigned(`${AT}-${count}`, { kind: 'tag', text: `t${count}` });
    const listed = Promise.withResolvers<void>();
    const slow = {
      ...store,
      listDocuments: async (prefix: string) => {
        await listed.promise;
        return store.listDocuments(prefix);
      },
    };
    const signer = { store: slow, key: KEY, trusted: TRUSTED, nowMs: () => nowMs };
    const reviews = openReviews(signer);
    const searches = openSavedSearches(signer);
    const save = { kind: 'save', name: 'n', query: 'q', isShared: false } as const;
    const changes = [
      reviews.change(ID, 'c', { kind: 'reviewed' }),
      searches.change('carol', 'carol', save),
    ].map((change) => expect(change).rejects.toMatchObject({ code: 'RECORDER_BUSY' }));
    await vi.advanceTimersByTimeAsync(10_000);
    await Promise.all(changes);
    listed.resolve();
    await expect(reviews.change(ID, 'c', { kind: 'reviewed' })).rejects.toThrow('at most 500');
    await searches.change('carol', 'carol', save);
  });
});
