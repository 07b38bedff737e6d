import { defineConfig } from 'vitest/config';

export default defineConfig({
  cacheDir: new URL('../../node_modules/.vite', import.meta.url).pathname,
  test: {
    root: import.meta.dirname,
    include: ['**/*.test.ts'],
    testTimeout: 200_000,
    hookTimeout: 180_000,
    pool: 'forks',
    // CI machines are shared, so time-dependent tests get a second try in CI only.
    retry: process.env['CI'] === 'true' ? 1 : 0,
    // Suites run one after the other, because their timing is part of the test.
    fileParallelism: false,
    reporters: ['default'],
  },
});
