/** Start of the page. The page imports this module first. */
import { createFirstRequests } from './first-requests.ts';
import { loadPlayerViews } from './load-player-views.ts';
import { parseRoute } from './route.ts';

const { ask, askFirst } = createFirstRequests((path, options) => fetch(path, options));
// `main.tsx` explains why this code runs after the evaluation of the script. The code still runs before the rendering.
queueMicrotask(() => {
  const route = parseRoute(location.hash);
  askFirst(route, document.hidden);
  // the view reports the error
  if (route.view !== 'list') loadPlayerViews().catch(() => undefined);
});

export { ask };
