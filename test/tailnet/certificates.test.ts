import { X509Certificate } from 'node:crypto';
import { mkdir, mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Writable } from 'node:stream';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { createLogger, createSilentLogger } from '../../src/observe/logger.ts';
import { openCertificateFiles } from '../../src/tailnet/certificate-files.ts';
import { certifiesHost, loadCertificate, type CertificateSource } from '../../src/tailnet/certificates.ts';
import { createLocalApiCertificates } from '../../src/tailnet/local-api-certificates.ts';
import { createLocalApi, type LocalApi } from '../../src/tailnet/local-api.ts';
import { openSelfSignedCertificates } from '../../src/tailnet/self-signed.ts';
import { createTestAuthority, type TestAuthority } from '../support/issued-certificates.ts';
import { eventually, UNTIL_MS } from '../support/until.ts';
import { startLocalApiDouble, type LocalApiDouble } from '../support/local-api-double.ts';

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
const log = createSilentLogger();

let directory: string;
let authority: TestAuthority;

beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'certificates-'));
  authority = await createTestAuthority();
});

async function servedNames(source: CertificateSource): Promise<string | undefined> {
  return (await source.certificate(undefined)).leaf.subjectAltName;
}

/** Repeats `read` until a background reload has changed the value. */
async function becomes<T>(read: () => Promise<T>, expected: T): Promise<void> {
  await eventually(
    'the reloaded value',
    async () => ((await read()) === expected ? true : undefined),
    UNTIL_MS,
    0,
  );
}

describe('certificates from files', () => {
  const paths = (): { certificatePath: string; keyPath: string } => ({
    certificatePath: join(directory, 'tls.crt'),
    keyPath: join(directory, 'tls.key'),
  });

  async function store(names: readonly string[]): Promise<void> {
    const pair = await authority.issue(names);
    await writeFile(paths().keyPath, pair.keyPem);
    await writeFile(paths().certificatePath, pair.certificatePem);
  }

  it('are read again when they change', async () => {
    await store(['one.example.com']);
    const source = await openCertificateFiles({ ...paths(), log, checkEveryMs: 0 });
    const before = await source.certificate('one.example.com');
    expect(await servedNames(source)).toBe('DNS:one.example.com');
    expect(await source.certificate(undefined)).toBe(before);
    await store(['two.example.com']);
    await becomes(() => servedNames(source), 'DNS:two.example.com');
    expect(await source.certificate(undefined)).not.toBe(before);
  });

  it('stay as they were when the new ones are bad, with one report', async () => {
    await store(['one.example.com']);
    const lines: string[] = [];
    const destination = new Writable({
      write(chunk, _encoding, done) {
        lines.push(String(chunk));
        done();
      },
    });
    const source = await openCertificateFiles({
      ...paths(),
      log: createLogger({ level: 'info', destination }),
      checkEveryMs: 0,
    });
    // A key that does not match the certificate, as during a rotation.
    await writeFile(paths().keyPath, (await authority.issue(['x'])).keyPem);
    await becomes(async () => {
      await source.certificate(undefined);
      return lines.length > 0;
    }, true);
    for (let index = 0; index < 20; index += 1) {
      expect(await servedNames(source)).toBe('DNS:one.example.com');
      await new Promise(setImmediate);
    }
    expect(lines).toHaveLength(1);
    expect(lines[0]).toContain('"level":"error"');
    await rm(paths().certificatePath);
    await becomes(async () => (await servedNames(source), lines.length), 2);
    await store(['three.example.com']);
    await becomes(() => servedNames(source), 'DNS:three.example.com');
  });

  it('must be good at the start', async () => {
    await expect(openCertificateFiles({ ...paths(), log })).rejects.toMatchObject({
      code: 'CERTIFICATE_UNAVAILABLE',
    });
    await store(['one.example.com']);
    await writeFile(paths().keyPath, 'garbage');
    await expect(openCertificateFiles({ ...paths(), log })).rejects.toThrow(paths().keyPath);
  });
});

it('a `*` of a certificate stands for exactly one label', async () => {
  const names = ['one.test.example', '*.wild.example', 'part*.example.com'];
  const loaded = loadCertificate(await authority.issue(names), 'test');
  for (const name of ['one.test.example', 'a.wild.example']) expect(certifiesHost(loaded, name)).toBe(true);
  for (const name of ['wild.example', 'a.b.wild.example', 'partial.example.com', 'x', '127.0.0.1', '']) {
    expect(certifiesHost(loaded, name)).toBe(false);
  }
});

