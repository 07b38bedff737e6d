/**
 * Measures the delay of this process's event loop, and the delay of the event loop of an idle thread. Only the load of
 * the machine can delay the idle thread.
 */
import { once } from 'node:events';
import { monitorEventLoopDelay, type Histogram } from 'node:perf_hooks';
import { isMainThread, parentPort, Worker } from 'node:worker_threads';

const RESOLUTION_MS = 10;

/** Delay of an event loop, in milliseconds. */
export interface Lateness {
  readonly p99: number;
  readonly most: number;
}

export interface LoopDelay {
  /** Ends the measurement. */
  stop(): Promise<{ readonly own: Lateness; readonly idle: Lateness }>;
}

function latenessOf(delays: Histogram): Lateness {
  const late = (nanoseconds: number): number => Math.max(0, nanoseconds / 1e6 - RESOLUTION_MS);
  return { p99: late(delays.percentile(99)), most: late(delays.max) };
}

export async function watchLoop(): Promise<LoopDelay> {
  const idle = new Worker(import.meta.filename);
  await once(idle, 'message');
  const delays = monitorEventLoopDelay({ resolution: RESOLUTION_MS });
  delays.enable();
  return {
    async stop() {
      delays.disable();
      idle.postMessage('stop');
      const [beside] = (await once(idle, 'message')) as [Lateness];
      await idle.terminate();
      return { own: latenessOf(delays), idle: beside };
    },
  };
}

if (!isMainThread && parentPort !== null) {
  const delays = monitorEventLoopDelay({ resolution: RESOLUTION_MS });
  delays.enable();
  parentPort.once('message', () => parentPort?.postMessage(latenessOf(delays)));
  parentPort.postMessage('begun');
}
