import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import { describe, expect, it } from 'vitest';
import { shortId } from '../../src/cli/archive.ts';
import { runProgram } from '../../src/cli/program.ts';
import { createRig, HEADER, uploadWhole } from '../tsrecorder/recorder-rig.ts';

async function run(...args: string[]): Promise<{ code: number; stdout: string; stderr: string }> {
  const written = { stdout: '', stderr: '' };
  const stream = (name: 'stdout' | 'stderr'): PassThrough =>
    new PassThrough().on('data', (chunk: Buffer) => {
      written[name] += String(chunk);
    });
  const context = {
    stdout: stream('stdout'),
    stderr: stream('stderr'),
    environment: new Map<string, string>(),
    signal: new AbortController().signal,
  };
  const code = await runProgram(['retention', ...args], context);
  for (const end of [context.stdout, context.stderr]) await once(end.end(), 'end');
  return { code, ...written };
}

const keyOf = ({ directory }: { readonly directory: string }): string =>
  `${directory}.spool/evidence/key.pem`;

describe('tailcast retention', () => {
  it('shows the plan, holds and releases, and removes nothing', async () => {
    await using rig = await createRig();
    for (const command of ['one', 'two']) await uploadWhole(rig.recorder, HEADER.replace('sh -i', command));
    const [, oldest] = await rig.list();
    const keyed = ['--evidence-key', keyOf(rig)];
    expect((await run(rig.directory)).stdout).toMatch(/^0 would be removed, 0 held, /);
    const plan = await run(rig.directory, '--max-bytes', '1', '--min-age-days', '0');
    expect(plan.stdout).toMatch(/2 would be removed, 0 held, 0 B kept\n$/);
    expect(plan.stdout.split('\n')[1]).toContain(oldest!.id);
    const held = await run(
      rig.directory,
      '--max-bytes',
      '1',
      '--min-age-days',
      '0',
      '--hold',
      oldest!.id,
      '--reason',
      'case 17',
      '--evidence-key',
      keyOf(rig),
    );
    expect(held.stdout).toMatch(
      /1 would be removed, 1 held, .* held and young recordings exceed the limit, so recorders refuse sessions\n$/,
    );
    const json = JSON.parse(
      (await run(rig.directory, '--max-bytes', '1', '--min-age-days', '0', '--json')).stdout,
    );
    expect(json).toMatchObject({
      held: [{ id: oldest!.id, reason: 'quota', hold: 'unproven' }],
      overQuota: true,
    });
    const plain = await run(rig.directory, '--max-bytes', '1', '--min-age-days', '0');
    expect(plain.stdout).toMatch(new RegExp(`^held \\(unproven\\) .*${oldest!.id}$`, 'm'));
    expect(
      (await run(rig.directory, '--max-bytes', '1', '--min-age-days', '0', ...keyed, '--release', oldest!.id))
        .stdout,
    ).toMatch(/2 would be/);
    const young = await run(rig.directory, '--max-bytes', '1');
    expect(young.stdout).toMatch(
      /^0 would be removed, 0 held, .* exceed the limit, so recorders refuse sessions\n$/,
    );
    expect(await rig.list()).toHaveLength(2);
  });

  it('holds and releases the latest recording, and one by its short id', async () => {
    await using rig = await createRig();
    for (const command of ['one', 'two']) await uploadWhole(rig.recorder, HEADER.replace('sh -i', command));
    const [newest] = await rig.list();
    const held = await run(
      rig.directory,
      '--max-bytes',
      '1',
      '--min-age-days',
      '0',
      '--hold',
      'latest',
      '--reason',
      'case 17',
      '--evidence-key',
      keyOf(rig),
    );
    expect(held).toMatchObject({ code: 0, stderr: '' });
    expect(held.stdout).toMatch(new RegExp(`^hold set: ${newest!.id}\n`));
    expect(held.stdout).toMatch(new RegExp(`^held .*${newest!.id}$`, 'm'));
    const released = await run(
      rig.directory,
      '--max-bytes',
      '1',
      '--min-age-days',
      '0',
      '--release',
      shortId(newest!.id),
      '--evidence-key',
      keyOf(rig),
    );
    expect(released).toMatchObject({
      code: 0,
      stdout: expect.stringMatching(
        new RegExp(`^hold released: ${newest!.id}\n[\\s\\S]*2 would be removed, 0 held`),
      ),
    });
    const change = ['--hold', 'latest', '--reason', 'x', '--evidence-key'];
    const missing = join(rig.directory, 'none.pem');
    expect(await run(rig.directory, ...change, missing)).toMatchObject({
      code: 2,
      stderr: expect.stringContaining(
        `the evidence key ${missing} cannot be used: there is no such file or folder`,
      ),
    });
    const wrong = join(rig.directory, 'wrong.pem');
    await writeFile(wrong, '-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n');
    expect((await run(rig.directory, ...change, wrong)).stderr).toContain(
      `the evidence key ${wrong} cannot be used: it is not an Ed25519 private key in PEM (PKCS#8)`,
    );
    expect(
      await run(rig.directory, '--evidence-key', keyOf(rig), '--hold', 'nobody', '--reason', 'x'),
    ).toMatchObject({ code: 1 });
  });

  it('says what is wrong with its arguments', async () => {
    await using rig = await createRig();
    await uploadWhole(rig.recorder, HEADER);
    const [recording] = await rig.list();
    expect(await run('/dev/null/recordings')).toMatchObject({ code: 2 });
    expect(await run(rig.directory, '--evidence-key', keyOf(rig), '--hold', recording!.id)).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('--reason'),
    });
    const unknown = 'nX_2026-07-29T11:50:58Z';
    const keyed = ['--evidence-key', keyOf(rig)];
    expect(await run(rig.directory, ...keyed, '--hold', unknown, '--reason', 'x')).toMatchObject({ code: 1 });
    for (const change of ['--hold', '--release'])
      expect(await run(rig.directory, change, recording!.id, '--reason', 'x')).toMatchObject({
        code: 2,
        stderr: expect.stringContaining('--evidence-key'),
      });
    const absent = ['--evidence-key', `${rig.directory}/none.pem`];
    expect(await run(rig.directory, ...absent, '--hold', unknown, '--reason', 'x')).toMatchObject({
      code: 2,
    });
    expect(await run('s3://-')).toMatchObject({ code: 2, stderr: expect.stringContaining('s3://bucket') });
  });
});
