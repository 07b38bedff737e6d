/**
 * A recording as one HTML file that needs no network: the player page, and the files of the recording in `<script>`
 * blocks that browsers do not run. Pure.
 *
 * ```
 * <script type="text/plain" data-file="cast" data-piece="0">base64(gzip(first BUNDLE_PIECE_BYTES bytes))</script>
 * …
 * <script type="application/json" data-bundle>{"version", "id", "madeAt", "files": {"cast": {"bytes"}, …}}</script>
 * ```
 *
 * Each piece is compressed separately, so the page can read any range of a long cast without the other pieces.
 */
import { jsonOrUndefined } from '../wire/json-value.ts';
import { isRecord } from '../wire/is-record.ts';

export const BUNDLE_VERSION = 2;
/** Size of each piece of a file except the last, in bytes. */
export const BUNDLE_PIECE_BYTES = 256 * 1024;
/** Placeholder in the built page. The blocks of the bundle replace it. */
export const BUNDLE_MARK = '<!--bundle-->';

/**
 * `cast`, `sidecar`, `notes`: the files of the store. `key`: the public key of the sidecar's signature, PEM. The page
 * shows only data from these files. `recording`: the entry of the recording in the recorder's list; used only if the
 * recording has no sidecar, or if its session has several uploads.
 */
const BUNDLE_FILES = ['recording', 'cast', 'sidecar', 'notes', 'key'] as const;
export type BundleFile = (typeof BUNDLE_FILES)[number];

/** Content of the last block, which describes the other blocks. */
export interface BundleManifest {
  readonly version: typeof BUNDLE_VERSION;
  readonly id: string;
  /** RFC 3339, UTC. */
  readonly madeAt: string;
  /**
   * Number of uploads of the session. A session with several uploads cannot be verified, because the bundle contains
   * only the sidecar of the first upload.
   */
  readonly parts: number;
  /** The files of the bundle. */
  readonly files: Readonly<Partial<Record<BundleFile, { readonly bytes: number }>>>;
}

/** @returns undefined for an invalid or incomplete manifest, or a manifest of another version. */
export function parseManifest(text: string): BundleManifest | undefined {
  const parsed = jsonOrUndefined(text);
  if (!isRecord(parsed) || parsed['version'] !== BUNDLE_VERSION || !isRecord(parsed['files']))
    return undefined;
  const { id, madeAt, parts, files } = parsed;
  if (typeof id !== 'string' || typeof madeAt !== 'string' || typeof parts !== 'number') return undefined;
  const known: Partial<Record<BundleFile, { readonly bytes: number }>> = {};
  for (const name of BUNDLE_FILES) {
    const file: unknown = files[name];
    if (isRecord(file) && typeof file['bytes'] === 'number') known[name] = { bytes: file['bytes'] };
  }
  return { version: BUNDLE_VERSION, id, madeAt, parts, files: known };
}

/**
 * Returns a sentence that states how many bytes are missing at the beginning of the session. Returns undefined if the
 * recording contains the beginning. The data comes from the signed sidecar.
 */
export function missingBeginning(sidecar: unknown): string | undefined {
  const part: unknown = isRecord(sidecar) ? sidecar['part'] : undefined;
  const offset: unknown = isRecord(part) ? part['offset'] : undefined;
  return typeof offset === 'number' && offset > 0
    ? `the beginning of the session is missing: ${offset} bytes of the upload are in another recording, or lost`
    : undefined;
}
