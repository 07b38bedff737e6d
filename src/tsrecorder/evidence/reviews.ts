/**
 * Reviews of recordings: comments, tags and "reviewed by". Each change is a signed document
 * `.reviews/<recording>/<time>-<random>`, so that concurrent writers do not overwrite each other. Documents without a
 * trusted signature are ignored. For each change, the recorder also stores an event, see `serving/api-reviews.ts`.
 */
import { hash, randomBytes } from 'node:crypto';
import { z } from 'zod';
import { TailcastError } from '../../errors.ts';
import type { Recording } from '../../wire/recorder-api/recording.ts';
import { NO_REVIEW, REVIEW_TAG, type Review, type ReviewChange } from '../../wire/recorder-api/review.ts';
import { recordedOwner } from '../library/recorded-owner.ts';
import type { DocumentStore } from '../store/document-store.ts';
import { createSignedDocuments, type DocumentSigner } from './signed-documents.ts';

const FOLDER = '.reviews/';
const MAX_TEXT = 2000;
const MAX_TAG = 50;
/** Maximum number of changes: for one recording (`MAX_CHANGES`), and for all recordings (`MAX_DOCUMENTS`). */
const MAX_CHANGES = 500;
const MAX_DOCUMENTS = 20_000;

const author = {
  recording: z.string(),
  /** Last part of the document name. The signature covers it, so that a copy under another name is invalid. */
  document: z.string().max(500),
  at: z.iso.datetime(),
  by: z.string().max(500),
};
const comment = z.strictObject({
  kind: z.literal('comment'),
  text: z.string().trim().min(1).max(MAX_TEXT),
  seconds: z.number().min(0).exactOptional(),
});
const tag = z.strictObject({
  kind: z.enum(['tag', 'untag']),
  text: z
    .string()
    .trim()
    .regex(REVIEW_TAG, 'a tag has 1 to 50 letters, digits, dots, dashes and underscores'),
});
const reviewed = z.strictObject({ kind: z.enum(['reviewed', 'unreviewed']) });

/** Schema of the change in a request body. */
export const REVIEW_CHANGE: z.ZodType<ReviewChange> = z.discriminatedUnion('kind', [comment, tag, reviewed]);
const STATEMENT = z.discriminatedUnion('kind', [
  comment.extend(author),
  tag.extend(author),
  reviewed.extend(author),
]);
type Statement = z.output<typeof STATEMENT>;

export type Reviews = ReturnType<typeof openReviews>;

/** Opens the reviews of a store. */
export function openReviews(signer: DocumentSigner) {
  const documents = createSignedDocuments({
    ...signer,
    folder: FOLDER,
    purpose: 'review',
    schema: STATEMENT,
    nameOf: ({ recording, document }) => `${FOLDER}${recording}/${document}`,
    isReplaced: false,
  });
  let shown: ReadonlyMap<string, Statement> = new Map();
  let reviews: ReadonlyMap<string, Review> = new Map();

  function reviewsIn(read: ReadonlyMap<string, Statement>): ReadonlyMap<string, Review> {
    if (read !== shown) reviews = reviewsOf(read.values());
    shown = read;
    return reviews;
  }

  return {
    /** Returns all reviews, with recording ids as map keys. @throws TailcastError `STORE_FAILED` */
    all: async (): Promise<ReadonlyMap<string, Review>> => reviewsIn(await documents.all()),
    /**
     * Adds a change. @returns the new review. @throws TailcastError `USAGE` if the recording has too many changes,
     * `RECORDER_BUSY` while the reviews are read for the first time
     */
    change: write,
    /** Adds a comment and a tag in the name of an alert rule. Repeated calls for the same rule have no effect. */
    async mark(
      recording: Pick<Recording, 'id' | 'source'>,
      rule: string,
      seconds: number | undefined,
    ): Promise<void> {
      const { id } = recording;
      const by = `rule ${rule}`;
      const at = seconds === undefined ? {} : { seconds };
      const owner = ownerDigest(recording);
      const comment = { kind: 'comment', text: `Rule ${rule} matched.`, ...at } as const;
      await write(id, by, comment, `rule-${rule}-comment-${owner}`);
      await write(id, by, { kind: 'tag', text: rule.slice(0, MAX_TAG) }, `rule-${rule}-tag-${owner}`);
    },
    /** Adds a comment that a rule is too slow for a recording. Repeated calls for the same rule have no effect. */
    async markSlow(recording: Pick<Recording, 'id' | 'source'>, rule: string): Promise<void> {
      const text = `Rule ${rule} was switched off for this session, because its pattern is too slow.`;
      const name = `rule-${rule}-slow-${ownerDigest(recording)}`;
      await write(recording.id, `rule ${rule}`, { kind: 'comment', text }, name);
    },
  };

  /** @param fixedName document name of a change that is stored at most once. Default: a random name */
  async function write(
    recording: string,
    by: string,
    change: ReviewChange,
    fixedName?: string,
  ): Promise<Review> {
    // Marks of rules do not wait, because the number of rules limits them.
    const known = await (fixedName === undefined ? documents.complete() : documents.all());
    if (fixedName !== undefined && known.has(`${FOLDER}${recording}/${fixedName}`))
      return reviewsIn(known).get(recording) ?? NO_REVIEW;
    const mine = [...known.values()].filter((statement) => statement.recording === recording);
    checkSpace(known, recording, by, fixedName);
    // Changes with a later time override earlier changes. The new change must therefore have the latest time, even if
    // the clock is behind.
    const lastMs = Math.max(0, ...mine.map((statement) => Date.parse(statement.at)));
    const at = new Date(Math.max(signer.nowMs(), lastMs + 1)).toISOString();
    const document = fixedName ?? `${at}-${randomBytes(4).toString('hex')}`;
    const statement = STATEMENT.parse({ ...change, recording, document, at, by: by.slice(0, 500) });
    // If the name is fixed, replace an existing document, because a forged document may already have this name.
    const written = await documents.write(statement, fixedName !== undefined);
    return reviewsIn(written).get(recording) ?? NO_REVIEW;
  }
}

