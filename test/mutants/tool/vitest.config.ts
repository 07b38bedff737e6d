/** Runs tests with all changes of the source compiled in memory. The work tree stays unchanged. */
import { join } from 'node:path';
import { defineConfig } from 'vitest/config';
import { BaseSequencer } from 'vitest/node';
import { folderOf } from './judging.ts';
import { mutantsOf } from './operators.ts';
import { withSwitches } from './schemata.ts';

const root = join(import.meta.dirname, '../../..');

/** Runs test files in the order of the jobs. */
class InOrder extends BaseSequencer {
  override async sort<T>(files: T[]): Promise<T[]> {
    return files;
  }
}

export default defineConfig({
  root,
  plugins: [
    {
      name: 'tailcast-mutants',
      enforce: 'pre',
      transform(code, id) {
        const [path = ''] = id.split('?', 1);
        const file = path.slice(root.length + 1);
        if (!path.startsWith(join(root, 'src', '/')) || folderOf({ file }) === undefined) return undefined;
        return { code: withSwitches(code, mutantsOf(file, code)), map: null };
      },
    },
  ],
  test: {
    include: ['test/**/*.test.ts'],
    exclude: ['test/real/**'],
    runner: join(import.meta.dirname, 'runner.ts'),
    testTimeout: 120_000,
    hookTimeout: 120_000,
    // the time limits are long for busy machines, as in the other configurations
    expect: { poll: { interval: 20, timeout: 60_000 } },
    pool: 'forks',
    passWithNoTests: true,
    sequence: { sequencer: InOrder },
    // tests get the same random values each time
    env: { CI: 'true', TEST_SEED: '1' },
    fsModuleCache: false,
  },
});
