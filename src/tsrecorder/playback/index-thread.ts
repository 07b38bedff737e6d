/**
 * Thread that builds play indexes. The thread receives a task and then the cast in chunks, and requests each chunk
 * after it has processed the previous chunk. The results are files: the index, the screens of keyframes, and the
 * transcript.
 */
import { createWriteStream } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { once } from 'node:events';
import { setPriority } from 'node:os';
import { gzipSync } from 'node:zlib';
import { parentPort, type MessagePort } from 'node:worker_threads';
import { errorText } from '../../errors.ts';
import type { buildPlayIndex as BuildPlayIndex, KnownPlace } from '../../bundle/build-index.ts';

/** Input of the thread. */
export interface ThreadTask {
  /** Output files: the index, and a file with one keyframe per line, as a JSON string. */
  readonly indexPath: string;
  readonly framesPath: string;
  /** Output file of the compressed transcript. */
  readonly transcriptPath: string;
  readonly places: readonly KnownPlace[];
}

/** Message to the thread: a task, then chunks of its cast, then null at the end of the cast. */
export type ThreadMessage = ThreadTask | Uint8Array | null;

/** Message from the thread. */
export type ThreadAnswer =
  /** The thread can accept another chunk. */
  | { readonly kind: 'more' }
  | { readonly kind: 'done' }
  | { readonly kind: 'failed'; readonly reason: string };

/** A stored index, and the position of each keyframe in the file of keyframes. */
export interface StoredIndex {
  readonly index: unknown;
  /** Offset of each keyframe's line, and the end of the last line. */
  readonly frameOffsets: readonly number[];
}

const NICE = 10;

async function main(): Promise<void> {
  const port = parentPort;
  if (port === null) throw new Error('this file is a thread');
  lowerPriority();
  const next = createQueue(port);
  // Load the builder only now, so that loading also has the lower priority.
  const { buildPlayIndex } = await import('../../bundle/build-index.ts');
  for (;;) {
    const task = await next();
    if (task === null || task instanceof Uint8Array) throw new Error('a chunk without a task');
    await build(task, next, port, buildPlayIndex);
    port.postMessage({ kind: 'done' } satisfies ThreadAnswer);
  }
}

/**
 * Lowers the priority of this thread, so that requests of viewers and uploads come first. Only Linux has a priority for
 * each thread.
 */
function lowerPriority(): void {
  if (process.platform !== 'linux') return;
  try {
    setPriority(NICE);
  } catch {
    // Keep the priority if the OS does not allow a lower priority.
  }
}

type NextMessage = () => Promise<ThreadMessage>;

function createQueue(port: MessagePort): NextMessage {
  const messages: ThreadMessage[] = [];
  let wake: (() => void) | undefined;
  port.on('message', (message: ThreadMessage) => {
    messages.push(message);
    wake?.();
  });
  return async () => {
    for (;;) {
      const message = messages.shift();
      if (message !== undefined) return message;
      await new Promise<void>((resolve) => {
        wake = resolve;
      });
    }
  };
}

async function build(
  task: ThreadTask,
  next: NextMessage,
  port: MessagePort,
  buildPlayIndex: typeof BuildPlayIndex,
): Promise<void> {
  async function* chunks(): AsyncGenerator<Uint8Array> {
    for (;;) {
      const piece = await next();
      if (!(piece instanceof Uint8Array)) return;
      port.postMessage({ kind: 'more' } satisfies ThreadAnswer);
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
}

main().catch((error: unknown) => {
  parentPort?.postMessage({ kind: 'failed', reason: errorText(error) } satisfies ThreadAnswer);
  parentPort?.close();
});
