/** Before the first test, prints which tests run and how long they take. */
import type { TestProject } from 'vitest/node';

/** Prevents a second message: vitest runs the setup once for each project. */
let announced = false;

export default function announce({ vitest }: TestProject): void {
  if (announced) return;
  announced = true;
  const names = vitest.projects.map(({ name }) => name);
  const plan = names.includes('whole')
    ? 'all tests but those with real peers: about 20 minutes on two processors (npm run test:quick: half a minute)'
    : 'tests of pure code and of parts within one process: half a minute (npm test: all but those with real peers)';
  process.stderr.write(`tailcast: ${plan}\n`);
}
