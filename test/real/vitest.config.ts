import { defineConfig } from 'vitest/config';

export default defineConfig({
  cacheDir: new URL('../../node_modules/.vite', import.meta.url).pathname,
  test: {
    root: import.meta.dirname,
    include: ['**/*.test.ts'],
    testTimeout: 60_000,
    hookTimeout: 180_000,
    pool: 'forks',
    // The parts of a rig want the whole machine, and their timing is part of what is tested.
    fileParallelism: false,
    reporters: ['default'],
  },
});
