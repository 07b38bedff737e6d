/** The dashboard and the alerts use only metrics that exist, and every metric that exists is used. */
import { readFileSync } from 'node:fs';
import { Registry, collectDefaultMetrics } from 'prom-client';
import { describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { ERROR_TABLE } from '../../src/errors.ts';
import { createMetrics } from '../../src/observe/metrics.ts';
import { createAlertMetrics } from '../../src/tsrecorder/search/alerts/alert-metrics.ts';
import { createSearchMetrics } from '../../src/tsrecorder/search/search-metrics.ts';
import { createRecorderMetrics } from '../../src/tsrecorder/intake/recorder-metrics.ts';
import { spoolStatus } from '../../src/tsrecorder/intake/spool-status.ts';

const FOLDER = new URL('../../deploy/monitoring/', import.meta.url);
const read = (name: string): string => readFileSync(new URL(name, FOLDER), 'utf8');

interface Rule {
  readonly alert: string;
  readonly expr: string;
  readonly labels?: Readonly<Record<string, string>>;
  readonly annotations?: Readonly<Record<string, string>>;
}

interface Panel {
  readonly id: number;
  readonly type: string;
  readonly title: string;
  readonly gridPos: { readonly x: number; readonly y: number; readonly w: number; readonly h: number };
  readonly targets?: readonly { readonly expr: string; readonly legendFormat: string }[];
}

const groups = (parse(read('alerts.yaml')) as { groups: { name: string; rules: Rule[] }[] }).groups;
const rules = groups.flatMap((group) => group.rules);
const dashboard = JSON.parse(read('dashboard.json')) as {
  panels: Panel[];
  templating: { list: { name: string; definition?: string }[] };
};
const targets = dashboard.panels.flatMap(({ title, targets: found = [] }) =>
  found.map(({ expr, legendFormat }) => ({ where: title, expr, legendFormat })),
);
const expressions = [...rules.map(({ alert, expr }) => ({ where: alert, expr })), ...targets];

/** Labels of every series, by its name. */
async function measured(): Promise<{
  readonly labels: ReadonlyMap<string, Set<string>>;
  readonly text: string;
}> {
  const gateway = createMetrics().registry;
  const recorder = new Registry();
  createRecorderMetrics(recorder, () => ({
    ...spoolStatus([], 0, 0),
    waitingBytes: 0,
    unpublishedEntries: 0,
  }));
  createSearchMetrics(recorder);
  createAlertMetrics(recorder, () => ({ waiting: 0, oldestSeconds: 0, slowRules: 0 }));
  const own = new Registry();
  collectDefaultMetrics({ register: own });
  const labels = new Map<string, Set<string>>();
  for (const registry of [gateway, recorder, own]) {
    for (const metric of registry.getMetricsAsArray()) {
      // prom-client's types omit the configuration of a metric
      const { labelNames = [] } = metric as { labelNames?: readonly string[] };
      const names = new Set([...labelNames, 'instance']);
      const { type } = (await registry.getMetricsAsJSON()).find(({ name }) => name === metric.name) ?? {};
      if (String(type) === 'histogram') {
        for (const suffix of ['sum', 'count']) labels.set(`${metric.name}_${suffix}`, names);
        labels.set(`${metric.name}_bucket`, new Set([...names, 'le']));
      } else labels.set(metric.name, names);
    }
  }
  own.clear();
  return { labels, text: `${await gateway.metrics()}\n${await recorder.metrics()}` };
}

/** Returns every series that a PromQL expression names, with the label matchers in its braces. */
function seriesOf(expr: string): readonly { readonly name: string; readonly matchers: string }[] {
  return [...expr.matchAll(/\b((?:tailcast|process|nodejs)_\w+)(?:\{([^}]*)\})?/g)].map(
    ([, name = '', matchers = '']) => ({ name, matchers }),
  );
}

function matchersOf(text: string): readonly { readonly label: string; readonly value: string }[] {
  return [...text.matchAll(/(\w+)=~?"([^"]*)"/g)].map(([, label = '', value = '']) => ({ label, value }));
}

