import { fileURLToPath } from 'node:url';
import { z } from 'zod';

/** Directory of the built player, for both sources and builds. */
export const PLAYER_DIRECTORY = fileURLToPath(new URL('../../dist/player', import.meta.url));

const OFFLINE_MODULE = z.object({ default: z.string() });

/** Returns the page of an exported recording. */
export async function readOfflinePage(): Promise<string> {
  const built: unknown = await import(new URL('../../dist/player/offline.js', import.meta.url).href);
  return OFFLINE_MODULE.parse(built).default;
}
