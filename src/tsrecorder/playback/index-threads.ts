/**
 * Threads that build play indexes, one build at a time. The start of a thread costs more CPU time than most builds, so
 * a thread stays for some seconds after its build.
 */
import { Worker } from 'node:worker_threads';
import type { ThreadAnswer, ThreadMessage, ThreadTask } from './index-thread.ts';

const THREAD = new URL(
  import.meta.url.endsWith('.ts') ? './index-thread.ts' : './index-thread.js',
  import.meta.url,
);
/** Maximum number of chunks that are sent to the thread before it has processed them. */
const MAX_AHEAD = 4;
/** Memory limits of a thread, so that a hostile recording stops only its thread and not the recorder. */
const RESOURCE_LIMITS = { maxOldGenerationSizeMb: 384, maxYoungGenerationSizeMb: 32 };
/**
 * Maximum CPU time of a build, in milliseconds: a constant plus a time per byte. A build that uses its complete work
 * budget needs only a fraction of this time.
 */
const MIN_CPU_MS = 10_000;
const CPU_MS_PER_BYTE = 0.01;
const CPU_CHECK_MS = 1000;
const IDLE_MS = 5000;

export function createIndexThreads() {
  const threads = new Set<Worker>();
  const idle = new Map<Worker, ReturnType<typeof setTimeout>>();
  const take = (): Worker => {
    for (const [thread, timer] of idle) {
      clearTimeout(timer);
      idle.delete(thread);
      return thread;
    }
    const thread = startThread();
    threads.add(thread);
    thread.once('exit', () => {
      clearTimeout(idle.get(thread));
      idle.delete(thread);
      threads.delete(thread);
    });
    return thread;
  };
  return {
    /**
     * Builds the index of a cast.
     *
     * @param onRead called with the size of each chunk
     * @throws Error if no index is possible, or if the build needs too much memory or CPU time
     */
    async build(
      cast: AsyncIterable<Uint8Array>,
      task: ThreadTask,
      onRead: (bytes: number) => void,
    ): Promise<void> {
      const thread = take();
      try {
        await runBuild(thread, cast, task, onRead);
      } catch (error) {
        await thread.terminate();
        throw error;
      }
      idle.set(
        thread,
        setTimeout(() => {
          idle.delete(thread);
          void thread.terminate();
        }, IDLE_MS),
      );
    },
    /** Stops all threads. */
    async close(): Promise<void> {
      await Promise.all([...threads].map((thread) => thread.terminate()));
    },
  };
}

function startThread(): Worker {
  // Capture the output of the thread, so that a parser cannot write to the process log of the recorder.
  const thread = new Worker(THREAD, { resourceLimits: RESOURCE_LIMITS, stdout: true, stderr: true });
  thread.stdout.resume();
  thread.stderr.resume();
  // Ignore the error, because the thread then exits, and the exit ends the build.
  thread.on('error', () => undefined);
  return thread;
}

async function runBuild(
  thread: Worker,
  cast: AsyncIterable<Uint8Array>,
  task: ThreadTask,
  onRead: (bytes: number) => void,
): Promise<void> {
  const ended = Promise.withResolvers<void>();
  ended.promise.catch(() => undefined);
  let bytes = 0;
  let ahead = 0;
  let wake: (() => void) | undefined;
  let isOver = false;
  const over = (error?: Error): void => {
    isOver = true;
    wake?.();
    if (error === undefined) ended.resolve();
    else ended.reject(error);
  };
  const follow = (answer: ThreadAnswer): void => {
    if (answer.kind === 'failed') over(new Error(answer.reason));
    if (answer.kind === 'done') over();
    if (answer.kind === 'more') {
      ahead -= 1;
      wake?.();
    }
  };
  const exited = (): void => over(new Error('the thread was ended'));
  const post = (message: ThreadMessage): void => thread.postMessage(message);
  thread.on('message', follow).once('error', over).once('exit', exited);
  // The CPU time of the thread includes earlier builds, so subtract the CPU time before this build.
  const before = cpuMsOf(thread);
  before.catch(() => undefined); // awaited below
  const watch = setInterval(() => {
    Promise.all([before, cpuMsOf(thread)]).then(
      ([start, used]) => {
        if (used - start > MIN_CPU_MS + bytes * CPU_MS_PER_BYTE)
          over(new Error('this recording costs too much to render'));
      },
      // Ignore the error, because the thread has exited.
      () => undefined,
    );
  }, CPU_CHECK_MS);
  try {
    post(task);
    for await (const chunk of cast) {
      while (ahead >= MAX_AHEAD && !isOver) {
        await new Promise<void>((resolve) => {
          wake = resolve;
        });
      }
      if (isOver) break;
      ahead += 1;
      // Send a copy, because chunks of a file may share memory.
      post(Uint8Array.from(chunk));
      bytes += chunk.length;
      onRead(chunk.length);
    }
    post(null);
    await ended.promise;
  } finally {
    clearInterval(watch);
    thread.off('message', follow).off('error', over).off('exit', exited);
  }
}

async function cpuMsOf(thread: Worker): Promise<number> {
  const { user, system } = await thread.cpuUsage();
  return (user + system) / 1000;
}
