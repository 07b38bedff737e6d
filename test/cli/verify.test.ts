import { appendFile, mkdir, mkdtemp, readdir, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import { describe, expect, it } from 'vitest';
import { shortId } from '../../src/cli/archive.ts';
import { runProgram } from '../../src/cli/program.ts';
import { generateSigningKey, parsePublicKey } from '../../src/tsrecorder/evidence/signing-key.ts';
import { createRig, HEADER, openUpload, until, uploadWhole } from '../tsrecorder/recorder-rig.ts';

function textOf(stream: PassThrough): string {
  let text = '';
  for (let chunk: Buffer | null; (chunk = stream.read() as Buffer | null) !== null;) text += chunk.toString();
  return text;
}

async function run(...args: string[]): Promise<{ code: number; stdout: string; stderr: string }> {
  const stdout = new PassThrough();
  const stderr = new PassThrough();
  const environment = new Map<string, string>();
  const code = await runProgram(args, { stdout, stderr, environment, signal: new AbortController().signal });
  return { code, stdout: textOf(stdout), stderr: textOf(stderr) };
}

async function keyFile(directory: string): Promise<string> {
  const folder = join(directory, '.evidence', 'keys');
  return join(folder, (await readdir(folder))[0]!);
}

describe('tailcast verify', () => {
  it.each([
    ['a directory', mkdir],
    ['a symbolic link', (path: string) => symlink('/nowhere', path)],
  ])('reports a recording as missing if %s replaced its cast', async (_, replace) => {
    await using rig = await createRig();
    await uploadWhole(rig.recorder, `${HEADER}[1,"o","x"]\n`);
    await uploadWhole(rig.recorder, `${HEADER}[1,"o","y"]\n`);
    const [victim] = await rig.list();
    await rig.recorder.close();
    const cast = join(rig.directory, victim!.key);
    await rm(cast);
    await replace(cast);
    const sidecar = cast.replace(/cast$/, 'json');
    await writeFile(sidecar, (await readFile(sidecar, 'utf8')).replace(/("bodyBytes":\s*)\d+/, '$11'));
    const { code, stdout } = await run('verify', rig.directory, '--key', await keyFile(rig.directory));
    expect(code).toBe(1);
    expect(stdout).toContain('FAULT  recording-missing: ');
    expect(stdout).toContain('FAULT  sidecar-changed: ');
    expect(stdout).toContain('1 recordings with evidence, 0 without, ');
  });

  it('says by text and exit code what it found', async () => {
    await using rig = await createRig();
    const scratch = await mkdtemp(join(tmpdir(), 'tailcast-verify-'));
    await uploadWhole(rig.recorder, `${HEADER}[1,"o","x"]\n`);
    const [recording] = await rig.list();
    await rig.recorder.close();
    const named = ['--key', await keyFile(rig.directory)];
    const checkpoint = join(scratch, 'checkpoint.json');
    const good = await run('verify', rig.directory, ...named, '--save-checkpoint', checkpoint);
    expect(good).toEqual({
      code: 0,
      stdout: '1 recordings with evidence, 0 without, 0 removed, 0 not finished, no faults\n',
      stderr: '',
    });
    expect(JSON.parse(await readFile(checkpoint, 'utf8')).heads).toHaveLength(1);
    await appendFile(join(rig.directory, recording!.key), '[2,"o","forged"]\n');
    const bad = await run('verify', rig.directory, ...named, '--checkpoint', checkpoint);
    expect(bad.code).toBe(1);
    expect(bad.stdout).toMatch(/^FAULT {2}cast-changed: the cast differs from the signed digest \[.*\]$/m);
    expect((await run('verify', rig.directory, '--checkpoint', checkpoint)).code).toBe(1);
    const json = JSON.parse((await run('verify', rig.directory, '--json')).stdout);
    expect(json.findings).toContainEqual(
      expect.objectContaining({ code: 'cast-changed', recording: recording!.id }),
    );
    await rm(join(rig.directory, '.evidence'), { recursive: true });
    const gone = await run('verify', rig.directory, '--checkpoint', checkpoint);
    expect(gone.code).toBe(1);
    expect(gone.stdout).toMatch(/^FAULT {2}log-rolled-back: .*the log is missing/m);
    await rm(scratch, { recursive: true });
  });

  it('reports recordings by their ids, by latest, and by short ids', async () => {
    await using rig = await createRig();
    for (const command of ['one', 'two'])
      await uploadWhole(rig.recorder, `${HEADER.replace('sh -i', command)}[1,"o","x"]\n`);
    const [newest, oldest] = await rig.list();
    await rig.recorder.close();
    const named = ['--key', await keyFile(rig.directory)];
    await appendFile(join(rig.directory, oldest!.key), '[2,"o","forged"]\n');
    for (const id of ['latest', newest!.id, shortId(newest!.id)])
      expect(await run('verify', rig.directory, id, ...named)).toEqual({
        code: 0,
        stdout: `${newest!.id}: verified\n`,
        stderr: '',
      });
    const bad = await run('verify', oldest!.id, rig.directory, ...named);
    expect(bad).toMatchObject({
      code: 1,
      stdout: expect.stringMatching(/^FAULT {2}cast-changed[^]*: failed\n$/),
    });
    const json = JSON.parse((await run('verify', 'latest', rig.directory, '--json', ...named)).stdout);
    expect(json).toEqual({ verdict: 'verified', ok: true, recordings: [newest!.id], findings: [] });
    expect((await run('verify', 'latest', rig.directory)).code).toBe(3);
    expect((await run('verify', 'nobody', rig.directory)).code).toBe(1);
    expect(await run('verify', 'latest')).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('no store is named'),
    });
  });

  it('checks every part of the session of a recording', async () => {
    await using rig = await createRig({ timing: { listRefreshMs: 0, publishMs: 20, resumeGraceMs: 100 } });
    const session = { 'tailcast-session': 'one' };
    const body = `${HEADER}[1,"o","first"]\n`;
    const first = openUpload(rig.recorder, session);
    first.stream.on('error', () => undefined);
    first.write(body);
    await first.headers;
    await first.ack(({ ack }) => ack === body.length);
    first.close();
    await until(async () =>
      (await rig.list()).some(({ state, trust }) => state === 'interrupted' && trust !== undefined)
        ? true
        : undefined,
    );
    const second = openUpload(rig.recorder, {
      ...session,
      'tailcast-offset': String(body.length),
      'tailcast-part': '2',
      'tailcast-preamble': String(HEADER.length),
    });
    second.stream.on('error', () => undefined);
    second.write(`${HEADER}[2,"o","rm -rf /data"]\n`);
    await second.headers;
    second.end();
    await second.over;
    await uploadWhole(rig.recorder, `${HEADER}[1,"o","another session"]\n`);
    const [other, one] = await until(async () => {
      const listed = await rig.list();
      return listed.length === 2 && listed.every(({ trust }) => trust === 'verified') ? listed : undefined;
    });
    await rig.recorder.close();
    const named = ['--key', await keyFile(rig.directory)];
    const verify = (id: string) => run('verify', rig.directory, id, ...named);
    expect(await verify(one!.id)).toMatchObject({ code: 0, stdout: `${one!.id}: verified\n` });

    const casts = (await readdir(rig.directory, { recursive: true })).filter((name) =>
      name.endsWith('.cast'),
    );
    const texts = await Promise.all(casts.map((name) => readFile(join(rig.directory, name), 'utf8')));
    const at = texts.findIndex((text) => text.includes('rm -rf /data'));
    const cast = join(rig.directory, casts[at]!);
    const later = casts[at]!.replace('/', '_').replace('.cast', '');
    expect(later).not.toBe(one!.id);
    await writeFile(cast, texts[at]!.replace('rm -rf /data', 'echo hello!!'));
    const changed = await verify(one!.id);
    expect(changed).toMatchObject({ code: 1, stdout: expect.stringMatching(/^FAULT {2}cast-changed/) });
    expect(changed.stdout).toContain(later);
    expect(changed.stdout).toContain(`${one!.id}: failed\n`);
    expect((await verify(other!.id)).stdout).toBe(`${other!.id}: verified\n`);

    await writeFile(cast, texts[at]!);
    const sidecar = cast.replace(/cast$/, 'json');
    const description = await readFile(sidecar, 'utf8');
    await writeFile(
      sidecar,
      description.replace('"session": "one"', '"session": "two"').replace('"one"', '"two"'),
    );
    const moved = await verify(one!.id);
    expect(moved).toMatchObject({ code: 1, stdout: expect.stringContaining(`[${later}`) });
    expect(moved.stdout).toMatch(/^FAULT {2}sidecar-changed: [^]*: failed\n$/);

    await rm(sidecar);
    const alone = await verify(one!.id);
    expect(alone).toMatchObject({ code: 1, stdout: expect.stringContaining(`[${later}`) });
    expect(alone.stdout).toMatch(/^FAULT {2}sidecar-missing: [^]*: failed\n$/);

    await rm(cast);
    const deleted = await verify(one!.id);
    expect(deleted).toMatchObject({ code: 1, stdout: expect.stringContaining(`[${later};`) });
    expect(deleted.stdout).toMatch(/^FAULT {2}recording-missing: [^]*: failed\n$/);
    expect((await verify(other!.id)).stdout).toBe(`${other!.id}: verified\n`);
  });

  it('vouches for nothing without keys, or with those of others', async () => {
    await using rig = await createRig();
    const scratch = await mkdtemp(join(tmpdir(), 'tailcast-verify-'));
    await uploadWhole(rig.recorder, `${HEADER}[1,"o","x"]\n`);
    await rig.recorder.close();
    const checkpoint = join(scratch, 'checkpoint.json');
    const unnamed = await run('verify', rig.directory, '--save-checkpoint', checkpoint);
    expect(unnamed.code).toBe(3);
    expect(unnamed.stdout).toMatch(/, unverified: /);
    expect(unnamed.stdout).not.toMatch(/no faults/);
    expect(unnamed.stderr).toMatch(/no checkpoint was saved/);
    expect(await readdir(scratch)).toEqual([]);
    const { public: stranger } = generateSigningKey();
    expect((await run('verify', rig.directory, '--key', stranger.raw)).code).toBe(1);
    const several = join(scratch, 'recorders.pem');
    await writeFile(several, `${stranger.pem}\n${await readFile(await keyFile(rig.directory), 'utf8')}`);
    expect((await run('verify', rig.directory, '--key', several)).code).toBe(0);
    await writeFile(several, '');
    expect((await run('verify', rig.directory, '--key', several)).code).toBe(2);
    await rm(scratch, { recursive: true });
  });

  it('tells a recording without evidence from a verified one, and makes it a fault on request', async () => {
    await using rig = await createRig();
    await uploadWhole(rig.recorder, `${HEADER}[1,"o","x"]\n`);
    await rig.recorder.close();
    const named = ['--key', await keyFile(rig.directory)];
    await writeFile(
      join(rig.directory, 'nGATE1CNTRL', '2020-01-01T00:00:00Z.cast'),
      `${HEADER}[1,"o","x"]\n`,
    );
    const lenient = await run('verify', rig.directory, ...named);
    expect(lenient).toMatchObject({ code: 0, stdout: expect.stringMatching(/recordings with evidence\n$/) });
    const strict = await run('verify', rig.directory, ...named, '--require-evidence');
    expect(strict).toMatchObject({ code: 1, stdout: expect.stringMatching(/^FAULT {2}no-evidence: /) });
    // after all evidence is removed, the public key is useless, because there is no evidence log
    const { raw } = parsePublicKey(await readFile(named[1]!, 'utf8'))!;
    await rm(join(rig.directory, '.evidence'), { recursive: true });
    const json = (await readdir(join(rig.directory, 'nGATE1CNTRL'))).find((name) => name.endsWith('.json'))!;
    await rm(join(rig.directory, 'nGATE1CNTRL', json));
    expect((await run('verify', rig.directory, '--key', raw)).code).toBe(3);
    expect((await run('verify', '--key', raw, rig.directory)).code).toBe(3);
    expect((await run('verify', rig.directory, '--key', raw, '--require-evidence')).code).toBe(1);
  });

  it('does not take what is no store, key or checkpoint', async () => {
    const directory = await mkdtemp(join(tmpdir(), 'tailcast-verify-'));
    expect((await run('verify', join(directory, 'none'))).code).toBe(2);
    expect((await run('verify', directory, '--key', 'short')).code).toBe(2);
    expect((await run('verify', directory, '--checkpoint', join(directory, 'none'))).code).toBe(2);
    // the store contains nothing to compare
    expect(await run('verify', directory)).toMatchObject({
      code: 3,
      stdout: expect.stringMatching(/unverified: name the keys of the recorders/),
    });
    await rm(directory, { recursive: true });
  });
});