describe('certificates from tailscaled', () => {
  let daemon: LocalApiDouble;
  let localApi: LocalApi;
  let nowMs: number;
  const signal = new AbortController().signal;

  beforeEach(async () => {
    daemon = await startLocalApiDouble();
    localApi = createLocalApi({ socketPath: daemon.socketPath });
    nowMs = Date.now();
    daemon.status = { BackendState: 'Running', CertDomains: ['gw.lab.ts.net', 'other.lab.ts.net'] };
    for (const domain of ['gw.lab.ts.net', 'other.lab.ts.net']) await renew(domain);
  });

  afterEach(async () => {
    localApi.close();
    await daemon.close();
  });

  async function renew(domain: string, options?: { readonly validMs: number }): Promise<void> {
    const { keyPem, certificatePem } = await authority.issue([domain], { nowMs, ...options });
    daemon.certificates.set(domain, keyPem + certificatePem);
  }

  function source(): CertificateSource {
    return createLocalApiCertificates({ localApi, log, signal, now: () => nowMs, wallClock: () => nowMs });
  }

  const asked = (): string[] => daemon.requests.map(({ url }) => url).filter((url) => url.includes('/cert/'));

  it('are those of the name asked for, else the default', async () => {
    const certificates = source();
    const fallback = await certificates.certificate(undefined);
    expect((await certificates.certificate(undefined)).leaf.subjectAltName).toBe('DNS:gw.lab.ts.net');
    const other = await certificates.certificate('other.lab.ts.net');
    expect(other).not.toBe(fallback);
    for (const same of ['OTHER.lab.ts.net', 'other.lab.ts.net.', 'other']) {
      expect(await certificates.certificate(same)).toBe(other);
    }
    for (const strange of [undefined, 'gw', '100.64.0.1', 'fd7a::1', 'evil.example.com', '']) {
      expect(await certificates.certificate(strange)).toBe(fallback);
    }
    expect(asked()).toHaveLength(2);
  });

  it('are asked for once by many handshakes', async () => {
    const certificates = source();
    await Promise.all(Array.from({ length: 30 }, () => certificates.certificate('gw.lab.ts.net')));
    expect(asked()).toHaveLength(1);
  });

  it('are renewed in the background, and keep their context while they are the same', async () => {
    const certificates = source();
    const before = await certificates.certificate(undefined);
    nowMs += HOUR_MS;
    await certificates.certificate(undefined);
    await becomes(() => Promise.resolve(asked().length), 2);
    expect(await certificates.certificate(undefined)).toBe(before);
    await renew('gw.lab.ts.net');
    nowMs += HOUR_MS;
    expect(await certificates.certificate(undefined)).toBe(before);
    await becomes(async () => (await certificates.certificate(undefined)) !== before, true);
  });

  it('ask for a longer-lived one on the last day, and survive that tailscaled has none', async () => {
    await renew('gw.lab.ts.net', { validMs: 20 * HOUR_MS });
    const certificates = source();
    const before = await certificates.certificate(undefined);
    nowMs += HOUR_MS;
    daemon.certificates.delete('gw.lab.ts.net');
    await certificates.certificate(undefined);
    await becomes(() => Promise.resolve(asked().at(-1)?.includes('min_validity=24h')), true);
    expect(await certificates.certificate(undefined)).toBe(before);
  });

  it('are not served after their end', async () => {
    await renew('gw.lab.ts.net', { validMs: HOUR_MS });
    const certificates = source();
    await certificates.certificate(undefined);
    daemon.certificates.delete('gw.lab.ts.net');
    nowMs += 2 * HOUR_MS;
    await expect(certificates.certificate(undefined)).rejects.toMatchObject({
      code: 'CERTIFICATE_UNAVAILABLE',
    });
  });

  it('are not asked for in every handshake while there is none', async () => {
    daemon.certificates.clear();
    const certificates = source();
    for (let index = 0; index < 5; index += 1) {
      await expect(certificates.certificate(undefined)).rejects.toThrow('acme: no such domain');
    }
    expect(asked()).toHaveLength(1);
    await renew('gw.lab.ts.net');
    nowMs += 5000;
    expect(await servedNames(certificates)).toBe('DNS:gw.lab.ts.net');
  });

  it('say what to do where the tailnet issues none', async () => {
    daemon.status = { BackendState: 'Running', CertDomains: null };
    await expect(source().certificate(undefined)).rejects.toThrow('this tailnet issues none');
    daemon.status = { BackendState: 'NeedsLogin' };
    await expect(source().certificate(undefined)).rejects.toThrow('NeedsLogin');
  });
});

