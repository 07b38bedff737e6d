import { mkdtemp, mkdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { X509Certificate } from 'node:crypto';
import { beforeEach, describe, expect, it } from 'vitest';
import { certificateCheck, type CertificatePlan } from '../../src/doctor/certificate-check.ts';
import { runChecks, type CheckFinding } from '../../src/doctor/checks.ts';
import { createSilentLogger } from '../../src/observe/logger.ts';
import { openSelfSignedCertificates } from '../../src/tailnet/self-signed.ts';
import { createTestAuthority } from '../support/issued-certificates.ts';

const DAY_MS = 86_400_000;
const NAME = 'gateway.lab.ts.net';
let directory: string;

beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'doctor-certificate-'));
});

async function examine(
  plan: CertificatePlan,
  options: { inDays?: number; nodeName?: string } = {},
): Promise<CheckFinding> {
  const check = certificateCheck({
    plan,
    nodeName: () => Promise.resolve(options.nodeName ?? NAME),
    unixMs: () => Date.now() + (options.inDays ?? 0) * DAY_MS,
  });
  const [finding] = await runChecks([{ ...check, needs: [] }], new AbortController().signal);
  return finding!;
}

async function files(names: readonly string[]): Promise<CertificatePlan> {
  const { keyPem, certificatePem } = await (await createTestAuthority()).issue(names);
  const plan = { certificatePath: join(directory, 'tls.crt'), keyPath: join(directory, 'tls.key') };
  await writeFile(plan.certificatePath, certificatePem);
  await writeFile(plan.keyPath, keyPem);
  return { kind: 'files', ...plan };
}

describe('the certificate check', () => {
  it('names the names and the days that are left', async () => {
    const finding = await examine(await files([NAME, '100.64.0.9']));
    expect(finding).toMatchObject({
      status: 'ok',
      summary: expect.stringMatching(/gateway\.lab\.ts\.net, 100\.64\.0\.9, (89|90) days left/),
    });
  });

  it('fails when it has expired', async () => {
    expect(await examine(await files([NAME]), { inDays: 93 })).toMatchObject({
      status: 'failed',
      summary: expect.stringContaining('expired 3 days ago'),
      remedy: expect.stringContaining('tlsCert'),
    });
  });

  it('warns two weeks before', async () => {
    expect(await examine(await files([NAME]), { inDays: 80 })).toMatchObject({
      status: 'warning',
      remedy: expect.stringContaining('renew it'),
    });
  });

  it('fails when it is not valid yet', async () => {
    expect(await examine(await files([NAME]), { inDays: -30 })).toMatchObject({
      status: 'failed',
      remedy: expect.stringContaining('clock'),
    });
  });

  it('warns when it is not for the name clients use', async () => {
    expect(await examine(await files(['other.example.com']))).toMatchObject({
      status: 'warning',
      summary: expect.stringContaining(`not for ${NAME}`),
      remedy: expect.stringContaining(NAME),
    });
  });

  it('fails when key and certificate do not belong together, or are not there', async () => {
    const plan = await files([NAME]);
    await writeFile(join(directory, 'tls.key'), (await (await createTestAuthority()).issue([NAME])).keyPem);
    expect(await examine(plan)).toMatchObject({
      status: 'failed',
      remedy: expect.stringContaining('tlsKey'),
    });
    await rm(join(directory, 'tls.crt'));
    expect(await examine(plan)).toMatchObject({
      status: 'failed',
      summary: expect.stringContaining('there is no such file or folder'),
    });
  });

  it('reads what the gateway has made for itself', async () => {
    await openSelfSignedCertificates({ directory, names: [NAME], log: createSilentLogger() });
    expect(await examine({ kind: 'self-signed', directory })).toMatchObject({
      status: 'ok',
      summary: expect.stringContaining(NAME),
    });
    expect(await examine({ kind: 'self-signed', directory }, { nodeName: 'x.lab.ts.net' })).toMatchObject({
      status: 'warning',
      remedy: 'add the name: --tls-names x.lab.ts.net',
    });
  });

  it('makes nothing where nothing has been made yet', async () => {
    const fresh = join(directory, 'gateway');
    expect(await examine({ kind: 'self-signed', directory: fresh })).toMatchObject({
      status: 'ok',
      summary: expect.stringContaining('at the first start'),
    });
    await expect(mkdir(fresh)).resolves.toBeUndefined();
  });

  it('fails when nothing can be made', async () => {
    const file = join(directory, 'file');
    await writeFile(file, '');
    expect(await examine({ kind: 'self-signed', directory: join(file, 'gateway') })).toMatchObject({
      status: 'failed',
      remedy: expect.any(String),
    });
  });

  it('says what to do when tailscaled gives none', async () => {
    const load = (): Promise<never> => Promise.reject(new Error('this tailnet issues none'));
    expect(await examine({ kind: 'tailscale', load })).toMatchObject({
      status: 'failed',
      summary: 'this tailnet issues none',
      remedy: expect.stringContaining('TS_PERMIT_CERT_UID'),
    });
    const { certificatePem } = await (await createTestAuthority()).issue([NAME]);
    const leaf = new X509Certificate(certificatePem);
    expect((await examine({ kind: 'tailscale', load: () => Promise.resolve({ leaf }) })).status).toBe('ok');
  });

  it('has nothing to look at when TLS ends elsewhere', async () => {
    expect((await examine({ kind: 'none' })).status).toBe('ok');
  });
});
