/**
 * Serves the read API to the page of a bundle, with data from the bundle itself. If the bundle is signed and the
 * session has one part, the data comes from files that the signature covers and `check-bundle.ts` verifies. The
 * description then comes from the signed sidecar; screens, timeline and transcript are computed from the cast.
 */
import type { PlayIndex } from '../screen/play-index.ts';
import type { TranscriptDocument } from '../search/transcript-document.ts';
import { jsonOrUndefined } from '../wire/json-value.ts';
import { decodeRecording, type ListedRecording } from '../wire/recorder-api/recording.ts';
import { splitSignature } from '../wire/recorder-api/sidecar-signature.ts';
import { buildPlayIndex, type KnownPlace } from './build-index.ts';
import { BUNDLE_PIECE_BYTES, missingBeginning } from './bundle-format.ts';
import type { BundleReader } from './read-bundle.ts';
import { isRecord } from '../wire/is-record.ts';

/** The paths of the read API for one recording, as `player/archive` requests them. */
export type AnswerBundle = (
  path: string,
  options: { readonly headers: Readonly<Record<string, string>> },
) => Promise<Response>;

interface Derived {
  readonly index: PlayIndex;
  readonly frames: readonly string[];
  readonly transcript: TranscriptDocument;
}

/**
 * Creates the API of one page. The first request for the timeline or the transcript plays the recording, and later
 * requests use the same result.
 */
export function answerBundle(bundle: BundleReader): AnswerBundle {
  let progress = 0;
  let derived: Promise<void> | undefined;
  let made: Derived | undefined;

  /**
   * @returns undefined while the cast is still being played. @throws WireError if the first line of the cast is not a
   * header
   */
  async function derive(): Promise<Derived | undefined> {
    derived ??= deriveFrom(bundle, (share) => (progress = share)).then((found) => {
      made = found;
    });
    // The data of a short recording is ready after this delay. For a long recording, the first response contains only
    // the progress.
    await Promise.race([derived, turns()]);
    return made;
  }

  return async (path, { headers }) => {
    const url = new URL(path, 'http://file.invalid/');
    const part = /^\/api\/v1\/recordings\/[^/]+(?:\/([a-z]+))?$/.exec(url.pathname)?.[1] ?? 'recording';
    switch (part) {
      case 'recording':
        return Response.json(await readRecording(bundle));
      case 'cast':
        return castRange(bundle, headers['range'] ?? '');
      case 'evidence':
        return Response.json(await describeSigned(bundle));
      case 'playback':
      case 'transcript': {
        const found = await derive().catch(() => 'none' as const);
        if (found === 'none') return new Response('{}', { status: 404 });
        if (found === undefined) return Response.json({ progress });
        if (part === 'transcript') return Response.json(found.transcript);
        return answerPlayback(found, url.searchParams.get('frame'));
      }
      default:
        return new Response('{}', { status: 404 });
    }
  };
}

async function turns(): Promise<void> {
  await new Promise((resolve) => setTimeout(resolve, 50));
}

function answerPlayback({ index, frames }: Derived, frame: string | null): Response {
  if (frame === null) return Response.json(index);
  const screen = frames[Number(frame)];
  return screen === undefined ? new Response('{}', { status: 404 }) : Response.json(screen);
}

async function deriveFrom(bundle: BundleReader, onProgress: (share: number) => void): Promise<Derived> {
  const frames: string[] = [];
  const total = bundle.manifest.files.cast?.bytes ?? 0;
  const built = await buildPlayIndex({
    chunks: piecesOf(bundle, total),
    places: gapsOf(await readSidecar(bundle)),
    onFrame: async (screen) => void frames.push(screen),
    onProgress: (bytes) => onProgress(bytes / Math.max(1, total)),
  });
  return { ...built, frames };
}

