/**
 * Client of tailscaled's LocalAPI: HTTP/1.1 over its unix socket. `whois.ts`, `status.ts` and
 * `local-api-certificates.ts` interpret the responses. Every response is bounded in size and time.
 *
 * tailscaled responds only if `Host` is `local-tailscaled.sock` and the request has neither `Origin` nor
 * `Referer`.
 */
import { Agent } from 'node:http';
import type { Duplex } from 'node:stream';
import { TailcastError } from '../errors.ts';
import type { CertificatePair } from './certificates.ts';
import { parseExactJson } from './exact-json.ts';
import { describeFailure, describeRefusal } from './local-api-failure.ts';
import {
  exchange,
  openTunnel,
  watchBus,
  type LocalApiAnswer,
  type Notify,
  type Question,
} from './local-api-transport.ts';
import { parseTailnetStatus, type TailnetStatus } from './tailnet-status.ts';

/** Bits of the parameter `mask` of `watchBus`. */
export const BUS_MASK = {
  initialState: 2,
  initialNetmap: 8,
  peerChanges: 4096,
  noNetmap: 8192,
  initialStatus: 16_384,
  peerPatches: 32_768,
} as const;

/** First version of tailscaled whose whois returns the grants of a Tailscale Service. */
const SERVICE_WHOIS_VERSION = [1, 100] as const;

/**
 * @throws TailcastError `CONFIG_INVALID` if this tailscaled is too old: its whois would return the grants for the node
 *   instead of the grants for the Tailscale Service
 */
export function assertServiceWhois(version: string): void {
  const [major = 0, minor = 0] = version.split('.').map(Number);
  const [needsMajor, needsMinor] = SERVICE_WHOIS_VERSION;
  if (major > needsMajor || (major === needsMajor && minor >= needsMinor)) return;
  throw new TailcastError(
    'CONFIG_INVALID',
    `clusters with a service need tailscaled ${SERVICE_WHOIS_VERSION.join('.')} or newer, not "${version}"`,
  );
}

/** Result of `whois`. `unknown`: no node of the tailnet has this address. */
export type WhoisAnswer =
  | { readonly kind: 'found'; readonly json: string }
  | { readonly kind: 'unknown'; readonly message: string };

export type LocalApi = ReturnType<typeof createLocalApi>;

export interface LocalApiOptions {
  readonly socketPath: string;
  /** Maximum number of pending requests, including queued requests. Further requests are rejected. */
  readonly maxPending?: number;
  readonly whoisTimeoutMs?: number;
  readonly dialTimeoutMs?: number;
  readonly maxStatusBytes?: number;
}

/** Maximum number of concurrent requests. Further requests are queued. */
const MAX_SOCKETS = 8;
const STATUS_TIMEOUT_MS = 10_000;
const MAX_WHOIS_BYTES = 4 * 1024 * 1024;
const MAX_CERTIFICATE_BYTES = 1024 * 1024;
const MAX_STATUS_BYTES = 64 * 1024 * 1024;

/** Creates a client. Connections are opened on demand, kept alive and reused. */
export function createLocalApi(options: LocalApiOptions) {
  const { socketPath } = options;
  const agent = new Agent({
    keepAlive: true,
    maxSockets: MAX_SOCKETS,
    maxFreeSockets: 4,
    timeout: 60_000,
  });
  const ask = boundedAsk(socketPath, agent, options.maxPending ?? 512);
  return {
    socketPath,
    /**
     * Returns the node and user of `address` (an IP, `ip:port` or `nodekey:…`).
     * @param service Tailscale Service. The response then contains its grants instead of the grants for this node.
     * tailscaled before {@link SERVICE_WHOIS_VERSION} ignores `service`
     * @throws TailcastError `TAILNET_UNAVAILABLE`
     */
    whois(address: string, signal: AbortSignal, service?: string): Promise<WhoisAnswer> {
      return askWhois(ask, { address, service }, { timeoutMs: options.whoisTimeoutMs ?? 5000, signal });
    },
    /**
     * Returns the status of the daemon, of this node and, unless `peers` is false, of its peers.
     * @throws TailcastError `TAILNET_UNAVAILABLE`
     */
    async status(
      signal: AbortSignal,
      { peers = true }: { readonly peers?: boolean } = {},
    ): Promise<TailnetStatus> {
      const answer = await ask('TAILNET_UNAVAILABLE', {
        path: `/localapi/v0/status${peers ? '' : '?peers=false'}`,
        timeoutMs: STATUS_TIMEOUT_MS,
        maxBytes: options.maxStatusBytes ?? MAX_STATUS_BYTES,
        signal,
      });
      return parseTailnetStatus(parseJson(answer, socketPath));
    },
    /**
     * Returns key and certificate chain of one of this node's `CertDomains`, as PEM. The first issuance takes up to
     * a minute.
     * @throws TailcastError `CERTIFICATE_UNAVAILABLE`
     */
    certificate(
      domain: string,
      signal: AbortSignal,
      { minValidityHours }: { readonly minValidityHours?: number } = {},
    ): Promise<CertificatePair> {
      const validity = minValidityHours === undefined ? '' : `&min_validity=${minValidityHours}h`;
      const path = `/localapi/v0/cert/${encodeURIComponent(domain)}?type=pair${validity}`;
      return askCertificate(ask, path, { timeoutMs: 75_000, signal });
    },
    /**
     * Opens a byte tunnel to `host:port` through the tailnet. Closing the tunnel ends both directions, because a tunnel
     * has no half-close.
     * @throws TailcastError `TAILNET_DIAL_FAILED`, also if the address is outside of the tailnet
     */
    dial(host: string, port: number, signal: AbortSignal): Promise<Duplex> {
      const timeoutMs = options.dialTimeoutMs ?? 10_000;
      return refusing('TAILNET_DIAL_FAILED', socketPath, () =>
        openTunnel(socketPath, { host, port, timeoutMs, signal }),
      );
    },
    /**
     * Reads the notification bus. The iteration ends when `signal` aborts, and throws when the daemon stops.
     * @throws TailcastError `TAILNET_UNAVAILABLE`
     */
    watchBus(mask: number, signal: AbortSignal): AsyncIterable<Notify> {
      return watchBus(socketPath, mask, { signal, answerTimeoutMs: STATUS_TIMEOUT_MS });
    },
    /** Returns the serve configuration and its ETag. @throws TailcastError `TAILNET_UNAVAILABLE` */
    async serveConfig(signal: AbortSignal): Promise<{ readonly etag: string; readonly config: unknown }> {
      const answer = await ask('TAILNET_UNAVAILABLE', {
        path: '/localapi/v0/serve-config',
        timeoutMs: STATUS_TIMEOUT_MS,
        maxBytes: MAX_WHOIS_BYTES,
        signal,
      });
      return { etag: answer.headers.etag ?? '', config: parseJson(answer, socketPath) };
    },
    /**
     * Changes the preferences of tailscaled and starts a login with an auth key. Returns before the login is complete.
     * @param preferences as in `ipn.MaskedPrefs`
     * @throws TailcastError `TAILNET_UNAVAILABLE`
     */
    async login(
      authKey: string,
      preferences: Readonly<Record<string, unknown>>,
      signal: AbortSignal,
    ): Promise<void> {
      const common = { timeoutMs: STATUS_TIMEOUT_MS, maxBytes: MAX_WHOIS_BYTES, signal };
      for (const [method, path, body] of [
        ['PATCH', 'prefs', preferences],
        ['POST', 'start', { AuthKey: authKey }],
        ['POST', 'login-interactive', undefined],
      ] as const) {
        const content = body === undefined ? '' : JSON.stringify(body);
        await ask('TAILNET_UNAVAILABLE', { path: `/localapi/v0/${path}`, method, content, ...common }, 204);
      }
    },
    /** Closes idle connections. */
    close(): void {
      agent.destroy();
    },
  };
}

