import { readFileSync } from 'node:fs';
import { z } from 'zod';

/** What `package.json` beside `dist/` or `src/` says of this build. */
const MANIFEST = z
  .object({
    version: z.string(),
    /** Only in what a release made. */
    commit: z.string().optional(),
    publishing: z.object({ image: z.string() }),
  })
  .parse(JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8')));

/** The version of this build. */
export const VERSION = MANIFEST.version;

/** What `--version` prints: the version, and the commit where it is known. */
export const VERSION_TEXT = MANIFEST.commit === undefined ? VERSION : `${VERSION} (${MANIFEST.commit})`;

/** The image of this version. */
export const IMAGE = `${MANIFEST.publishing.image}:v${VERSION}`;