async function* piecesOf(bundle: BundleReader, total: number): AsyncGenerator<Uint8Array> {
  for (let at = 0; at < total; at += BUNDLE_PIECE_BYTES)
    yield bundle.read('cast', at, at + BUNDLE_PIECE_BYTES);
}

type Fields = Readonly<Record<string, unknown>>;

/** Returns the sidecar; undefined if the recording has no sidecar, or if its session has several uploads. */
async function readSidecar(bundle: BundleReader): Promise<Fields | undefined> {
  if (!bundle.has('sidecar') || bundle.manifest.parts > 1) return undefined;
  const parsed = jsonOrUndefined(new TextDecoder().decode(await bundle.read('sidecar')));
  return isRecord(parsed) ? parsed : undefined;
}

/** @throws Error if the bundle contains no valid description of the recording */
async function readRecording(bundle: BundleReader): Promise<ListedRecording> {
  const sidecar = await readSidecar(bundle);
  const listed: unknown =
    sidecar === undefined
      ? jsonOrUndefined(new TextDecoder().decode(await bundle.read('recording')))
      : object(sidecar['recording']);
  const decoded = decodeRecording(listed);
  if (decoded === undefined) throw new Error('The description of the recording in this file cannot be read.');
  // A forged bundle can contain any trust level. The page shows the result of `check-bundle.ts` instead.
  const { trust: _trust, trustReason: _reason, ...recording } = decoded;
  const missing = missingBeginning(sidecar);
  if (missing === undefined) return recording;
  const { state, problem } = recording;
  return {
    ...recording,
    state: state === 'completed' ? 'interrupted' : state,
    problem: problem === undefined ? missing : `${missing}; ${problem}`,
  };
}

/** Returns the evidence of the session in the format of `/evidence`. */
async function describeSigned(bundle: BundleReader): Promise<Fields> {
  const sidecar = await readSidecar(bundle);
  const text = sidecar === undefined ? '' : new TextDecoder().decode(await bundle.read('sidecar'));
  const { log, start, adopted } = object(sidecar?.['evidence']);
  const { log: from, start: entry, key } = object(adopted);
  const signature = splitSignature(text);
  const signedBy =
    signature === undefined
      ? {}
      : {
          signedBy: {
            key: signature.keyId,
            owner: 'unknown',
            log,
            entry: start,
            ...(adopted === undefined ? {} : { adopted: { log: from, entry, key } }),
          },
        };
  return {
    evidence: { verdict: 'none', checkedAt: bundle.manifest.madeAt, findings: [], ...signedBy },
    ...(sidecar?.['session'] === undefined ? {} : { session: sidecar['session'] }),
    gaps: sidecar?.['gaps'] ?? [],
    gapCount: sidecar?.['gapCount'] ?? 0,
    parts: bundle.manifest.parts,
    related: { caller: [], pod: [] },
  };
}

function gapsOf(sidecar: Fields | undefined): readonly KnownPlace[] {
  const gaps: unknown = sidecar?.['gaps'];
  if (!Array.isArray(gaps)) return [];
  return gaps.filter(isRecord).map(({ at, bytes, reason }) => ({
    offset: Number(at),
    kind: 'gap',
    text: `${typeof bytes === 'number' ? `${bytes} bytes of output` : 'output'} missing: ${String(reason)}`,
  }));
}

async function castRange(bundle: BundleReader, range: string): Promise<Response> {
  const [, from = '0', to = '0'] = /^bytes=(\d+)-(\d+)$/.exec(range) ?? [];
  const total = bundle.manifest.files.cast?.bytes ?? 0;
  const start = Number(from);
  if (start >= total) return new Response(null, { status: 416 });
  const end = Math.min(total, Number(to) + 1);
  return new Response(await bundle.read('cast', start, end), {
    status: 206,
    headers: { 'content-range': `bytes ${start}-${end - 1}/${total}` },
  });
}

function object(value: unknown): Fields {
  return isRecord(value) ? value : {};
}
