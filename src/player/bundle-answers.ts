/** Answers what a recorder would be asked, from the file that the page is part of. */
import { parseManifest, type BundleFile } from '../bundle/bundle-format.ts';
import { openBundle, type BundleReader } from '../bundle/read-bundle.ts';
import type { Ask } from './recorder-context.ts';

/** @returns undefined when the page has no recording in it, or only the beginning of one. */
export function findBundle(page: Document): BundleReader | undefined {
  const text = page.querySelector('script[data-bundle]')?.textContent;
  const manifest = text === undefined || text === null ? undefined : parseManifest(text);
  if (manifest === undefined) return undefined;
  const blocks = new Map<string, Element>();
  for (const block of page.querySelectorAll('script[data-file]'))
    blocks.set(`${block.getAttribute('data-file')} ${block.getAttribute('data-piece')}`, block);
  return openBundle(manifest, (file, piece) => blocks.get(`${file} ${piece}`)?.textContent ?? undefined);
}

/** The paths of the read API that play one recording: as `archive.ts` and `cast-source.ts` ask for them. */
export function askBundle(bundle: BundleReader): Ask {
  return async (path, { headers }) => {
    const url = new URL(path, 'http://file.invalid/');
    const part = /^\/api\/v1\/recordings\/[^/]+(?:\/([a-z]+))?$/.exec(url.pathname)?.[1] ?? 'recording';
    if (part === 'cast') return castRange(bundle, headers['range'] ?? '');
    if (part === 'playback') return playback(bundle, url.searchParams.get('frame'));
    const file = FILES.get(part);
    if (file === undefined || !bundle.has(file)) return new Response('{}', { status: 404 });
    return new Response(await bundle.read(file));
  };
}

const FILES: ReadonlyMap<string, BundleFile> = new Map([
  ['recording', 'recording'],
  ['evidence', 'evidence'],
  ['transcript', 'transcript'],
]);

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

/** The index as it was derived, or one of its screens. */
async function playback(bundle: BundleReader, frame: string | null): Promise<Response> {
  if (!bundle.has('index')) return new Response('{}', { status: 404 });
  const stored: unknown = JSON.parse(new TextDecoder().decode(await bundle.read('index')));
  const { index, offsets } = asStored(stored);
  if (frame === null) return Response.json(index);
  const [start, end] = [offsets[Number(frame)], offsets[Number(frame) + 1]];
  if (start === undefined || end === undefined) return new Response('{}', { status: 404 });
  return new Response(await bundle.read('frames', start, end));
}

/** As `write-bundle` puts it. */
function asStored(value: unknown): { readonly index: unknown; readonly offsets: readonly number[] } {
  const isStored = typeof value === 'object' && value !== null && 'index' in value && 'offsets' in value;
  if (!isStored || !Array.isArray(value.offsets)) return { index: undefined, offsets: [] };
  return { index: value.index, offsets: value.offsets.map(Number) };
}
