import { execFile } from 'node:child_process';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { describe, expect, it } from 'vitest';
import { buildArchive, type Objects } from './archive.ts';
import { createMutant, createRandom } from './mutants.ts';

const run = promisify(execFile);
const KINDS = [
  'flipInFile',
  'dropLine',
  'flipInLog',
  'dropLogLine',
  'deleteSession',
  'swapSessions',
  'copySession',
  'relinkLog',
] as const;

describe('docs/verify.py', () => {
  it('agrees with ours', async (context) => {
    if (!(await run('python3', ['-c', 'pow(3, -1, 7)']).then(Boolean, () => false))) {
      context.skip('there is no python3 here');
      return;
    }
    const root = await mkdtemp(join(tmpdir(), 'tailcast-python-'));
    const script = fileURLToPath(new URL('../../docs/verify.py', import.meta.url));
    const archive = await buildArchive();
    const keys = archive.keys.map(({ raw }) => raw);
    const verify = async (name: string, objects: Objects, given: readonly string[]): Promise<string> => {
      const store = join(root, name);
      for (const [object, content] of objects) {
        await mkdir(dirname(join(store, object)), { recursive: true });
        await writeFile(join(store, object), content);
      }
      return run('python3', [script, store, ...given]).then(
        ({ stdout }) => stdout,
        (error: { stdout: string; stderr: string }) => `FAILED ${error.stdout}${error.stderr}`,
      );
    };
    expect(await verify('intact', archive.objects, keys)).toBe('no faults\n');
    expect(await verify('intact', archive.objects, [])).toBe('no faults\n');
    expect(await verify('intact', archive.objects, keys.slice(1))).toMatch('is not signed');
    const random = createRandom(5);
    for (const kind of KINDS) {
      const mutant = createMutant(archive, kind, random) ?? createMutant(archive, kind, random)!;
      expect(await verify(kind, mutant.objects, keys), mutant.name).toMatch(/^FAILED/);
    }
    await rm(root, { recursive: true });
  });
});
