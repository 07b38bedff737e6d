/**
 * Saved searches of viewers. Each search is a signed document `.searches/<hash of owner and name>`. Documents without a
 * trusted signature are ignored. Documents whose name does not match their content are ignored too.
 */
import { hash } from 'node:crypto';
import { z } from 'zod';
import { TailcastError } from '../../errors.ts';
import { MAX_QUERY } from '../../search/query.ts';
import {
  MAX_SEARCH_NAME,
  type SavedSearches,
  type SearchChange,
} from '../../wire/recorder-api/saved-search.ts';
import { createSignedDocuments, type DocumentSigner } from './signed-documents.ts';

const FOLDER = '.searches/';
/** Maximum number of saved searches: for one owner (`MAX_OWNED`), and for all owners (`MAX_DOCUMENTS`). */
const MAX_OWNED = 50;
const MAX_DOCUMENTS = 20_000;

const name = z.string().trim().min(1).max(MAX_SEARCH_NAME);
const query = z.string().trim().min(1).max(MAX_QUERY);

const STATEMENT = z.strictObject({
  /** Owner of a personal search; undefined for a shared search. */
  owner: z.string().max(500).exactOptional(),
  by: z.string().max(500),
  name,
  query,
});

/** Schema of the change in a request body. */
export const SEARCH_CHANGE: z.ZodType<SearchChange> = z.discriminatedUnion('kind', [
  z.strictObject({ kind: z.literal('save'), name, query, isShared: z.boolean() }),
  z.strictObject({ kind: z.literal('remove'), name, isShared: z.boolean() }),
]);

export type SearchStore = ReturnType<typeof openSavedSearches>;

/** Opens the saved searches of a store. */
export function openSavedSearches(signer: DocumentSigner) {
  const documents = createSignedDocuments({
    ...signer,
    folder: FOLDER,
    purpose: 'search',
    schema: STATEMENT,
    nameOf: (search) => documentOf(search.owner, search.name),
    isReplaced: true,
  });

  return {
    /**
     * Returns the searches of an owner and the shared searches, sorted by name. @throws TailcastError `STORE_FAILED`
     */
    async of(owner: string): Promise<Pick<SavedSearches, 'personal' | 'shared'>> {
      const known = await documents.all();
      const statements = [...known.values()].toSorted((left, right) => left.name.localeCompare(right.name));
      return {
        personal: statements
          .filter((statement) => statement.owner === owner)
          .map(({ name, query }) => ({ name, query })),
        shared: statements
          .filter((statement) => statement.owner === undefined)
          .map(({ name, query, by }) => ({ name, query, by })),
      };
    },
    /**
     * Saves or removes a search.
     *
     * @throws TailcastError `USAGE` if there are too many searches, `STORE_FAILED`, `RECORDER_BUSY` while the searches
     *   are read for the first time
     */
    async change(viewer: string, by: string, change: SearchChange): Promise<void> {
      const owner = change.isShared ? undefined : viewer;
      if (change.kind === 'remove') return documents.remove(documentOf(owner, change.name));
      const statements = [...(await documents.complete()).values()];
      const owned = statements.filter((statement) => statement.owner === owner);
      const isNew = !owned.some((statement) => statement.name === change.name);
      if (isNew && (owned.length >= MAX_OWNED || statements.length >= MAX_DOCUMENTS))
        throw new TailcastError('USAGE', `at most ${MAX_OWNED} searches can be saved; remove one first`);
      const statement = STATEMENT.parse({
        ...(owner === undefined ? {} : { owner }),
        by: by.slice(0, 500),
        name: change.name,
        query: change.query,
      });
      await documents.write(statement, true);
    },
  };
}

function documentOf(owner: string | undefined, name: string): string {
  return FOLDER + hash('sha256', JSON.stringify([owner ?? null, name]));
}
