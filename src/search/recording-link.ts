/** Links to search results. Pure. */

/** Time before a hit at which playback starts, in seconds. */
const LEAD_SECONDS = 2;

/** Returns the second at which playback of a hit starts. */
export function leadTo(at: number): number {
  return Math.max(0, at - LEAD_SECONDS);
}

/**
 * Returns the link to a recording on the page of a recorder or gateway.
 *
 * @param page URL of the page
 * @param at moment of the recording, in seconds; undefined for the start
 */
export function recordingLink(page: string, id: string, at: number | undefined): string {
  const start = at === undefined ? '' : `?t=${Math.floor(leadTo(at))}`;
  return new URL(`#/r/${encodeURIComponent(id)}${start}`, folderOf(page)).href;
}

/** Returns the link to an access request. @param page as in {@link recordingLink} */
export function accessLink(page: string, request: string): string {
  return new URL(`access.html#${encodeURIComponent(request)}`, folderOf(page)).href;
}

function folderOf(page: string): string {
  return page.endsWith('/') ? page : `${page}/`;
}
