/**
 * Starts early garbage collections while request bodies and sessions are relayed, before V8 marks the complete heap.
 *
 * Each relayed piece is a buffer outside of V8's heap, and is garbage after it was written. The object in the heap that
 * represents the buffer is small, so the young generation fills slowly. V8 notices only that the memory outside of the
 * heap grows. Each time it has grown by some tens of megabytes, V8 marks the complete heap. Marking takes tens of
 * milliseconds. A collection of the young generation frees the same memory in about one millisecond.
 *
 * bench/README.md has measurements. Responses of the API server to plain requests use reusable blocks (`read-buffers`),
 * so this module does not count them.
 *
 * NOTE: The state is global to the module, because there is one heap.
 */
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

/**
 * Number of bytes that are read between two collections. Copies of these bytes may need the same amount of memory
 * again. With twice this limit, V8 marked the heap of one in four recorders continuously, and bulk output took 1.7
 * times the CPU time. With this limit, this happened in none of ten recorders.
 */
export const COLLECT_AFTER_BYTES = 4 * 1024 * 1024;

let uncollected = 0;
let collect: ((options: GcOptions) => void) | undefined;

interface GcOptions {
  readonly type: 'minor' | 'major';
  readonly execution: 'sync' | 'async';
}

/** Counts bytes that were read into a buffer that will not be reused. */
export function passedThrough(bytes: number): void {
  uncollected += bytes;
  if (uncollected < COLLECT_AFTER_BYTES) return;
  uncollected = 0;
  run({ type: 'minor', execution: 'sync' });
}

/** Starts a full collection soon. Used for memory that V8 does not count. */
export function collectAll(): void {
  run({ type: 'major', execution: 'async' });
}

function run(options: GcOptions): void {
  collect ??= collector();
  collect(options);
}

function collector(): (options: GcOptions) => void {
  // `gc` exists only in V8 contexts that are created while the flag is set
  setFlagsFromString('--expose-gc');
  const gc: unknown = runInNewContext('gc');
  setFlagsFromString('--no-expose-gc');
  return (options) => {
    if (typeof gc === 'function') Reflect.apply(gc, undefined, [options]);
  };
}
