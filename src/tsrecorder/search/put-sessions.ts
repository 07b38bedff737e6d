/** Sends recordings without their text to the index writer process, with one request for all of them. */
import type { SessionDoc } from '../../search/search-index.ts';
import type { Recording } from '../../wire/recorder-api/recording.ts';
import type { IndexClient } from './index-client.ts';
import type { IndexerOptions } from './index-progress.ts';

/**
 * @param matched called with the matching alert rules of each session that was not in the index
 * @returns false if the request failed. One of the recordings may be the cause, so the caller sends the recordings one
 *   by one
 */
export async function putSessions(
  index: Pick<IndexClient, 'ask'>,
  sessions: readonly { readonly recording: Recording; readonly doc: SessionDoc }[],
  matched: IndexerOptions['matched'],
): Promise<boolean> {
  const docs = sessions.map(({ doc }) => doc);
  if (docs.length === 0) return true;
  const results = await index.ask('put', docs).catch(() => undefined);
  if (results === undefined) return false;
  for (const [at, { recording }] of sessions.entries()) {
    const result = results[at] ?? 'same';
    // Make the matches durable before the next flush. After a crash before the flush, the recording is read again.
    if (result !== 'same') await matched?.(recording, result);
  }
  return true;
}
