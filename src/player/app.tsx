import { useEffect, useState } from 'preact/hooks';
import type { JSX } from 'preact';
import { ListView } from './list-view.tsx';
import { RecordingView } from './recording-view.tsx';
import { parseRoute, type Route } from './route.ts';
import { WallView } from './wall-view.tsx';

/** Shows the view of the current address, and follows changes of the address. */
export function App(): JSX.Element {
  const [route, setRoute] = useState(() => parseRoute(location.hash));
  useEffect(() => {
    const follow = (): void => setRoute(parseRoute(location.hash));
    // each view restores its own scroll position
    history.scrollRestoration = 'manual';
    addEventListener('hashchange', follow);
    return () => removeEventListener('hashchange', follow);
  }, []);
  return (
    <>
      <header>
        <a href="#/" class="brand">
          <img src="./icon.svg" alt="" width="24" height="24" />
          tailcast <span>recordings</span>
        </a>
        <nav aria-label="Views">
          <a href="#/" aria-current={route.view === 'list' ? 'page' : undefined}>
            Recordings
          </a>
          <a href="#/live" aria-current={route.view === 'wall' ? 'page' : undefined}>
            Live
          </a>
        </nav>
      </header>
      <main>
        <View route={route} />
      </main>
    </>
  );
}

function View({ route }: { readonly route: Route }): JSX.Element {
  switch (route.view) {
    case 'list':
      return <ListView filter={route.filter} query={route.query} />;
    case 'wall':
      return <WallView />;
    case 'recording':
      return (
        <RecordingView
          key={route.id}
          id={route.id}
          startAt={route.at}
          find={route.find ?? ''}
          query={route.query ?? ''}
        />
      );
  }
}
