/** Checks a page with axe-core: rules about names, roles, contrast, structure (WCAG 2.2 A and AA, best practices). */
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import type { Page } from 'playwright-core';

const source = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

/** Returns one line for each violation. */
export async function accessibilityFaults(page: Page): Promise<readonly string[]> {
  // the debugger injects the script, because the CSP of the page forbids foreign scripts
  await page.evaluate(source);
  return page.evaluate<
    readonly string[]
  >(`axe.run().then(({ violations }) => violations.flatMap(({ id, nodes }) =>
    nodes.map(({ target, failureSummary }) => id + ' ' + target.join(' ') + ': ' + failureSummary)))`);
}
