/** Saved searches in the read API of a recorder. A saved search is personal, or shared with all viewers. */

export interface SavedSearch {
  readonly name: string;
  readonly query: string;
}

export interface SharedSearch extends SavedSearch {
  /** Login or node of the viewer who saved it. */
  readonly by: string;
}

export interface SavedSearches {
  readonly personal: readonly SavedSearch[];
  /** Shared searches. Empty for viewers who must not see all recordings. */
  readonly shared: readonly SharedSearch[];
  /** True if the viewer may save and remove personal searches. */
  readonly mayWrite: boolean;
  /** True if the viewer may save and remove shared searches. */
  readonly mayShare: boolean;
}

/** A change of the saved searches. A new search replaces one with the same name. */
export type SearchChange =
  | { readonly kind: 'save'; readonly name: string; readonly query: string; readonly isShared: boolean }
  | { readonly kind: 'remove'; readonly name: string; readonly isShared: boolean };

/** Maximum length of a name. */
export const MAX_SEARCH_NAME = 60;
