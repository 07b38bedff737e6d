/**
 * Collects the garbage of request bodies and sessions early, before V8 marks the complete heap.
 *
 * Each piece is a buffer outside of V8's heap that is garbage as soon as it has been written. The object of a buffer
 * in the heap is so small that the young generation never fills. V8 notices only that outside memory grows and marks
 * the complete heap every 20 MB, which takes tens of milliseconds. A collection of the young generation takes about
 * one millisecond and frees the same memory.
 *
 * bench/README.md has measurements. Responses of the API server to plain requests use reusable blocks
 * (`read-buffers`) and are not counted here.
 *
 * NOTE: module state, because there is one heap.
 */
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

/**
 * Bytes that are read between two collections; copies of written bytes may need the same memory again. With twice this
 * limit, one recorder in four marked its heap continuously, with 1.7 times the CPU time of a recorded flood; with
 * this limit none of ten did.
 */
export const COLLECT_AFTER_BYTES = 4 * 1024 * 1024;

let isWanted = true;
let uncollected = 0;
let collect: ((options: GcOptions) => void) | undefined;

interface GcOptions {
  readonly type: 'minor' | 'major';
  readonly execution: 'sync' | 'async';
}

/** True if this process may collect early. */
export function collectsEarly(): boolean {
  return isWanted;
}

/** Enables or disables early collection. Default: enabled. */
export function collectEarly(wanted: boolean): void {
  isWanted = wanted;
}

/** Counts bytes that were read into a buffer which is not reused. */
export function passedThrough(bytes: number): void {
  if (!isWanted) return;
  uncollected += bytes;
  if (uncollected < COLLECT_AFTER_BYTES) return;
  uncollected = 0;
  run({ type: 'minor', execution: 'sync' });
}

/** Starts a full collection soon, for memory whose size V8 does not know. */
export function collectAll(): void {
  run({ type: 'major', execution: 'async' });
}

function run(options: GcOptions): void {
  collect ??= collector();
  collect(options);
}

function collector(): (options: GcOptions) => void {
  // the function exists only in contexts that were created while the flag is set
  setFlagsFromString('--expose-gc');
  const gc: unknown = runInNewContext('gc');
  setFlagsFromString('--no-expose-gc');
  return (options) => {
    if (typeof gc === 'function') Reflect.apply(gc, undefined, [options]);
  };
}
