/**
 * Limits the V8 heap of a process that is mostly idle. Without a limit, V8 keeps several times the memory
 * that is in use.
 *
 * NOTE: These V8 flags apply to the complete process, because there is one heap.
 */
import { setFlagsFromString } from 'node:v8';

/**
 * Starts a collection when the old generation has grown by a fifth of its used size, and prevents the growth of the
 * young generation. An operator with 5,000 Services, of which 500 have a proxy, needed 133 MiB instead of 221 MiB, with
 * the same CPU time.
 */
export function keepHeapSmall(): void {
  setFlagsFromString('--heap-growing-percent=20');
  setFlagsFromString('--semi-space-growth-factor=1');
}
