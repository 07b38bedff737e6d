import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    include: ['test/**/*.test.ts'],
    exclude: ['test/real/**', 'node_modules/**', 'dist/**'],
    testTimeout: 20_000,
    hookTimeout: 30_000,
    pool: 'forks',
    // A verification run shares its machine with others: what depends on time gets a second try there, and only there.
    retry: process.env['CI'] === 'true' ? 1 : 0,
    reporters: ['default'],
  },
});
