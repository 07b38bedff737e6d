/** What of all sessions somebody may see, in terms that an index can narrow a search by. Pure. */

/** `everything`, or what one of the terms is true of. No terms: nothing. */
export type ViewerTerms = 'everything' | readonly ViewerTerm[];

export interface ViewerTerm {
  readonly kind: 'user' | 'namespace' | 'tag';
  readonly value: string;
}
