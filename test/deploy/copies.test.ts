import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { CHART, COPIES, ROOT } from '../real/chart/render.ts';

it.each(COPIES)('the chart’s copy of deploy/%s is what `node test/real/chart/render.ts` makes', (path) => {
  expect(readFileSync(join(CHART, path), 'utf8')).toBe(readFileSync(join(ROOT, 'deploy', path), 'utf8'));
});

it('the chart has the resource of access requests', () => {
  const name = 'accessrequest.yaml';
  expect(readFileSync(join(CHART, 'crds', name), 'utf8')).toBe(
    readFileSync(join(ROOT, 'deploy/access', name), 'utf8'),
  );
});
