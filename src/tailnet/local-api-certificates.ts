/** The MagicDNS certificates of this node, issued and renewed by tailscaled. */
import { isIP } from 'node:net';
import { errorText, TailcastError } from '../errors.ts';
import type { Logger } from '../observe/logger.ts';
import {
  canonicalHost,
  loadCertificate,
  type CertificateSource,
  type LoadedCertificate,
} from './certificates.ts';
import type { LocalApi } from './local-api.ts';
import { createRefreshing, type Refreshing } from './refreshing.ts';

export interface LocalApiCertificatesOptions {
  readonly localApi: Pick<LocalApi, 'certificate' | 'status' | 'socketPath'>;
  readonly log: Logger;
  /** Cancels pending requests to tailscaled. */
  readonly signal: AbortSignal;
  /** Monotonic clock, in milliseconds. */
  readonly now?: () => number;
  /** Wall clock in milliseconds since 1970, for validity dates. */
  readonly wallClock?: () => number;
}

const HOUR_MS = 3_600_000;
/** Minimum time between a failure and the next attempt, in milliseconds. */
const RETRY_AFTER_MS = 5000;
/** Minimum remaining validity that is requested from tailscaled, in hours. */
const MIN_VALIDITY_HOURS = 24;

/**
 * Call `certificate()` once at the start, because the first call sends the first request. This request takes a long
 * time if the certificate must be issued. The names of certificates are those of `CertDomains`. A server name with a
 * single label matches the domain that starts with this label.
 */
export function createLocalApiCertificates(options: LocalApiCertificatesOptions): CertificateSource {
  const { localApi, log, signal } = options;
  const now = options.now ?? (() => performance.now());
  const wallClock = options.wallClock ?? Date.now;
  const certificates = new Map<string, Refreshing<LoadedCertificate>>();
  const onBackgroundFailure = (error: unknown): void =>
    log.warn({ error: errorText(error) }, 'certificate not renewed; the last valid one stays');

  const domains = createRefreshing<readonly string[]>({
    load: () => readDomains(localApi, signal),
    usable: () => true,
    refreshAfterMs: 60_000,
    retryAfterMs: RETRY_AFTER_MS,
    now,
    onBackgroundFailure,
  });

  function certificate(domain: string): Refreshing<LoadedCertificate> {
    const existing = certificates.get(domain);
    if (existing !== undefined) return existing;
    const created = createRefreshing<LoadedCertificate>({
      async load(kept) {
        const leftMs = kept === undefined ? Infinity : kept.notAfterMs - wallClock();
        const ageing = leftMs < MIN_VALIDITY_HOURS * HOUR_MS;
        const wanted = ageing ? { minValidityHours: MIN_VALIDITY_HOURS } : {};
        const pair = await localApi.certificate(domain, signal, wanted);
        const next = loadCertificate(pair, `the certificate of ${domain} from tailscaled`);
        // An unchanged certificate keeps its secure context, so that clients can resume their TLS sessions.
        return kept?.leaf.raw.equals(next.leaf.raw) === true ? kept : next;
      },
      usable: (kept) => kept.notAfterMs > wallClock(),
      refreshAfterMs: HOUR_MS,
      retryAfterMs: RETRY_AFTER_MS,
      now,
      onBackgroundFailure,
    });
    certificates.set(domain, created);
    return created;
  }

  async function choose(serverName: string | undefined): Promise<LoadedCertificate> {
    return await certificate(chooseDomain(serverName, await domains.get())).get();
  }

  return { certificate: choose };
}

async function readDomains(
  localApi: LocalApiCertificatesOptions['localApi'],
  signal: AbortSignal,
): Promise<readonly string[]> {
  const { certificateDomains, backendState } = await localApi.status(signal, { peers: false });
  if (certificateDomains.length > 0) return certificateDomains;
  throw new TailcastError(
    'CERTIFICATE_UNAVAILABLE',
    backendState === 'Running'
      ? 'this tailnet issues none: turn on HTTPS certificates for it, or use certificate files or a self-signed one'
      : `tailscaled on ${localApi.socketPath} is not connected (${backendState}): bring it up first`,
  );
}

/** Returns the matching domain, or the first domain if none matches. `domains` must not be empty. */
function chooseDomain(serverName: string | undefined, domains: readonly string[]): string {
  const [fallback = ''] = domains;
  if (serverName === undefined || isIP(serverName) !== 0) return fallback;
  const name = canonicalHost(serverName);
  const exact = domains.find((domain) => domain === name);
  if (exact !== undefined) return exact;
  const byLabel = name.includes('.') ? undefined : domains.find((domain) => domain.startsWith(`${name}.`));
  return byLabel ?? fallback;
}
