/** Bodies of the benchmark's answers. */
export const SMALL_BYTES = 2048;
export const BULK_BYTES = 800 * 64 * 1024; // 50 MiB, in chunks of 64 KiB