type LocalApiCode = 'TAILNET_UNAVAILABLE' | 'TAILNET_DIAL_FAILED' | 'CERTIFICATE_UNAVAILABLE';

/** Sends a request and accepts status 200 and `alsoFine`. Throws an error with `code` for any other status. */
type Ask = (code: LocalApiCode, question: Question, alsoFine?: number) => Promise<LocalApiAnswer>;

interface Patience {
  readonly timeoutMs: number;
  readonly signal: AbortSignal;
}

function boundedAsk(socketPath: string, agent: Agent, maxPending: number): Ask {
  let pending = 0;
  return (code, question, alsoFine = 200) =>
    refusing(code, socketPath, async () => {
      if (pending >= maxPending) {
        throw new TailcastError(code, `${maxPending} questions to ${socketPath} are already waiting`);
      }
      pending += 1;
      try {
        const answer = await exchange(socketPath, agent, question);
        if (answer.status === 200 || answer.status === alsoFine) return answer;
        throw new TailcastError(code, describeRefusal(answer.status, answer.body, socketPath));
      } finally {
        pending -= 1;
      }
    });
}

async function refusing<T>(code: LocalApiCode, socketPath: string, action: () => Promise<T>): Promise<T> {
  try {
    return await action();
  } catch (error) {
    if (error instanceof TailcastError) throw error;
    throw new TailcastError(code, describeFailure(error, socketPath), { cause: error });
  }
}

async function askWhois(
  ask: Ask,
  { address, service }: { readonly address: string; readonly service: string | undefined },
  patience: Patience,
): Promise<WhoisAnswer> {
  const scope = service === undefined ? {} : { svc_name: service };
  const query = new URLSearchParams({ proto: 'tcp', addr: address, ...scope }).toString();
  const question = { path: `/localapi/v0/whois?${query}`, maxBytes: MAX_WHOIS_BYTES, ...patience };
  const answer = await ask('TAILNET_UNAVAILABLE', question, 404);
  if (answer.status === 404) return { kind: 'unknown', message: answer.body.trim() };
  return { kind: 'found', json: answer.body };
}

async function askCertificate(ask: Ask, path: string, patience: Patience): Promise<CertificatePair> {
  const answer = await ask('CERTIFICATE_UNAVAILABLE', { path, maxBytes: MAX_CERTIFICATE_BYTES, ...patience });
  return splitPair(answer.body);
}

function parseJson(answer: LocalApiAnswer, socketPath: string): unknown {
  try {
    return parseExactJson(answer.body);
  } catch (error) {
    const detail = `${socketPath} answered with something that is not JSON`;
    throw new TailcastError('TAILNET_UNAVAILABLE', detail, { cause: error });
  }
}

/** Splits the response of `type=pair`: the PEM block of the private key, followed by the certificate chain. */
function splitPair(pem: string): CertificatePair {
  const match =
    /^(-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?-----END [A-Z ]*PRIVATE KEY-----\r?\n?)([\s\S]+)$/.exec(
      pem.trimStart(),
    );
  const [, keyPem, certificatePem] = match ?? [];
  if (keyPem === undefined || certificatePem?.includes('-----BEGIN CERTIFICATE-----') !== true) {
    throw new TailcastError('CERTIFICATE_UNAVAILABLE', 'tailscaled answered without a key and a certificate');
  }
  return { keyPem, certificatePem };
}
