import { EXTRACTOR } from '../../search/search-index.ts';
import type { IndexedText } from '../../search/moments.ts';

/** Layout version of the embedded index. Each version has its own folder. */
export const LAYOUT = 'v7';

/** Layout version of indices at a server. */
export const LAYOUT_OF_SERVER = 'v5';

/**
 * End of the version of a session in an index: all settings that decide the indexed content, in addition to the
 * recording.
 *
 * @param trusted identifies the trusted keys; default: an index of several recorders
 */
export function indexRevision(text: IndexedText, trusted?: string): string {
  return `.${EXTRACTOR}.${text}${trusted === undefined ? '' : `.${trusted}`}`;
}
