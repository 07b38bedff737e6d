import { describe, expect, it } from 'vitest';
import type { Catalog, CatalogPage } from '../../../src/tsrecorder/library/catalog.ts';
import { createListShares } from '../../../src/tsrecorder/serving/list-shares.ts';
import { HEADER, createRig, uploadWhole } from '../recorder-rig.ts';

const { signal } = new AbortController();
const QUERY = { limit: 50, user: '' };

/** Creates limited lists of a fake catalogue. @param answer resolves with the page of a list */
function createLists(answer: (owner: string | undefined) => Promise<CatalogPage>) {
  const clock = { nowMs: 0 };
  const owners: (string | undefined)[] = [];
  const catalog: Pick<Catalog, 'list'> = {
    list: (_query, _scope, owner) => {
      owners.push(owner);
      return answer(owner);
    },
  };
  const list = createListShares(catalog, () => clock.nowMs);
  return { list: (owner: string) => list(QUERY, 'everything', owner, signal), owners, clock };
}

describe('the lists of a viewer', () => {
  it('run two at a time, lists of other viewers run meanwhile, and too many lists fail', async () => {
    const page = Promise.withResolvers<CatalogPage>();
    const { list, owners } = createLists(() => page.promise);
    const ofMallory = Array.from({ length: 258 }, () => list('mallory'));
    await expect(list('mallory')).rejects.toThrow(
      'try again in a moment: you have too many lists in progress',
    );
    const ofCarol = list('carol');
    await expect.poll(() => owners).toEqual(['mallory', 'mallory', 'carol']);
    page.resolve({ recordings: [], unmatched: 0 });
    await Promise.all([...ofMallory, ofCarol]);
    expect(owners).toHaveLength(259);
  });

  it('fail for a time if they read too many recordings without a match, unlike lists of other viewers', async () => {
    const { list, owners, clock } = createLists(async () => ({ recordings: [], unmatched: 105_000 }));
    await list('mallory');
    await expect(list('mallory')).rejects.toMatchObject({
      code: 'SEARCH_BUSY',
      message: expect.stringContaining('your filters excluded too many recordings') as unknown,
    });
    await list('carol');
    clock.nowMs = 5000;
    await list('mallory');
    expect(owners).toEqual(['mallory', 'carol', 'mallory']);
  });
});

it('a list reports how many recordings it read without a match', async () => {
  await using rig = await createRig();
  for (const command of ['one', 'two', 'three'])
    await uploadWhole(rig.recorder, HEADER.replace('sh -i', command));
  const { catalog } = rig.recorder;
  expect((await catalog.list({ limit: 50, user: '' })).unmatched).toBe(3);
  expect(await catalog.list({ limit: 1 })).toMatchObject({
    recordings: [{ command: 'three' }],
    unmatched: 0,
  });
});
