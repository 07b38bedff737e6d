import type { CommandContext } from '../config/command-context.ts';
import type { DemoConfig } from '../config/demo.ts';

/**
 * Runs `demo/run.ts`, or the file that `scripts/build-demo.mjs` builds from it. The import path is computed, so no file
 * of `src` imports `demo` directly.
 */
export async function loadDemo(config: DemoConfig, context: CommandContext): Promise<void> {
  const isSource = import.meta.url.endsWith('.ts');
  const path = isSource ? '../../demo/run.ts' : '../demo/run.js';
  // oxlint-disable-next-line typescript/no-unsafe-assignment -- a computed import has the type any
  const loaded: { readonly runDemo: typeof loadDemo } = await import(new URL(path, import.meta.url).href);
  await loaded.runDemo(config, context);
}
