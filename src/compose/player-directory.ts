import { fileURLToPath } from 'node:url';

/** Where the built player lies, for sources and for the build alike. */
export const PLAYER_DIRECTORY = fileURLToPath(new URL('../../dist/player', import.meta.url));
