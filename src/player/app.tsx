import { useEffect, useState } from 'preact/hooks';
import type { JSX } from 'preact';
import { ListView } from './list-view.tsx';
import { RecordingView } from './recording-view.tsx';
import { parseRoute } from './route.ts';

/** Shows the view the address names, and follows the address. */
export function App(): JSX.Element {
  const [route, setRoute] = useState(() => parseRoute(location.hash));
  useEffect(() => {
    const follow = (): void => setRoute(parseRoute(location.hash));
    // each view knows its own place
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
      </header>
      <main>
        {route.view === 'list' ? (
          <ListView filter={route.filter} />
        ) : (
          <RecordingView key={route.id} id={route.id} startAt={route.at} find={route.find ?? ''} />
        )}
      </main>
    </>
  );
}
