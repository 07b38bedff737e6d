/** Sends recordings without their text to the index writer process, with one request for all of them. */
import type { SessionDoc } from '../../search/search-index.ts';
import type { Recording } from '../../wire/recorder-api/recording.ts';
import type { IndexClient } from './index-client.ts';
import type { IndexerOptions } from './index-progress.ts';

/** @param matched called with the matching alert rules of each session that was not in the index */
export async function putSessions(
  index: Pick<IndexClient, 'ask'>,
  sessions: readonly { readonly recording: Recording; readonly doc: SessionDoc }[],
  matched: IndexerOptions['matched'],
): Promise<void> {
  const docs = sessions.map(({ doc }) => doc);
  if (docs.length === 0) return;
  const results = await index.ask('put', docs);
  for (const [at, { recording }] of sessions.entries()) {
    const result = results[at] ?? 'same';
    // Make the matches durable before the next flush. After a crash before the flush, the recording is read again.
    if (result !== 'same') await matched?.(recording, result);
  }
}
