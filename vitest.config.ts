import { availableParallelism } from 'node:os';
import { defineConfig } from 'vitest/config';

/**
 * Tests of pure code and of parts within one process. Their files share a process, which saves its start for each of them,
 * so none of them may leave anything behind in it. `npm run test:quick` runs these alone, in less than a minute.
 */
const QUICK = [
  'test/*.test.ts',
  'test/{bench,cli,config,docs,doctor,impersonation,kube,mutants,observe,operator,player,recording,wire}/**/*.test.ts',
];

/** Files of the folders above that take several seconds each. */
const SLOW = [
  'test/cli/context-archive.test.ts',
  'test/doctor/operator.test.ts',
  'test/operator/egress-group/reconcile.test.ts',
  'test/operator/ingress-group/reconcile.test.ts',
  'test/operator/recorder/departure.test.ts',
  'test/operator/service/reconcile.test.ts',
  'test/recording/journal/session-journal.test.ts',
];

export default defineConfig({
  test: {
    // Only what stands still meets these limits: a test may not fail because a machine is busy. What must be fast is measured
    // by `npm run bench`, and a test of a time limit of ours says its own bounds.
    testTimeout: 180_000,
    hookTimeout: 180_000,
    expect: { poll: { interval: 20, timeout: 60_000 } },
    pool: 'forks',
    // One more than processors, because several files wait a minute until a recorder marks a session as interrupted.
    maxWorkers: availableParallelism() + 1,
    globalSetup: ['test/support/announce.ts', 'test/support/scratch.ts'],
    // A verification run shares its machine with others: what depends on time gets a second try there, and only there.
    retry: process.env['CI'] === 'true' ? 1 : 0,
    reporters: ['default'],
    projects: [
      { extends: true, test: { name: 'quick', include: QUICK, exclude: SLOW, isolate: false } },
      { extends: true, test: { name: 'slow', include: SLOW } },
      // Vitest starts projects in the order of their names, so the files that wait longest start first.
      { extends: true, test: { name: 'e2e', include: ['test/e2e/**/*.test.ts'] } },
      {
        extends: true,
        test: {
          name: 'whole',
          include: ['test/**/*.test.ts'],
          exclude: ['test/{e2e,real}/**', ...QUICK],
        },
      },
    ],
  },
});
