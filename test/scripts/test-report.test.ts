/** Closing lines that CI prints for reports of the installed vitest. */
import { execFile } from 'node:child_process';
import { mkdir, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';
import { readTestReport } from '../../scripts/test-report.mjs';

const MODULES = fileURLToPath(new URL('../../node_modules', import.meta.url));
const TESTS = `
import { it, expect } from 'vitest';
let tries = 0;
it('passes', () => expect(1).toBe(1));
it('passes the second time', () => { tries += 1; expect(tries, 'too early').toBe(2); });
it('never passes', () => expect(1, 'not even once').toBe(2));
it.fails('fails as it should', () => expect(1).toBe(2));
it.skip('is left out', () => {});
`;

it('counts and names what failed and what needed a second try', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'tailcast-report-'));
  try {
    await mkdir(join(folder, 'part'));
    await symlink(MODULES, join(folder, 'node_modules'));
    await writeFile(join(folder, 'part', 'a.test.js'), TESTS);
    await writeFile(join(folder, 'part', 'b.test.js'), 'throw new Error("broken outside its tests");');
    const report = join(folder, 'report.json');
    const args = [join(MODULES, 'vitest', 'vitest.mjs'), 'run', '--root', folder, '--retry', '1'];
    const ended = await new Promise((resolve) =>
      execFile(
        process.execPath,
        [...args, '--reporter=json', `--outputFile.json=${report}`],
        { cwd: folder },
        (error) => resolve(error?.code ?? 0),
      ),
    );
    expect(ended).toBe(1);
    expect(readTestReport(JSON.parse(await readFile(report, 'utf8')))).toEqual({
      passed: 3,
      failed: 2,
      skipped: 1,
      failures: [
        expect.stringMatching(/^failed: part\/a\.test\.js: never passes: .*not even once/),
        expect.stringMatching(/^failed: part\/b\.test\.js: .*broken outside its tests/),
      ] as unknown[],
      flaky: [
        expect.stringMatching(/^flaky: part\/a\.test\.js: passes the second time: .*too early/) as unknown,
      ],
    });
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
});
