/** The sessions that a viewer may see, as terms that limit a search. Pure. */

/**
 * `everything`, or a list of terms. With a list, the viewer may see the sessions that match at least one of the terms.
 * An empty list permits no session.
 */
export type ViewerTerms = 'everything' | readonly ViewerTerm[];

export interface ViewerTerm {
  readonly kind: 'user' | 'cluster' | 'namespace' | 'tag';
  /** A namespace is `<name>` or `<cluster>/<name>`. */
  readonly value: string;
}
