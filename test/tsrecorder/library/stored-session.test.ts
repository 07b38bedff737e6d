import { describe, expect, it } from 'vitest';
import type { Candidate } from '../../../src/tsrecorder/library/sessions.ts';
import { storedSession } from '../../../src/tsrecorder/library/index-rows.ts';
import type { MergedUploads } from '../../../src/tsrecorder/library/uploads.ts';
import { parseRecordingId } from '../../../src/tsrecorder/store/key.ts';
import type { Recording } from '../../../src/wire/recorder-api/recording.ts';

const ID = 'nA_2026-02-03T04:05:06Z';
const SCOPE = ['user:alice@example.com'];

/**
 * Creates a store with one recording in the given state; undefined for a recording that was removed after the listing.
 */
function uploadsWith(state: Recording['state'] | undefined): MergedUploads {
  const recording = { id: ID, state, source: { user: 'alice@example.com', tags: [] } };
  const candidate = {
    key: parseRecordingId(ID),
    id: ID,
    order: '1',
    mark: undefined,
    describe: async () => (state === undefined ? undefined : { entry: { recording } }),
    stored: undefined,
    others: [],
  } as unknown as Candidate;
  return { find: (id) => (id === ID ? candidate : undefined), ofMark: () => [], after: () => [candidate] };
}

describe('the session of an upload, for a restricted viewer', () => {
  it.each([
    ['completed', ID],
    ['damaged', undefined],
    [undefined, undefined],
  ] as const)('that is %s is %s', async (state, id) => {
    const uploads = uploadsWith(state);
    expect((await storedSession(uploads, ID, SCOPE))?.id).toBe(id);
    expect((await storedSession(uploads, ID, ['user:bob@example.com']))?.id).toBeUndefined();
    expect((await storedSession(uploads, ID, 'everything'))?.id).toBe(ID);
  });
});
