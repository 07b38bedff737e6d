/** Reviews of recordings in the read API of a recorder: comments, tags, and the last reviewer. */

export interface ReviewComment {
  /** Time of the comment: RFC 3339 in UTC. */
  readonly at: string;
  /** Login or node of the author. */
  readonly by: string;
  readonly text: string;
  /** Position in the recording, in seconds. */
  readonly seconds?: number;
}

export interface Review {
  readonly tags: readonly string[];
  readonly reviewed?: { readonly at: string; readonly by: string };
  readonly comments: readonly ReviewComment[];
}

/** Part of a review that is included in lists of recordings. */
export interface ReviewSummary {
  readonly tags: readonly string[];
  readonly reviewedBy?: string;
  readonly comments: number;
}

/** A change of a review. */
export type ReviewChange =
  | { readonly kind: 'comment'; readonly text: string; readonly seconds?: number }
  | { readonly kind: 'tag' | 'untag'; readonly text: string }
  | { readonly kind: 'reviewed' | 'unreviewed' };

/** The empty review of a recording that nobody has reviewed. */
export const NO_REVIEW: Review = { tags: [], comments: [] };

/** Format of a tag: letters, digits, `_`, `.` and `-`. A tag of a tailnet node differs, because it contains a colon. */
export const REVIEW_TAG = /^[\p{L}\p{N}_.-]{1,50}$/u;

export function summaryOf({ tags, reviewed, comments }: Review): ReviewSummary {
  return {
    tags,
    ...(reviewed === undefined ? {} : { reviewedBy: reviewed.by }),
    comments: comments.length,
  };
}
