import { fileURLToPath } from 'node:url';

/** Directory of the built player, for both sources and builds. */
export const PLAYER_DIRECTORY = fileURLToPath(new URL('../../dist/player', import.meta.url));

/** Page of an exported recording. */
export const OFFLINE_PAGE = fileURLToPath(new URL('../../dist/player/offline.html', import.meta.url));
