/** Tells rows that say the same again from those that are new: a status line, a table that is drawn once a second. Pure. */

const SAME_ROW_SECONDS = 600;
const MAX_SEEN = 20_000;
const MAX_SEEN_TEXT = 4 * 1024 ** 2;

/** One per session. @returns whether an equal row stood there within some minutes; from now on this one did. */
export function createSeenRows(): (at: number, text: string) => boolean {
  const seen = new Map<string, number>();
  let seenText = 0;
  return (at, text) => {
    const before = seen.get(text);
    if (before !== undefined && at - before < SAME_ROW_SECONDS) return true;
    if (before === undefined) seenText += text.length;
    else seen.delete(text);
    seen.set(text, at);
    while (seen.size > MAX_SEEN || seenText > MAX_SEEN_TEXT) {
      const [oldest] = seen.keys();
      if (oldest === undefined) break;
      seen.delete(oldest);
      seenText -= oldest.length;
    }
    return false;
  };
}
