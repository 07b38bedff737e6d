/** Helpers for proxies that serve HTTP: their configuration and certificates. */
import { expect } from 'vitest';
import type { IngressTable } from '../../src/wire/ingress-table.ts';
import { createTestAuthority } from '../support/issued-certificates.ts';
import { CORE, OWN, settle, type Bench } from './bench.ts';

/** Path of the Secret `own` in the namespace `prod`. */
export const CERTIFICATE = `${CORE}/prod/secrets/own`;

export const serveConfigOf = (bench: Bench, pod: string): unknown => bench.file(pod, 'serve-config');
export const tableOf = (bench: Bench, pod: string): IngressTable =>
  bench.file(pod, 'ingress-table') as IngressTable;

/** Stores a new certificate for a host, and returns it. */
export async function putCertificate(bench: Bench, host: string): Promise<string> {
  const { certificatePem, keyPem } = await (await createTestAuthority()).issue([host]);
  const data = { 'tls.crt': btoa(certificatePem), 'tls.key': btoa(keyPem) };
  const metadata = { name: 'own', namespace: 'prod' };
  bench.api.put(CERTIFICATE, { apiVersion: 'v1', kind: 'Secret', metadata, data });
  return certificatePem;
}

/** Stops the pod after its StatefulSet is removed, and checks that no object of the proxy remains. */
export async function expectNodeGone(
  bench: Bench,
  pod: string,
  run: () => Promise<number | undefined>,
): Promise<void> {
  await run();
  await run();
  bench.api.remove(`${OWN}/pods/${pod}`);
  await settle(run);
  expect([bench.left(), bench.names()]).toEqual([[], []]);
  expect(bench.control.deleted).toEqual([`node-${pod}`]);
}
