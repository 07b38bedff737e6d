/** All mistakes in the settings of a role are reported in one run, with exit code 2. */
import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { runCommand } from '../support/run-command.ts';

const folder = mkdtempSync(join(tmpdir(), 'tailcast-mistakes-'));
const missing = join(folder, 'none');
const broken = join(folder, 'broken.yaml');
writeFileSync(broken, 'listen: [1\n');

describe.each([['run'], ['doctor']])('%s', (how) => {
  const run = (role: string, ...args: string[]) =>
    runCommand(...(how === 'doctor' ? ['doctor'] : []), role, ...args);

  it('a gateway reports wrong values, missing files and settings that need each other', async () => {
    const { code, out, err } = await run(
      'gateway',
      '--drain-seconds=-1',
      `--kubeconfig=${missing}`,
      `--policy=${folder}`,
      '--tls=files',
      `--tls-cert=${missing}`,
      '--identity=static',
      '--listen=0.0.0.0:8443',
      '--access-review=true',
      '--mode=noauth',
      '--portal-recorders=nonsense',
      `--config=${broken}`,
    );
    expect([code, out]).toEqual([2, '']);
    expect(err.split('\n').map((line) => line.trim().split(':')[0])).toEqual([
      'tailcast',
      broken,
      '--drain-seconds',
      'kubeconfig',
      'tlsCert',
      'policy',
      'tls=files needs both tlsCert and tlsKey',
      'identity=static needs staticIdentity',
      expect.stringMatching(/^a static identity applies to every client/),
      'accessReview needs mode=auth',
      'portalRecorders',
      expect.stringMatching(/\[CONFIG_INVALID\]$/),
      '',
    ]);
    expect(err).toContain(`kubeconfig: ${missing} cannot be read: there is no such file or folder\n`);
    expect(err).toContain(`policy: ${folder} cannot be read: it is a folder\n`);
    expect(err).toContain(`${broken}: line 2, column 1: the file is not valid YAML\n`);
  });

  it('a recorder reports them as well', async () => {
    const { code, out, err } = await run(
      'recorder',
      '--store=s3://bucket',
      '--s3-retention=1',
      '--s3-checksums=none',
      '--archive=sealed',
      '--viewers=a=b',
      '--identity=loopback',
      '--listen=0.0.0.0:80',
      `--alerts=${missing}`,
      '--search-url=https://search.example',
      '--max-store-bytes=much',
    );
    expect([code, out]).toEqual([2, '']);
    for (const found of [
      /alerts: .* cannot be read/,
      /--max-store-bytes: a size/,
      /spool: a bucket needs/,
      /s3Checksums: object lock/,
      /archive=sealed needs sealKeys/,
      /viewers: b is not/,
      /a static identity|listener must be on/,
      /searchUrl needs search/,
    ])
      expect(err).toMatch(found);
  });
});

describe('run', () => {
  it('a forwarder reports all that is missing', async () => {
    const { code, err } = await runCommand('forwarder');
    expect(code).toBe(2);
    expect(err).toMatch(/target: name[\s\S]*ports: name/);
  });

  it('an operator reports the missing kubeconfig and the missing address of headscale', async () => {
    const { code, err } = await runCommand('operator', '--control=headscale', '--controllers=pods');
    expect(code).toBe(2);
    expect(err).toMatch(
      /--controllers: [\s\S]*kubeconfig: outside a cluster[\s\S]*headscale needs controlUrl/,
    );
  });

  it('a setting that is wrong on its own is not blamed on another', async () => {
    const { err } = await runCommand('gateway', '--tls=file', `--tls-cert=${broken}`);
    expect(err).toContain('--tls: one of');
    expect(err).not.toContain('needs both');
  });
});
