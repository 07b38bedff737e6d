import { defineConfig } from 'vitest/config';

export default defineConfig({
  cacheDir: new URL('../../node_modules/.vite', import.meta.url).pathname,
  test: {
    root: import.meta.dirname,
    include: ['**/*.test.ts'],
    testTimeout: 200_000,
    hookTimeout: 180_000,
    pool: 'forks',
    // A verification run shares its machine with others: what depends on time gets a second try there, and only there.
    retry: process.env['CI'] === 'true' ? 1 : 0,
    // The parts of a rig want the whole machine, and their timing is part of what is tested.
    fileParallelism: false,
    reporters: ['default'],
  },
});
