import { fileURLToPath } from 'node:url';
import { z } from 'zod';

/** Directory of the built player. The relative path is the same from `src` and from `dist`. */
export const PLAYER_DIRECTORY = fileURLToPath(new URL('../../dist/player', import.meta.url));

const OFFLINE_MODULE = z.object({ default: z.string() });

/** Returns the HTML of the player page for an exported recording. */
export async function readOfflinePage(): Promise<string> {
  const built: unknown = await import(new URL('../../dist/player/offline.js', import.meta.url).href);
  return OFFLINE_MODULE.parse(built).default;
}
