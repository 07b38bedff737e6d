/** Start of the page. The page imports this module first. */
import { createFirstRequests } from './first-requests.ts';
import { loadPlayerViews } from './load-player-views.ts';
import { parseRoute } from './route.ts';

const { ask, askFirst } = createFirstRequests((path, options) => fetch(path, options));
const route = parseRoute(location.hash);
askFirst(route);
// the view reports the error
if (route.view !== 'list') loadPlayerViews().catch(() => undefined);

export { ask };
