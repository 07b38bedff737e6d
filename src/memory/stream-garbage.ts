/**
 * Collects what request bodies and sessions leave behind, before V8 takes it for a reason to look through everything.
 *
 * Each piece is a buffer of Node's outside V8's heap, dead as soon as it has been written, and so small inside the heap that
 * the young generation never fills: V8 notices only that memory outside grows, and every 20 MB it marks the whole heap,
 * tens of milliseconds each time. A collection of the young generation, here a millisecond, frees the same.
 *
 * CPU per MB and memory, means of two runs on a busy machine: POST of 1 MB 4.9 ms to 2.1 and 177 MB to 128
 * (on a quiet one 2.4x of Go's CPU to 2.2x, and 204 MB to 123); `cat` of 256 MB over
 * WebSocket 5.1 ms to 2.3 and 171 MB to 130, over SPDY 4.3 ms to 2.8 and 184 MB to 129. What comes from the API server to plain
 * requests has blocks that are used again (`read-buffers`) and does not count here.
 *
 * NOTE: module state, as in `read-buffers`: there is one heap.
 */
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

/**
 * What is read between two collections; with what is copied on the way out, up to twice as much memory. With twice as much one recorder in
 * four marked its whole heap over and over for as long as it ran, for 1.7x the CPU in a recorded flood; of ten with this none did.
 */
export const COLLECT_AFTER_BYTES = 4 * 1024 * 1024;

let isWanted = true;
let uncollected = 0;
let collect: ((options: GcOptions) => void) | undefined;

interface GcOptions {
  readonly type: 'minor' | 'major';
  readonly execution: 'sync' | 'async';
}

/** Whether this process may collect when it likes. */
export function collectsEarly(): boolean {
  return isWanted;
}

/** Told whether it may; it may unless told otherwise. */
export function collectEarly(wanted: boolean): void {
  isWanted = wanted;
}

/** So many bytes have been read into a buffer that nobody uses again. */
export function passedThrough(bytes: number): void {
  if (!isWanted) return;
  uncollected += bytes;
  if (uncollected < COLLECT_AFTER_BYTES) return;
  uncollected = 0;
  run({ type: 'minor', execution: 'sync' });
}

/** Looks through everything soon: memory is free of which V8 knows no size. */
export function collectAll(): void {
  run({ type: 'major', execution: 'async' });
}

function run(options: GcOptions): void {
  collect ??= collector();
  collect(options);
}

function collector(): (options: GcOptions) => void {
  // the function is there only in contexts made while the flag is set
  setFlagsFromString('--expose-gc');
  const gc: unknown = runInNewContext('gc');
  setFlagsFromString('--no-expose-gc');
  return (options) => {
    if (typeof gc === 'function') Reflect.apply(gc, undefined, [options]);
  };
}
