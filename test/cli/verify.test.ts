import { appendFile, mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import { describe, expect, it } from 'vitest';
import { runProgram } from '../../src/cli/program.ts';
import { createRig, HEADER, uploadWhole } from '../tsrecorder/recorder-rig.ts';

async function run(...args: string[]): Promise<{ code: number; stdout: string; stderr: string }> {
  const stdout = new PassThrough();
  const stderr = new PassThrough();
  const environment = new Map<string, string>();
  const code = await runProgram(args, { stdout, stderr, environment, signal: new AbortController().signal });
  return { code, stdout: String(stdout.read() ?? ''), stderr: String(stderr.read() ?? '') };
}

describe('tailcast verify', () => {
  it('says by text and exit code what it found', async () => {
    await using rig = await createRig();
    const scratch = await mkdtemp(join(tmpdir(), 'tailcast-verify-'));
    await uploadWhole(rig.recorder, `${HEADER}[1,"o","x"]\n`);
    const [recording] = await rig.list();
    await rig.recorder.close();
    const [key] = await readdir(join(rig.directory, '.evidence', 'keys'));
    const named = ['--key', join(rig.directory, '.evidence', 'keys', key!)];
    const checkpoint = join(scratch, 'checkpoint.json');
    const good = await run('verify', rig.directory, ...named, '--save-checkpoint', checkpoint);
    expect(good).toEqual({
      code: 0,
      stdout: '1 recordings with evidence, 0 without, 0 removed, 0 not finished, nothing is at fault\n',
      stderr: '',
    });
    expect(JSON.parse(await readFile(checkpoint, 'utf8')).heads).toHaveLength(1);
    await appendFile(join(rig.directory, recording!.key), '[2,"o","forged"]\n');
    const bad = await run('verify', rig.directory, ...named, '--checkpoint', checkpoint);
    expect(bad.code).toBe(1);
    expect(bad.stdout).toMatch(/^FAULT {2}cast-changed: .*; it is 17 bytes longer than it was \[.*\]$/m);
    const json = JSON.parse((await run('verify', rig.directory, '--json')).stdout);
    expect(json.findings).toContainEqual(
      expect.objectContaining({ code: 'cast-changed', recording: recording!.id }),
    );
    await rm(join(rig.directory, '.evidence'), { recursive: true });
    const gone = await run('verify', rig.directory, '--checkpoint', checkpoint);
    expect(gone).toMatchObject({
      code: 1,
      stdout: expect.stringMatching(/^FAULT {2}log-rolled-back: .*it is gone/m),
    });
    await rm(scratch, { recursive: true });
  });

  it('does not take what is no store, key or checkpoint', async () => {
    const directory = await mkdtemp(join(tmpdir(), 'tailcast-verify-'));
    expect((await run('verify', join(directory, 'none'))).code).toBe(2);
    expect((await run('verify', directory, '--key', 'short')).code).toBe(2);
    expect((await run('verify', directory, '--checkpoint', join(directory, 'none'))).code).toBe(2);
    expect((await run('verify', directory)).code).toBe(0);
    await rm(directory, { recursive: true });
  });
});