describe('dashboard and alerts', () => {
  it('name only metrics and labels that exist', async () => {
    const { labels } = await measured();
    expect(expressions.length).toBeGreaterThan(60);
    for (const { where, expr } of expressions) {
      const series = seriesOf(expr);
      expect(series.length, where).toBeGreaterThan(0);
      for (const { name, matchers } of series) {
        const known = labels.get(name);
        expect(known, `${where}: ${name}`).toBeDefined();
        for (const { label } of matchersOf(matchers))
          expect([...known!], `${where}: ${name}`).toContain(label);
      }
      const grouped = [...expr.matchAll(/\bby \(([^)]*)\)/g)].flatMap(([, list = '']) => list.split(/,\s*/));
      const all = new Set(series.flatMap(({ name }) => [...labels.get(name)!]));
      for (const label of grouped) expect([...all], `${where}: by (${label})`).toContain(label);
    }
  });

  it('ask for codes that exist', () => {
    const values = expressions.flatMap(({ expr }) =>
      matchersOf(expr).filter(({ label }) => label === 'code'),
    );
    expect(values.length).toBeGreaterThan(3);
    for (const alternative of values.flatMap(({ value }) => value.split('|'))) {
      const pattern = new RegExp(`^(?:${alternative})$`);
      expect(
        Object.keys(ERROR_TABLE).some((code) => pattern.test(code)),
        alternative,
      ).toBe(true);
    }
  });

  it('close every parenthesis', () => {
    for (const { where, expr } of expressions) {
      const count = (character: string): number => expr.split(character).length - 1;
      for (const [open, close] of ['()', '{}', '[]']) expect(count(open!), where).toBe(count(close!));
    }
  });
});

describe('the dashboard', () => {
  it('shows every metric of gateway and recorder', async () => {
    const shown = new Set(
      targets.flatMap(({ expr }) =>
        seriesOf(expr).map(({ name }) => name.replace(/_(bucket|sum|count)$/, '')),
      ),
    );
    const all = [...(await measured()).labels.keys()]
      .filter((name) => name.startsWith('tailcast_') && !/_(sum|count)$|_(alerts?|rules?)_/.test(name))
      .map((name) => name.replace(/_bucket$/, ''));
    expect(all.length).toBeGreaterThan(30);
    expect(all.filter((name) => !shown.has(name))).toEqual([]);
  });

  it('says what each line is, and has no two panels in one place', () => {
    const ids = dashboard.panels.map(({ id }) => id);
    expect(new Set(ids).size).toBe(ids.length);
    for (const { where, legendFormat } of targets) expect(legendFormat, where).not.toBe('');
    const cells = dashboard.panels.flatMap(({ gridPos: { x, y, w, h } }) =>
      Array.from({ length: w * h }, (_, index) => `${x + (index % w)},${y + Math.floor(index / w)}`),
    );
    expect(new Set(cells).size).toBe(cells.length);
  });

  it('uses only variables that it has', () => {
    const known = new Set(['__rate_interval', ...dashboard.templating.list.map(({ name }) => name)]);
    const used = [...read('dashboard.json').matchAll(/\$\{?(\w+)\}?/g)].map(([, name = '']) => name);
    expect(used.filter((name) => !known.has(name) && name !== '__all')).toEqual([]);
  });
});

describe('the alerts', () => {
  it('have names of their own, a severity and a sentence', () => {
    expect(new Set(rules.map(({ alert }) => alert)).size).toBe(rules.length);
    for (const { alert, labels, annotations } of rules) {
      expect(['critical', 'warning'], alert).toContain(labels?.['severity']);
      expect(annotations?.['summary'], alert).toMatch(/^[A-Z].*\.$/);
    }
  });

  it('are all explained in docs/operate.md, and no others', () => {
    const page = readFileSync(new URL('../../docs/operate.md', import.meta.url), 'utf8');
    const explained = [...page.matchAll(/^- `(Tailcast\w+)`: /gm)].map(([, name]) => name);
    expect(explained).toEqual(rules.map(({ alert }) => alert));
  });

  it('look at series that are there before anything happens', async () => {
    // `increase` does not count the first sample of a series, so each series must exist with the value 0 before the
    // first event
    const lines = (await measured()).text.split('\n');
    for (const { alert, expr } of rules) {
      for (const [, name = '', matchers = ''] of expr.matchAll(/increase\((\w+)(?:\{([^}]*)\})?/g)) {
        const series = lines.filter((line) => line.startsWith(`${name} `) || line.startsWith(`${name}{`));
        for (const { label, value } of matchersOf(matchers)) {
          for (const alternative of value.split('|')) {
            const pattern = new RegExp(`${label}="(?:${alternative})"`);
            expect(
              series.some((line) => pattern.test(line)),
              `${alert}: ${alternative}`,
            ).toBe(true);
          }
        }
        expect(series.length, `${alert}: ${name}`).toBeGreaterThan(0);
      }
    }
  });
});
