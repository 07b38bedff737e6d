/** Writes a recording as one HTML file (`bundle-format`), with one piece in memory at a time. */
import type { ListedRecording } from '../wire/recorder-api/recording.ts';
import {
  BUNDLE_MARK,
  BUNDLE_VERSION,
  BUNDLE_PIECE_BYTES,
  type BundleFile,
  type BundleManifest,
} from './bundle-format.ts';
import { isRecord } from '../wire/is-record.ts';

/** Sources of the data. The player page and the command line each implement this interface. */
export interface BundleSources {
  readonly recording: ListedRecording;
  readonly cast: () => AsyncIterable<Uint8Array>;
  /** Undefined if the recording has no sidecar. */
  readonly sidecar: () => Promise<Uint8Array | undefined>;
  readonly notes: () => Promise<AsyncIterable<Uint8Array> | undefined>;
  /** JSON response of `/evidence`. Only the key and the number of parts are used. */
  readonly evidence: () => Promise<unknown>;
}

export interface BundleOptions {
  /** The built page, with the placeholder for the blocks. */
  readonly page: string;
  /** RFC 3339, UTC. */
  readonly madeAt: string;
  /** Progress from 0 to 1. */
  readonly onProgress?: (share: number) => void;
}

const encoder = new TextEncoder();

/**
 * Returns the text of the HTML file in pieces.
 *
 * @throws RangeError if `page` has no placeholder.
 */
export async function* writeBundle(sources: BundleSources, options: BundleOptions): AsyncGenerator<string> {
  const { page, madeAt, onProgress = () => undefined } = options;
  const [before, after, ...more] = page.split(BUNDLE_MARK);
  if (before === undefined || after === undefined || more.length > 0)
    throw new RangeError('this page is not a template for bundles');
  const { recording } = sources;
  const files: Partial<Record<BundleFile, { readonly bytes: number }>> = {};
  async function* put(name: BundleFile, chunks: AsyncIterable<Uint8Array>): AsyncGenerator<string> {
    let bytes = 0;
    let number = 0;
    for await (const piece of inPieces(chunks)) {
      bytes += piece.length;
      const packed = (await gzip(piece)).toBase64();
      yield `<script type="text/plain" data-file="${name}" data-piece="${number}">${packed}</script>\n`;
      number += 1;
      if (name === 'cast') onProgress(Math.min(1, bytes / Math.max(1, recording.bytes)));
    }
    files[name] = { bytes };
  }

  yield before;
  const { key, parts } = signatureOf(await sources.evidence());
  const sidecar = await sources.sidecar();
  if (sidecar === undefined || parts > 1) yield* put('recording', json(recording));
  if (key !== undefined) yield* put('key', once(encoder.encode(key)));
  if (sidecar !== undefined) yield* put('sidecar', once(sidecar));
  const notes = await sources.notes();
  if (notes !== undefined) yield* put('notes', notes);
  yield* put('cast', sources.cast());
  const manifest: BundleManifest = { version: BUNDLE_VERSION, id: recording.id, madeAt, parts, files };
  yield `<script type="application/json" data-bundle>${escaped(JSON.stringify(manifest))}</script>\n`;
  yield after;
}

function signatureOf(known: unknown): { readonly key: string | undefined; readonly parts: number } {
  const { evidence, parts } = isRecord(known) ? known : {};
  const signedBy: unknown = isRecord(evidence) ? evidence['signedBy'] : undefined;
  const pem: unknown = isRecord(signedBy) ? signedBy['pem'] : undefined;
  return { key: typeof pem === 'string' ? pem : undefined, parts: typeof parts === 'number' ? parts : 1 };
}

async function* once(bytes: Uint8Array): AsyncGenerator<Uint8Array> {
  yield bytes;
}

function json(value: unknown): AsyncGenerator<Uint8Array> {
  return once(encoder.encode(JSON.stringify(value)));
}

/** Escapes text so that it cannot end the `<script>` block that contains it. */
function escaped(text: string): string {
  return text.replaceAll('<', '\\u003c');
}

/** Splits chunks into pieces of equal length; the last piece may be shorter. */
async function* inPieces(chunks: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array<ArrayBuffer>> {
  let piece = new Uint8Array(BUNDLE_PIECE_BYTES);
  let used = 0;
  for await (const chunk of chunks) {
    for (let start = 0; start < chunk.length;) {
      const part = chunk.subarray(start, start + BUNDLE_PIECE_BYTES - used);
      piece.set(part, used);
      used += part.length;
      start += part.length;
      if (used < BUNDLE_PIECE_BYTES) continue;
      yield piece;
      piece = new Uint8Array(BUNDLE_PIECE_BYTES);
      used = 0;
    }
  }
  if (used > 0) yield piece.subarray(0, used);
}

async function gzip(bytes: Uint8Array<ArrayBuffer>): Promise<Uint8Array> {
  const packed = new Blob([bytes]).stream().pipeThrough(new CompressionStream('gzip'));
  return new Uint8Array(await new Response(packed).arrayBuffer());
}
