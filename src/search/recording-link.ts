/** Where people go from what was found. Pure. */

/** How long before a hit a recording is opened: what led to it is seen. */
const LEAD_SECONDS = 2;

/** Where to begin so that a hit is seen coming. */
export function leadTo(at: number): number {
  return Math.max(0, at - LEAD_SECONDS);
}

/**
 * A recording on the page of a recorder or a gateway.
 *
 * @param page address of that page
 * @param at second of a moment in it; undefined: its beginning
 */
export function recordingLink(page: string, id: string, at: number | undefined): string {
  const start = at === undefined ? '' : `?t=${Math.floor(leadTo(at))}`;
  return new URL(`#/r/${encodeURIComponent(id)}${start}`, page.endsWith('/') ? page : `${page}/`).href;
}
