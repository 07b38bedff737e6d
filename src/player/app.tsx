import { List, LayoutGrid } from 'lucide';
import { useLayoutEffect, useState } from 'preact/hooks';
import type { JSX } from 'preact';
import { CommandPalette } from './command-palette.tsx';
import { Icon } from './icon.tsx';
import logo from './icon.svg?raw';
import { ListView } from './list-view.tsx';
import { loadPlayerViews } from './load-player-views.ts';
import { UnknownPage } from './problem-view.tsx';
import { parseRoute, type Route } from './route.ts';
import { SettingsMenu } from './settings-menu.tsx';
import { WithPlayerViews } from './with-player-views.tsx';

/** Delay after which the page loads the script with the player, in milliseconds. */
const PLAYER_DELAY_MS = 1000;

/** Shows the view that the address of the page selects, and changes the view when the address changes. */
export function App(): JSX.Element {
  const [route, setRoute] = useState(() => parseRoute(location.hash));
  // a normal effect could run after the effect of a view that has already changed the address
  useLayoutEffect(() => {
    const follow = (): void => setRoute(parseRoute(location.hash));
    // disables the browser's scroll restoration, because each view restores its own scroll position
    history.scrollRestoration = 'manual';
    addEventListener('hashchange', follow);
    // loads the script before the user opens a recording, but after the first rows of the list
    setTimeout(() => void loadPlayerViews().catch(() => undefined), PLAYER_DELAY_MS);
    return () => removeEventListener('hashchange', follow);
  }, []);
  return (
    <>
      <header>
        <a href="#/" class="brand" aria-label="tailcast recordings">
          {/* an `img` element would delay the first rows, because the browser loads an SVG file as a document */}
          <div class="logo" dangerouslySetInnerHTML={{ __html: logo }} />
          <span>tailcast</span>
        </a>
        <nav aria-label="Views">
          <a href="#/" aria-current={route.view === 'list' ? 'page' : undefined}>
            <Icon icon={List} /> Recordings
          </a>
          <a href="#/live" aria-current={route.view === 'wall' ? 'page' : undefined}>
            <Icon icon={LayoutGrid} /> Live
          </a>
        </nav>
        <span class="spacer" />
        <CommandPalette />
        <SettingsMenu />
      </header>
      <main class={`view-${route.view}`}>
        <View route={route} />
      </main>
    </>
  );
}

function View({ route }: { readonly route: Route }): JSX.Element {
  switch (route.view) {
    case 'list':
      return <ListView filter={route.filter} query={route.query} sort={route.sort} />;
    case 'wall':
      return <WithPlayerViews show={({ WallView }) => <WallView text={route.text} />} />;
    case 'compare':
      return (
        <WithPlayerViews show={({ CompareView }) => <CompareView key={route.ids.join()} ids={route.ids} />} />
      );
    case 'unknown':
      return <UnknownPage path={route.path} />;
    case 'recording':
      return (
        <WithPlayerViews
          show={({ RecordingView }) => (
            <RecordingView
              key={route.id}
              id={route.id}
              startAt={route.at}
              find={route.find ?? ''}
              query={route.query ?? ''}
            />
          )}
        />
      );
  }
}
