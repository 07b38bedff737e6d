/**
 * Checks the certificate that clients will see, its names and its expiry. Never creates or renews a self-signed
 * certificate. For a Tailscale certificate, the check sends a request to tailscaled, which may then issue or renew the
 * certificate.
 */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { X509Certificate } from 'node:crypto';
import { loadCertificate } from '../tailnet/certificates.ts';
import { directoryState } from './directory.ts';
import { failed, ok, warning, type Check, type CheckVerdict } from './checks.ts';
import { ifPresent } from '../errors.ts';

export type CertificatePlan =
  | { readonly kind: 'none' }
  | { readonly kind: 'files'; readonly certificatePath: string; readonly keyPath: string }
  /** `directory` contains the files that `tailnet/self-signed` creates. */
  | { readonly kind: 'self-signed'; readonly directory: string }
  /** `load` may wait until the control server has issued the first certificate. */
  | { readonly kind: 'tailscale'; readonly load: () => Promise<{ readonly leaf: X509Certificate }> };

export interface CertificateFacts {
  readonly plan: CertificatePlan;
  /** MagicDNS name of the gateway, if known. */
  readonly nodeName: () => Promise<string | undefined>;
  readonly unixMs: () => number;
}

const DAY_MS = 86_400_000;
const SOON_DAYS = 14;
const ISSUE_TIMEOUT_MS = 80_000;

const REMEDIES = {
  none: 'configure a certificate in the proxy that ends TLS',
  files: 'put a valid chain and its key into the files tlsCert and tlsKey; the gateway reloads them',
  'self-signed':
    'make the state directory writable; to create a new CA, remove the directory and give clients the new ca.crt',
  tailscale:
    'enable HTTPS certificates in the tailnet; in a pod, run with the user ID of tailscaled or set its ' +
    'TS_PERMIT_CERT_UID; if the control server issues no certificates, use tls=self-signed or tls=files',
} as const satisfies Record<CertificatePlan['kind'], string>;

/** Returns the check of the gateway's certificate. */
export function certificateCheck(facts: CertificateFacts): Check {
  const { plan } = facts;
  return {
    id: 'certificate',
    title: 'certificate',
    needs: plan.kind === 'tailscale' ? ['connected'] : [],
    timeoutMs: plan.kind === 'tailscale' ? ISSUE_TIMEOUT_MS : 20_000,
    remedy: REMEDIES[plan.kind],
    run: () => examine(facts),
  };
}

async function examine(facts: CertificateFacts): Promise<CheckVerdict> {
  const { plan } = facts;
  switch (plan.kind) {
    case 'none':
      return ok('none: a proxy in front ends TLS');
    case 'files': {
      const certificatePem = await readFile(plan.certificatePath, 'utf8');
      const keyPem = await readFile(plan.keyPath, 'utf8');
      const { leaf } = loadCertificate({ certificatePem, keyPem }, plan.certificatePath);
      return verdictOf(leaf, facts);
    }
    case 'self-signed':
      return selfSigned(plan.directory, facts);
    case 'tailscale':
      return verdictOf((await plan.load()).leaf, facts);
  }
}

async function selfSigned(directory: string, facts: CertificateFacts): Promise<CheckVerdict> {
  const pem = await ifPresent(readFile(join(directory, 'server.pem'), 'utf8'));
  if (pem === undefined) {
    const state = await directoryState(directory);
    return state.usable
      ? ok(`self-signed, created in ${directory} at the first start`)
      : failed(`${directory}: ${state.problem}`, state.remedy);
  }
  const { leaf } = loadCertificate({ certificatePem: pem, keyPem: pem }, join(directory, 'server.pem'));
  return verdictOf(leaf, facts);
}

async function verdictOf(
  leaf: X509Certificate,
  { plan, nodeName, unixMs }: CertificateFacts,
): Promise<CheckVerdict> {
  const names = namesOf(leaf);
  const leftMs = leaf.validToDate.getTime() - unixMs();
  const days = Math.trunc(leftMs / DAY_MS);
  const summary = `${plan.kind}, for ${names.join(', ')}, ${days} days left`;
  const remedy = REMEDIES[plan.kind];
  // An expired self-signed certificate is no problem, because the next start of the gateway renews it.
  if (plan.kind !== 'self-signed') {
    if (leftMs < 0) return failed(`${plan.kind}, for ${names.join(', ')}, expired ${-days} days ago`, remedy);
    if (leaf.validFromDate.getTime() > unixMs())
      return failed(`${summary}, but it is not valid yet`, 'correct the clock of this machine, or wait');
    if (days < SOON_DAYS) return warning(summary, `renew it: ${remedy}`);
  }
  const name = await nodeName();
  if (name !== undefined && leaf.checkHost(name) === undefined) {
    return warning(
      `${summary}; not for ${name}`,
      plan.kind === 'self-signed'
        ? `add the name: --tls-names ${name}`
        : `clients that use the name ${name} reject the certificate: get a certificate with this name, or use ` +
            'another name',
    );
  }
  return ok(summary);
}

function namesOf({ subjectAltName, subject }: X509Certificate): readonly string[] {
  const names = (subjectAltName ?? '')
    .split(', ')
    .map((name) => name.replace(/^(DNS|IP Address):/, ''))
    .filter((name) => name !== '');
  return names.length > 0 ? names : [subject];
}
