/**
 * Limits the V8 heap of a process that mostly waits. Without a limit V8 keeps several times the used memory.
 *
 * NOTE: flags of the process, because there is one heap.
 */
import { setFlagsFromString } from 'node:v8';

/**
 * Lets the old generation grow by a fifth of its used size before a collection, and the young generation not at all.
 * Measured with an operator of 5,000 Services, 500 of them proxied: 133 MiB instead of 221, with the same CPU time.
 */
export function keepHeapSmall(): void {
  setFlagsFromString('--heap-growing-percent=20');
  setFlagsFromString('--semi-space-growth-factor=1');
}
