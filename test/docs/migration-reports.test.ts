import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { GRANT_CASES, REASONS } from '../real/cases/grants.ts';
import { runCommand } from '../support/run-command.ts';

const path = (relative: string): string => fileURLToPath(new URL(`../../${relative}`, import.meta.url));
const page = readFileSync(path('docs/migration-reports.md'), 'utf8');
const reports = [
  ...page.matchAll(
    /```console\n\$ tailcast migrate check --objects (\S+)\n([\s\S]*?)```\n\nExit code (\d)\./g,
  ),
].map(([, file = '', report = '', code = '']) => ({ file, report, code: Number(code) }));

describe('docs/migration-reports.md', () => {
  it('has the report of each example cluster', () => {
    expect(reports.map(({ file }) => file)).toEqual(['recording-only.yaml', 'proxies.yaml', 'platform.yaml']);
  });

  it.each(reports)('shows what migrate check prints for $file', async ({ file, report, code }) => {
    const shown = await runCommand('migrate', 'check', '--objects', path(`test/migration/${file}`));
    expect({ out: shown.out, code: shown.code }).toEqual({ out: report, code });
  });
});

describe('docs/migration.md', () => {
  const migration = readFileSync(path('docs/migration.md'), 'utf8');

  it.each(Object.values(REASONS))('lists the difference of grants: %s', (reason) => {
    expect(migration).toContain(` ${reason}.`);
  });

  it('has the number of compared grants', () => {
    expect(migration).toContain(`results of ${GRANT_CASES.length} grants`);
  });
});
