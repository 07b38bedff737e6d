/** What axe-core finds wrong with a page: rules about names, roles, contrast, structure (WCAG 2.2 A and AA, best practices). */
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import type { Page } from 'playwright-core';

const source = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

/** One line for each place that breaks a rule. */
export async function accessibilityFaults(page: Page): Promise<readonly string[]> {
  // by the debugger: the page itself lets no foreign script in
  await page.evaluate(source);
  return page.evaluate<
    readonly string[]
  >(`axe.run().then(({ violations }) => violations.flatMap(({ id, nodes }) =>
    nodes.map(({ target, failureSummary }) => id + ' ' + target.join(' ') + ': ' + failureSummary)))`);
}
