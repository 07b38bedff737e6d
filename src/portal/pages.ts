/**
 * The page of the portal. It is the player that came with this gateway, and not what a recorder would send: a page on the
 * gateway's own name can call the API server as whoever looks at it, so its scripts must be the gateway's. From recorders
 * come data only. For the same reason the page may load and call nothing but what lies below its own path: another path of
 * this name may be a pod's.
 */
import { createHash } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import { extname, join } from 'node:path';
import { PORTAL_PATH } from './routes.ts';

/** One file of the page, in memory. */
export interface PageFile {
  readonly bytes: Buffer;
  /** The same, brotli; absent when it was not built so. */
  readonly packed?: Buffer;
  readonly type: string;
  /** Strong entity tag. */
  readonly tag: string;
}

/** By name within the built player. */
export type PageFiles = ReadonlyMap<string, PageFile>;

const TYPES: ReadonlyMap<string, string> = new Map([
  ['.html', 'text/html; charset=utf-8'],
  ['.js', 'text/javascript; charset=utf-8'],
  ['.css', 'text/css; charset=utf-8'],
  ['.svg', 'image/svg+xml'],
  ['.wasm', 'application/wasm'],
  ['.woff2', 'font/woff2'],
]);

/** More is no player of ours. */
const MAX_FILES = 200;

/**
 * Reads the built player.
 * @returns no files when there is none, e.g. in a checkout that was not built
 */
export async function loadPageFiles(directory: string): Promise<PageFiles> {
  const files = new Map<string, PageFile>();
  for (const folder of ['', 'assets']) {
    const entries = await readdir(join(directory, folder), { withFileTypes: true }).catch(() => []);
    for (const entry of entries) {
      const type = TYPES.get(extname(entry.name));
      if (!entry.isFile() || type === undefined || files.size >= MAX_FILES) continue;
      const path = join(directory, folder, entry.name);
      const bytes = await readFile(path);
      const packed = await readFile(`${path}.br`).catch(() => undefined);
      const tag = `"${createHash('sha256').update(bytes).digest('base64url').slice(0, 22)}"`;
      files.set(folder === '' ? entry.name : `${folder}/${entry.name}`, {
        bytes,
        type,
        tag,
        ...(packed === undefined ? {} : { packed }),
      });
    }
  }
  return files;
}

/** What every answer of the portal carries, as a flat list. */
const COMMON_HEADERS = [
  'x-content-type-options',
  'nosniff',
  'referrer-policy',
  'no-referrer',
  'cross-origin-opener-policy',
  'same-origin',
  'cross-origin-resource-policy',
  'same-origin',
  'permissions-policy',
  'camera=(), geolocation=(), microphone=()',
] as const;

/** For what is no page: nothing in it can act, whatever a browser takes it for. */
export const DATA_HEADERS: readonly string[] = [
  ...COMMON_HEADERS,
  'content-security-policy',
  "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; sandbox",
];

/** A host that can stand in a policy as it is; an IPv6 address cannot. */
const POLICY_HOST = /^[a-z0-9](?:[a-z0-9.-]{0,252}[a-z0-9])?(?::\d{1,5})?$/i;

/**
 * For the page and its files.
 * @param host the `Host` under which the page was asked for
 */
export function pageHeaders(host: string): readonly string[] {
  const known = POLICY_HOST.test(host);
  const assets = known ? `https://${host}${PORTAL_PATH}/assets/` : "'self'";
  const images = known ? `https://${host}${PORTAL_PATH}/` : "'self'";
  const calls = known ? `https://${host}${PORTAL_PATH}/api/ wss://${host}${PORTAL_PATH}/api/` : "'self'";
  const policy = [
    "default-src 'none'",
    `script-src ${assets}`,
    `style-src ${assets}`,
    `img-src ${images} data:`,
    `font-src ${assets} data:`,
    `connect-src ${calls}`,
    `worker-src ${assets}`,
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
  ].join('; ');
  return [...COMMON_HEADERS, 'content-security-policy', policy];
}
