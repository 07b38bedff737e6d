import { readFileSync } from 'node:fs';
import { z } from 'zod';

/** Build data in `package.json`, which is next to `dist/` or `src/`. */
const MANIFEST = z
  .object({
    version: z.string(),
    /** The commit is set only in releases. */
    commit: z.string().optional(),
    publishing: z.object({ image: z.string() }),
  })
  .parse(JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8')));

export const VERSION = MANIFEST.version;

/** Text of `--version`: the version and, if known, the commit. */
export const VERSION_TEXT = MANIFEST.commit === undefined ? VERSION : `${VERSION} (${MANIFEST.commit})`;

/** Container image of this version. */
export const IMAGE = `${MANIFEST.publishing.image}:v${VERSION}`;
