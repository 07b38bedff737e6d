/**
 * TLS settings of connections to the API server: its CAs, and a client certificate. The gateway reloads both files if
 * they change; Kubernetes replaces `ca.crt` of service accounts.
 */
import { X509Certificate } from 'node:crypto';
import { createSecureContext } from 'node:tls';
import { TailcastError, errorText } from '../errors.ts';
import { pathInKubeconfig } from './kubeconfig.ts';
import { createReloadedFile } from './token.ts';

/** Options for `tls.connect`, except host, port and server name. */
export interface ApiServerTls {
  /** CAs as PEM. Default: the root certificates of Node.js. */
  readonly ca: string | undefined;
  /** Client certificate and its key in PEM. Both are set, or neither. */
  readonly cert: string | undefined;
  readonly key: string | undefined;
  readonly rejectUnauthorized: boolean;
}

/** Maximum size of a PEM text, in bytes. A bundle of all public CAs has about 250 KB. */
const MAX_PEM_BYTES = 4 * 1024 * 1024;

export type ClientCertificate = Pick<ApiServerTls, 'cert' | 'key'>;

export const NO_CERTIFICATE: ClientCertificate = { cert: undefined, key: undefined };

export interface TlsSources {
  /** Returns the CAs of the API server. Default: the root certificates of Node.js. */
  readonly authorities: (() => Promise<string>) | undefined;
  readonly certificate: () => Promise<ClientCertificate>;
  readonly rejectUnauthorized: boolean;
}

/**
 * Resolves after all sources have been read. Afterwards, the sources are read again only when the caller requests this.
 *
 * @param about.where name with which errors refer to the source
 * @param about.onUnusable called once for each new version of a source that is invalid
 * @throws TailcastError `CONFIG_INVALID`
 */
export async function followTls(
  { authorities, certificate, rejectUnauthorized }: TlsSources,
  about: { readonly where: string; readonly onUnusable?: ((error: TailcastError) => void) | undefined },
) {
  let ca = await authorities?.();
  let own = await certificate();
  let current = checked({ ca, ...own, rejectUnauthorized }, about.where);
  let refused: ApiServerTls | undefined;

  function use(): void {
    const next = { ca, ...own, rejectUnauthorized };
    if (isSame(next, current)) {
      refused = undefined;
      return;
    }
    if (refused !== undefined && isSame(next, refused)) return;
    try {
      current = checked(next, about.where);
      refused = undefined;
    } catch (error) {
      if (!(error instanceof TailcastError)) throw error;
      // A certificate and its key are two files that change one after the other, so they may not match for a moment.
      refused = next;
      about.onUnusable?.(error);
    }
  }

  async function reloadAuthorities(): Promise<void> {
    ca = await authorities?.();
    use();
  }
  return {
    /** The last valid settings; the same JavaScript object until one of the settings changes. */
    get current(): ApiServerTls {
      return current;
    },
    /** Reads all sources again. @throws the error of a source that cannot be read */
    async reload(): Promise<void> {
      own = await certificate();
      await reloadAuthorities();
    },
    /** Reads only the CAs again, without running a credential plugin. */
    reloadAuthorities,
  };
}

function isSame(one: ApiServerTls, other: ApiServerTls): boolean {
  return one.ca === other.ca && one.cert === other.cert && one.key === other.key;
}

/**
 * Loads the TLS settings to find errors before the first connection. The CA file is parsed first, because OpenSSL would
 * accept a file without certificates, and then trust no server.
 */
function checked(tls: ApiServerTls, where: string): ApiServerTls {
  try {
    if (tls.ca !== undefined) void new X509Certificate(tls.ca);
  } catch (cause) {
    const problem = `${where}: the CAs of the API server cannot be used: ${errorText(cause)}`;
    throw new TailcastError('CONFIG_INVALID', problem, { cause });
  }
  try {
    createSecureContext({ ca: tls.ca, cert: tls.cert, key: tls.key });
  } catch (cause) {
    throw new TailcastError(
      'CONFIG_INVALID',
      `${where}: the certificates cannot be used (is the key the certificate's?): ${errorText(cause)}`,
      { cause },
    );
  }
  return tls;
}

/**
 * Returns a function that returns the PEM text from the kubeconfig, or from a file that it reads again after changes.
 * Returns undefined if neither is configured.
 *
 * @param from.what name with which errors refer to the text
 * @throws TailcastError `CONFIG_INVALID`; the returned function also throws this error until it has read the file once
 */
export function pemSource(from: {
  /** PEM text in base64. Takes precedence over `path`. */
  readonly data: string | undefined;
  readonly path: string | undefined;
  /** Kubeconfig in which the path is configured. */
  readonly file?: string;
  readonly what: string;
  readonly now: () => number;
}): (() => Promise<string>) | undefined {
  const { data, path, file, what, now } = from;
  if (data !== undefined && data !== '') {
    const pem = decodePem(data, `${what}-data`);
    return async () => pem;
  }
  if (path === undefined || path === '') return undefined;
  const absolute = file === undefined ? path : pathInKubeconfig(path, file);
  return createReloadedFile({ path: absolute, what, now, maxBytes: MAX_PEM_BYTES });
}

function decodePem(data: string, where: string): string {
  if (!/^[A-Za-z0-9+/\s]+={0,2}\s*$/.test(data)) {
    throw new TailcastError('CONFIG_INVALID', `${where} is not base64; encode the PEM text`);
  }
  const text = Buffer.from(data, 'base64').toString('utf8');
  if (text.includes('-----BEGIN ')) return text;
  throw new TailcastError('CONFIG_INVALID', `${where} holds no PEM block (-----BEGIN …-----)`);
}
