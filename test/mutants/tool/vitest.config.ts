/** Runs tests with one source file changed in memory: the work tree stays as it is. */
import { join } from 'node:path';
import { defineConfig } from 'vitest/config';

const root = join(import.meta.dirname, '../../..');
const { file, start, end, replacement } = JSON.parse(process.env['TAILCAST_MUTANT'] ?? '{}') as {
  readonly file?: string;
  readonly start?: number;
  readonly end?: number;
  readonly replacement?: string;
};

export default defineConfig({
  root,
  plugins: [
    {
      name: 'tailcast-mutant',
      enforce: 'pre',
      transform(code, id) {
        if (file === undefined || id.split('?', 1)[0] !== join(root, file)) return undefined;
        return { code: code.slice(0, start) + replacement + code.slice(end), map: null };
      },
    },
  ],
  test: {
    include: ['test/**/*.test.ts'],
    exclude: ['test/real/**'],
    testTimeout: 20_000,
    hookTimeout: 30_000,
    pool: 'forks',
    maxWorkers: 2,
    bail: 1,
    // a kept transform would be shown in place of the change
    fsModuleCache: false,
    // a slow machine must not look like a change that was noticed
    retry: 1,
  },
});
