import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { ERROR_TABLE } from '../../src/errors.ts';
import { GATEWAY_SETTINGS } from '../../src/config/gateway.ts';
import { OPERATOR_SETTINGS } from '../../src/config/operator.ts';
import { DEMO_SETTINGS } from '../../src/config/demo.ts';
import { FORWARDER_SETTINGS } from '../../src/config/forwarder.ts';
import { INGRESS_SETTINGS } from '../../src/config/ingress.ts';
import { NAMESERVER_SETTINGS } from '../../src/config/nameserver.ts';
import { RECORDER_SETTINGS } from '../../src/config/recorder.ts';
import { byTopic, shownDefault } from '../../src/config/topics.ts';
import { ERROR_ADVICE } from '../../src/cli/error-advice.ts';
import { generateDocs } from '../../scripts/generate-docs.ts';

const ROLES = {
  gateway: GATEWAY_SETTINGS,
  recorder: RECORDER_SETTINGS,
  operator: OPERATOR_SETTINGS,
  nameserver: NAMESERVER_SETTINGS,
  forwarder: FORWARDER_SETTINGS,
  ingress: INGRESS_SETTINGS,
  demo: DEMO_SETTINGS,
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
    expect(pages.get('docs/config.md')).toContain('`--proxy-protocol <off|require|host:port>`');
    expect(pages.get('docs/config.md')).toContain('`127.0.0.1:8443`');
  });

  it.each(Object.entries(ROLES))('list each setting of the %s under one topic', (_role, table) => {
    const listed = byTopic(table).flatMap(({ entries }) => entries.map(([key]) => key));
    expect(listed.toSorted()).toEqual(Object.keys(table).toSorted());
  });

  it('show sizes and times with their unit', () => {
    const { recorderWindow, drainSeconds } = GATEWAY_SETTINGS;
    expect(shownDefault('recorderWindow', recorderWindow)).toBe('8MiB');
    expect(shownDefault('drainSeconds', drainSeconds)).toBe('30 s');
    expect(shownDefault('maxStoreBytes', RECORDER_SETTINGS.maxStoreBytes)).toBe('0');
  });
});
