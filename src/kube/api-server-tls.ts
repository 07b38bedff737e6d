/**
 * What connections to the API server are opened with: the authorities it is checked against and the client certificate. Both
 * are followed where they stand in files that somebody else replaces; Kubernetes does that with `ca.crt` of its accounts.
 */
import { X509Certificate } from 'node:crypto';
import { createSecureContext } from 'node:tls';
import { TailcastError, errorText } from '../errors.ts';
import { pathInKubeconfig } from './kubeconfig.ts';
import { createReloadedFile } from './token.ts';

/** What `tls.connect` needs besides host, port and server name. */
export interface ApiServerTls {
  /** PEM; undefined: the roots that Node ships with. */
  readonly ca: string | undefined;
  /** PEM of a client certificate and its key; both or none. */
  readonly cert: string | undefined;
  readonly key: string | undefined;
  readonly rejectUnauthorized: boolean;
}

/** Bundles of all the authorities there are have some 250 KB. */
const MAX_PEM_BYTES = 4 * 1024 * 1024;

export type ClientCertificate = Pick<ApiServerTls, 'cert' | 'key'>;

export const NO_CERTIFICATE: ClientCertificate = { cert: undefined, key: undefined };

export interface TlsSources {
  /** Undefined: the roots that Node ships with. */
  readonly authorities: (() => Promise<string>) | undefined;
  readonly certificate: () => Promise<ClientCertificate>;
  readonly rejectUnauthorized: boolean;
}

export interface FollowedTls {
  /** The last that could be used: the same object until something in it is replaced. */
  readonly current: ApiServerTls;
  /** Asks all sources again. @throws what a source throws */
  look(): Promise<void>;
  /** Asks for the authorities alone: no plugin is run for them. */
  lookAtAuthorities(): Promise<void>;
}

/**
 * Asks the sources once before it resolves, and then when it is told to.
 *
 * @param about.where the place that an error names
 * @param about.onUnusable told once of what was put in place of the former and cannot be used
 * @throws TailcastError `CONFIG_INVALID`
 */
export async function followTls(
  { authorities, certificate, rejectUnauthorized }: TlsSources,
  about: { readonly where: string; readonly onUnusable?: ((error: TailcastError) => void) | undefined },
): Promise<FollowedTls> {
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
      // a certificate and its key are two files, and one of them is replaced first
      refused = next;
      about.onUnusable?.(error);
    }
  }

  async function lookAtAuthorities(): Promise<void> {
    ca = await authorities?.();
    use();
  }
  return {
    get current() {
      return current;
    },
    async look() {
      own = await certificate();
      await lookAtAuthorities();
    },
    lookAtAuthorities,
  };
}

function isSame(one: ApiServerTls, other: ApiServerTls): boolean {
  return one.ca === other.ca && one.cert === other.cert && one.key === other.key;
}

/** OpenSSL's opinion now instead of at the first connection. Authorities without a certificate are no error to it: it trusts nobody then. */
function checked(tls: ApiServerTls, where: string): ApiServerTls {
  try {
    if (tls.ca !== undefined) void new X509Certificate(tls.ca);
  } catch (cause) {
    const problem = `${where}: the authorities of the API server cannot be used: ${errorText(cause)}`;
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
 * PEM text of a kubeconfig, or of a file that is followed; undefined when there is neither.
 *
 * @param from.what its name, for the error sentence
 * @throws TailcastError `CONFIG_INVALID`, as the function does as long as the file was never readable
 */
export function pemSource(from: {
  /** Base64. */
  readonly data: string | undefined;
  readonly path: string | undefined;
  /** The kubeconfig that names the path. */
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
