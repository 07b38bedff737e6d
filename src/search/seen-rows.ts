/**
 * Detects rows with the same text as an earlier row, such as a status line or a table that is drawn every second. Pure.
 */

const SAME_ROW_SECONDS = 600;
const MAX_SEEN = 20_000;
const MAX_SEEN_TEXT = 4 * 1024 ** 2;

interface SeenRow {
  readonly text: string;
  readonly at: number;
}

/**
 * Returns a function for one session. The function remembers each row, and returns true if an equal row was on the
 * screen within the last ten minutes.
 */
export function createSeenRows(): (at: number, text: string) => boolean {
  // NOTE: rows are keyed by a hash, because with texts as keys, reading a cast takes a sixth more time. If two texts
  // have the same hash, the older text is forgotten. The older text then counts as new when it appears again, so no
  // text is lost.
  const seen = new Map<number, SeenRow>();
  let seenText = 0;
  const forget = (hash: number, { text }: SeenRow): void => {
    seen.delete(hash);
    seenText -= text.length;
  };
  return (at, text) => {
    const hash = hashOf(text);
    const before = seen.get(hash);
    if (before?.text === text && at - before.at < SAME_ROW_SECONDS) return true;
    if (before !== undefined) forget(hash, before);
    seen.set(hash, { text, at });
    seenText += text.length;
    while (seen.size > MAX_SEEN || seenText > MAX_SEEN_TEXT) {
      const [oldest] = seen;
      if (oldest === undefined) break;
      forget(...oldest);
    }
    return false;
  };
}

/** Returns the FNV-1a hash of a text, in 30 bits. */
function hashOf(text: string): number {
  let hash = 0x811c9dc5;
  for (let at = 0; at < text.length; at += 1) hash = Math.imul(hash ^ text.charCodeAt(at), 0x01000193);
  return hash & 0x3fffffff;
}