describe('certificates of our own making', () => {
  let nowMs: number;
  beforeEach(() => {
    nowMs = Date.now();
  });

  function open(names: readonly string[] = []): ReturnType<typeof openSelfSignedCertificates> {
    return openSelfSignedCertificates({
      directory: join(directory, 'tls'),
      names,
      log,
      wallClock: () => nowMs,
    });
  }

  const serverPem = (): Promise<string> => readFile(join(directory, 'tls', 'server.pem'), 'utf8');

  it('name this machine and what they are told to', async () => {
    const source = await open(['gw.lab.ts.net', '100.64.0.1', 'FD7A:0::1', '*.lab.example']);
    const { leaf } = await source.certificate(undefined);
    for (const host of ['localhost', 'gw.lab.ts.net', 'x.lab.example'])
      expect(leaf.checkHost(host)).toBeDefined();
    for (const ip of ['127.0.0.1', '::1', '100.64.0.1', 'fd7a::1']) expect(leaf.checkIP(ip)).toBe(ip);
    expect(leaf.checkHost('example.com')).toBeUndefined();
    const ca = new X509Certificate(source.caPem);
    expect(ca.ca).toBe(true);
    expect(leaf.ca).toBe(false);
    expect(leaf.checkIssued(ca)).toBe(true);
    expect(leaf.verify(ca.publicKey)).toBe(true);
    expect(leaf.publicKey.asymmetricKeyDetails?.namedCurve).toBe('prime256v1');
    expect(leaf.keyUsage).toEqual(['1.3.6.1.5.5.7.3.1']);
  });

  it('keep authority and server over a restart', async () => {
    const first = await open();
    const pem = await serverPem();
    const second = await open();
    expect(second.caPem).toBe(first.caPem);
    expect(await serverPem()).toBe(pem);
  });

  it('keep keys from others', async () => {
    await open();
    for (const file of ['ca/ca.key', 'server.pem']) {
      expect((await stat(join(directory, 'tls', file))).mode & 0o777).toBe(0o600);
    }
    expect((await stat(join(directory, 'tls'))).mode & 0o777).toBe(0o700);
    expect(await readdir(join(directory, 'tls'))).toEqual(['ca', 'server.pem']);
  });

  it('make a new server certificate for another name, under the same authority', async () => {
    const first = await open();
    const second = await open(['new.example.com']);
    expect(second.caPem).toBe(first.caPem);
    expect((await second.certificate(undefined)).leaf.checkHost('new.example.com')).toBeDefined();
    expect((await first.certificate(undefined)).leaf.checkHost('new.example.com')).toBeUndefined();
  });

  it('renew the server certificate before its end, without a restart', async () => {
    const source = await open();
    const before = await source.certificate(undefined);
    nowMs += 59 * DAY_MS;
    for (let index = 0; index < 5; index += 1) {
      expect(await source.certificate(undefined)).toBe(before);
      await new Promise(setImmediate);
    }
    nowMs += 2 * DAY_MS;
    await becomes(async () => (await source.certificate(undefined)) !== before, true);
    expect((await source.certificate(undefined)).notAfterMs - nowMs).toBeGreaterThan(80 * DAY_MS);
  });

  it('make the server certificate anew when it is damaged', async () => {
    await open();
    await writeFile(join(directory, 'tls', 'server.pem'), 'garbage');
    expect(await servedNames(await open())).toContain('localhost');
  });

  it('never replace a damaged or expired authority silently', async () => {
    await open();
    const key = join(directory, 'tls', 'ca', 'ca.key');
    const good = await readFile(key, 'utf8');
    for (const bad of ['garbage', (await authority.issue(['x'])).keyPem]) {
      await writeFile(key, bad);
      await expect(open()).rejects.toMatchObject({ code: 'CERTIFICATE_UNAVAILABLE' });
    }
    await rm(key);
    await expect(open()).rejects.toThrow('one of ca.crt and ca.key is missing');
    await writeFile(key, good);
    nowMs += 3651 * DAY_MS;
    await expect(open()).rejects.toThrow('expired');
  });

  it('agree on one authority when several processes start at once', async () => {
    const sources = await Promise.all([open(), open(), open()]);
    expect(new Set(sources.map(({ caPem }) => caPem)).size).toBe(1);
  });

  it('refuse an invalid name, and a directory that is a file', async () => {
    await expect(open(['a b'])).rejects.toMatchObject({ code: 'CONFIG_INVALID' });
    await mkdir(join(directory, 'x'));
    await writeFile(join(directory, 'tls'), '');
    await expect(open()).rejects.toMatchObject({ code: 'CERTIFICATE_UNAVAILABLE' });
  });
});
