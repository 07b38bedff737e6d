/** Creates, in the browser, a single HTML file that contains a recording. The data comes from the recorder. */
import type { BundleSources } from '../bundle/write-bundle.ts';
import { chunksOf } from '../bundle/stream-chunks.ts';
import { writeBundle } from '../bundle/write-bundle.ts';
import type { ListedRecording } from '../wire/recorder-api/recording.ts';
import { bytesAt, castAddress } from './addresses.ts';
import { answerOf } from './archive.ts';
import { readEvidence } from './evidence.ts';
import { failureOf } from './archive-error.ts';
import type { Ask } from './recorder-context.ts';

const RETRY_MS = 1000;
/** Number of characters that are buffered before they are moved to a Blob. */
const GATHERED = 8 * 1024 ** 2;

/** @throws Error with a sentence for the user */
export async function exportRecording(
  ask: Ask,
  recording: ListedRecording,
  signal: AbortSignal,
  onProgress: (share: number) => void,
): Promise<Blob> {
  // the page inside a bundle is as large as this page, so it is loaded only when a bundle is created
  const { default: page } = await import('virtual:offline-page');
  const parts: Blob[] = [];
  let texts: string[] = [];
  let length = 0;
  const options = { page, madeAt: new Date().toISOString(), onProgress };
  for await (const text of writeBundle(sourcesOf(ask, recording, signal), options)) {
    signal.throwIfAborted();
    texts.push(text);
    length += text.length;
    if (length < GATHERED) continue;
    parts.push(new Blob(texts));
    texts = [];
    length = 0;
  }
  return new Blob([...parts, ...texts], { type: 'text/html' });
}

function sourcesOf(ask: Ask, recording: ListedRecording, signal: AbortSignal): BundleSources {
  const { id } = recording;
  const get = (name: string): Promise<Response | undefined> => found(ask, bytesAt(id, name), signal);
  return {
    recording,
    async *cast() {
      const response = await answerOf(ask, castAddress(id, { watched: false }), signal);
      if (!response.ok) throw await failureOf(response);
      yield* chunksOf(response.body);
    },
    sidecar: async () => bytesOf(await get('sidecar')),
    async notes() {
      const response = await get('notes');
      return response === undefined ? undefined : chunksOf(response.body);
    },
    evidence: () => readEvidence(ask, id, signal),
  };
}

/** Requests a document of a recording. Returns undefined for status 404. */
async function found(ask: Ask, path: string, signal: AbortSignal): Promise<Response | undefined> {
  for (;;) {
    const response = await answerOf(ask, path, signal);
    if (response.status === 404) return undefined;
    if (!response.ok) throw await failureOf(response);
    if (response.status !== 202) return response;
    await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
  }
}

async function bytesOf(response: Response | undefined): Promise<Uint8Array | undefined> {
  return response === undefined ? undefined : new Uint8Array(await response.arrayBuffer());
}
