/** Start of the page: a small script of its own, which runs while the browser still loads the others. */
import { createFirstRequests } from './first-requests.ts';
import { loadPlayerViews } from './load-player-views.ts';
import { parseRoute } from './route.ts';

const { ask, askFirst } = createFirstRequests((path, options) => fetch(path, options));
const route = parseRoute(location.hash);
askFirst(route, document.hidden);
// the view reports the error
if (route.view !== 'list') loadPlayerViews().catch(() => undefined);

export { ask };
