/** Saved searches in the read API of a recorder: personal ones, and shared ones of all viewers. */

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
  /** Empty for viewers who may not see everything. */
  readonly shared: readonly SharedSearch[];
  /** True if the viewer may save and remove personal searches. */
  readonly mayWrite: boolean;
  /** True if the viewer may save and remove shared searches. */
  readonly mayShare: boolean;
}

/** A change of the saved searches. A search with the same name is replaced. */
export type SearchChange =
  | { readonly kind: 'save'; readonly name: string; readonly query: string; readonly isShared: boolean }
  | { readonly kind: 'remove'; readonly name: string; readonly isShared: boolean };

/** Maximum length of a name. */
export const MAX_SEARCH_NAME = 60;
