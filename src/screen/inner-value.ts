import type { Terminal as Emulator } from '@xterm/headless/lib-headless/xterm-headless.mjs';

/**
 * Returns an internal value of the emulator by its property path; undefined if this version of the emulator lacks it.
 */
export function innerValue(emulator: Emulator, path: readonly string[]): unknown {
  let value: unknown = emulator;
  for (const name of path) {
    if (typeof value !== 'object' || value === null) return undefined;
    value = Reflect.get(value, name);
  }
  return value;
}
