/** The sessions that a viewer may see, as terms that limit a search. Pure. */

/** `everything`, or the sessions that match one of the terms. No terms: no sessions. */
export type ViewerTerms = 'everything' | readonly ViewerTerm[];

export interface ViewerTerm {
  readonly kind: 'user' | 'cluster' | 'namespace' | 'tag';
  /** A namespace is `<name>` or `<cluster>/<name>`. */
  readonly value: string;
}
