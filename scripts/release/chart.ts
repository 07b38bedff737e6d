/** Creates the archive of the chart, and the index of a chart repository. */
import { cpSync, mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { parse, parseDocument, stringify } from 'yaml';
import { z } from 'zod';
import { type Project, ROOT } from './project.ts';
import { sha256, tarGz } from './tree.ts';

const CHART = join(ROOT, 'deploy', 'chart', 'tailcast');
const CHART_FILE = z.looseObject({ name: z.string(), version: z.string(), description: z.string() });

/** Packs the chart with the version of the release, and returns the path of the archive. */
export function packChart(project: Project, output: string, scratch: string): string {
  const folder = mkdtempSync(join(scratch, 'chart-'));
  const chart = join(folder, 'tailcast');
  // In the repository, the chart contains links to CRDs, dashboard and alerts. The archive must contain the files
  // themselves.
  cpSync(CHART, chart, { recursive: true, dereference: true });
  const document = parseDocument(readFileSync(join(chart, 'Chart.yaml'), 'utf8'));
  document.set('version', project.version);
  document.set('appVersion', project.version);
  writeFileSync(join(chart, 'Chart.yaml'), document.toString());
  const made = tarGz(folder, join(folder, 'chart.tar'), project.epoch, ['tailcast']);
  mkdirSync(output, { recursive: true });
  const file = join(output, `tailcast-chart-${project.version}.tgz`);
  renameSync(made, file);
  rmSync(folder, { recursive: true });
  return file;
}

/** Returns the index for `helm repo add` that lists an archive of `packChart`. */
export function chartIndex(project: Project, archive: string): string {
  const chart = CHART_FILE.parse(parse(readFileSync(join(CHART, 'Chart.yaml'), 'utf8')));
  const created = new Date(project.epoch * 1000).toISOString();
  const entry = {
    ...chart,
    version: project.version,
    appVersion: project.version,
    created,
    digest: sha256(archive),
    urls: [`${project.base}/tailcast-chart-${project.version}.tgz`],
  };
  return stringify({ apiVersion: 'v1', entries: { tailcast: [entry] }, generated: created });
}
