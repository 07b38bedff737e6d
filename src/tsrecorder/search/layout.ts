import { EXTRACTOR } from '../../search/search-index.ts';
import type { IndexedText } from '../../search/moments.ts';

/** Layout version of the embedded index. Each version has its own folder. */
export const LAYOUT = 'v7';

/** Layout version of indices on an OpenSearch server. */
export const LAYOUT_OF_SERVER = 'v5';

/**
 * Returns the part of an index entry's version that depends on settings. If these settings change, sessions are indexed
 * again.
 *
 * @param trusted identifies the trusted keys; undefined for an index that several recorders share
 */
export function indexRevision(text: IndexedText, trusted?: string): string {
  return `.${EXTRACTOR}.${text}${trusted === undefined ? '' : `.${trusted}`}`;
}
