import { fileURLToPath } from 'node:url';

/** Where the built player lies, for sources and for the build alike. */
export const PLAYER_DIRECTORY = fileURLToPath(new URL('../../dist/player', import.meta.url));

/** The page of an exported recording, for whoever writes one. */
export const OFFLINE_PAGE = fileURLToPath(new URL('../../dist/player/offline.html', import.meta.url));
