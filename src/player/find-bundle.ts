/** Finds the recording that is embedded in the page. */
import { parseManifest } from '../bundle/bundle-format.ts';
import { openBundle, type BundleReader } from '../bundle/read-bundle.ts';

/** @returns undefined if the page contains no recording or a truncated recording */
export function findBundle(page: Document): BundleReader | undefined {
  const text = page.querySelector('script[data-bundle]')?.textContent;
  const manifest = text === undefined || text === null ? undefined : parseManifest(text);
  if (manifest === undefined) return undefined;
  const blocks = new Map<string, Element>();
  for (const block of page.querySelectorAll('script[data-file]'))
    blocks.set(`${block.getAttribute('data-file')} ${block.getAttribute('data-piece')}`, block);
  return openBundle(manifest, (file, piece) => blocks.get(`${file} ${piece}`)?.textContent ?? undefined);
}
