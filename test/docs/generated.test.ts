import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { ERROR_TABLE } from '../../src/errors.ts';
import { GATEWAY_SETTINGS } from '../../src/config/gateway.ts';
import { OPERATOR_SETTINGS } from '../../src/config/operator.ts';
import { RECORDER_SETTINGS } from '../../src/config/recorder.ts';
import { ERROR_ADVICE } from '../../src/cli/error-advice.ts';
import { generateDocs } from '../../scripts/generate-docs.ts';
import { SETTING_GROUPS } from '../../scripts/setting-groups.ts';

const ROLES = {
  gateway: GATEWAY_SETTINGS,
  recorder: RECORDER_SETTINGS,
  operator: OPERATOR_SETTINGS,
};

const root = new URL('../../', import.meta.url);

describe('the generated pages', () => {
  const pages = generateDocs();

  it.each([...pages.keys()])('%s is what npm run docs:generate writes', (path) => {
    expect(readFileSync(new URL(path, root), 'utf8')).toBe(pages.get(path));
  });

  it('name every error with advice (src/cli/error-advice.ts)', () => {
    expect(Object.keys(ERROR_ADVICE).toSorted()).toEqual(Object.keys(ERROR_TABLE).toSorted());
    for (const code of Object.keys(ERROR_TABLE)) expect(pages.get('docs/errors.md')).toContain(`\`${code}\``);
  });

  it('name every setting', () => {
    expect(Object.keys(GATEWAY_SETTINGS).length).toBeGreaterThan(10);
    expect(pages.get('docs/config.md')).toContain('`--proxy-protocol <off|require>`');
    expect(pages.get('docs/config.md')).toContain('`127.0.0.1:8443`');
  });

  it.each(Object.entries(ROLES))('have every setting of the %s in one group', (role, table) => {
    const keys = Object.values(SETTING_GROUPS[role] ?? {}).flat();
    expect(keys.toSorted()).toEqual(Object.keys(table).toSorted());
  });
});
