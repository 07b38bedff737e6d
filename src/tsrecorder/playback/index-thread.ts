/**
 * Thread that builds a play index. The thread receives the cast in chunks, and requests each chunk after it has
 * processed the previous one. The results are files: the index, the screens of keyframes, and the transcript.
 */
import { createWriteStream } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { once } from 'node:events';
import { gzipSync } from 'node:zlib';
import { parentPort, workerData } from 'node:worker_threads';
import { errorText } from '../../errors.ts';
import { z } from 'zod';
import { buildPlayIndex, type KnownPlace } from '../../bundle/build-index.ts';

/** Input of the thread. */
export interface ThreadTask {
  /** Output files: the index, and a file with one keyframe per line, as a JSON string. */
  readonly indexPath: string;
  readonly framesPath: string;
  /** Output file of the compressed transcript. */
  readonly transcriptPath: string;
  readonly places: readonly KnownPlace[];
}

const threadTask = z.object({
  indexPath: z.string(),
  framesPath: z.string(),
  transcriptPath: z.string(),
  places: z.array(z.object({ offset: z.number(), kind: z.enum(['gap', 'part']), text: z.string() })),
}) satisfies z.ZodType<ThreadTask>;

/** Message to the thread: a chunk of the cast, or null at its end. */
export type ThreadPiece = Uint8Array | null;

/** Message from the thread. */
export type ThreadAnswer =
  /** The thread can accept another chunk. */
  | { readonly kind: 'more' }
  | { readonly kind: 'done' }
  | { readonly kind: 'failed'; readonly reason: string };

/** A stored index. It contains the offsets of the keyframes in the file of keyframes. */
export interface StoredIndex {
  readonly index: unknown;
  /** Offset of each keyframe's line, and the end of the last line. */
  readonly frameOffsets: readonly number[];
}

async function main(): Promise<void> {
  const port = parentPort;
  if (port === null) throw new Error('this file is a thread');
  const task = threadTask.parse(workerData);
  const pieces: ThreadPiece[] = [];
  let wake: (() => void) | undefined;
  port.on('message', (piece: ThreadPiece) => {
    pieces.push(piece);
    wake?.();
  });
  async function* chunks(): AsyncGenerator<Uint8Array> {
    for (;;) {
      while (pieces.length === 0) {
        await new Promise<void>((resolve) => {
          wake = resolve;
        });
      }
      const piece = pieces.shift();
      if (piece === null || piece === undefined) return;
      port?.postMessage({ kind: 'more' } satisfies ThreadAnswer);
      yield piece;
    }
  }
  const file = createWriteStream(task.framesPath, { mode: 0o600 });
  const frameOffsets = [0];
  const { index, transcript } = await buildPlayIndex({
    chunks: chunks(),
    places: task.places,
    async onFrame(screen) {
      const line = Buffer.from(`${JSON.stringify(screen)}\n`);
      frameOffsets.push((frameOffsets.at(-1) ?? 0) + line.length);
      if (!file.write(line)) await once(file, 'drain');
    },
    onProgress: () => undefined,
  });
  file.end();
  await once(file, 'finish');
  await writeFile(task.transcriptPath, gzipSync(JSON.stringify(transcript)), { mode: 0o600 });
  await writeFile(task.indexPath, JSON.stringify({ index, frameOffsets } satisfies StoredIndex), {
    mode: 0o600,
  });
  port.postMessage({ kind: 'done' } satisfies ThreadAnswer);
  port.close();
}

main().catch((error: unknown) => {
  parentPort?.postMessage({ kind: 'failed', reason: errorText(error) } satisfies ThreadAnswer);
  parentPort?.close();
});