/**
 * Checks the limits for changes. An author may use at most half of the space that other authors leave free, so that
 * other authors can still write. The limit of a recording does not apply to comments and tags of alert rules, because
 * the number of rules limits them already.
 *
 * @throws TailcastError `USAGE`
 */
function checkSpace(
  known: ReadonlyMap<string, Statement>,
  recording: string,
  by: string,
  markName: string | undefined,
): void {
  const author = authorOf(markName ?? '', by);
  const written = [...known].filter(([name, statement]) => authorOf(name, statement.by) === author);
  const kind = markName === undefined ? 'of your comments' : 'marks in recordings of this user';
  if (written.length >= MAX_DOCUMENTS - known.size)
    throw new TailcastError('USAGE', `there is no space for more than ${written.length} ${kind}`);
  if (markName !== undefined) return;
  const isHere = (statement: Statement): boolean => statement.recording === recording;
  const here = [...known.values()].filter(isHere).length;
  const writtenHere = written.filter(([, statement]) => isHere(statement)).length;
  if (writtenHere >= MAX_CHANGES - here)
    throw new TailcastError(
      'USAGE',
      `a recording has at most ${MAX_CHANGES} comments and changes of tags, and ${writtenHere} are yours`,
    );
}

/**
 * Returns the author whose limit includes a document. If an alert rule wrote the document, the owner of the recording
 * counts as its author. The recordings of one user therefore cannot use up the space that alert rules need for the
 * recordings of other users.
 */
function authorOf(name: string, by: string): string {
  const owner = /(?:^|\/)rule-.+-([0-9a-f]{16})$/.exec(name)?.[1];
  return owner === undefined ? by : `owner ${owner}`;
}

function ownerDigest(recording: Pick<Recording, 'source'>): string {
  return hash('sha256', recordedOwner(recording)).slice(0, 16);
}

/** Removes the review of a removed recording. */
export async function forgetReview(
  store: Pick<DocumentStore, 'listDocuments' | 'removeDocument'>,
  recording: string,
): Promise<void> {
  for (const name of await store.listDocuments(`${FOLDER}${recording}/`)) await store.removeDocument(name);
}

function reviewsOf(statements: Iterable<Statement>): ReadonlyMap<string, Review> {
  const sorted = [...statements].toSorted((left, right) => left.at.localeCompare(right.at));
  const reviews = new Map<string, Review>();
  for (const statement of sorted)
    reviews.set(statement.recording, applied(reviews.get(statement.recording) ?? NO_REVIEW, statement));
  return reviews;
}

function applied(review: Review, statement: Statement): Review {
  const { at, by } = statement;
  const { reviewed: _before, ...unreviewed } = review;
  switch (statement.kind) {
    case 'comment': {
      const { text, seconds } = statement;
      const comment = { at, by, text, ...(seconds === undefined ? {} : { seconds }) };
      return { ...review, comments: [...review.comments, comment] };
    }
    case 'tag':
      return { ...review, tags: [...new Set([...review.tags, statement.text])].toSorted() };
    case 'untag':
      return { ...review, tags: review.tags.filter((tag) => tag !== statement.text) };
    case 'reviewed':
      return { ...unreviewed, reviewed: { at, by } };
    case 'unreviewed':
      return unreviewed;
  }
}
