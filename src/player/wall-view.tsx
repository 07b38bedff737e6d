/** Running sessions side by side, each with its live screen. A stopped session stays visible with a notice. */
import type { JSX } from 'preact';
import { useContext, useEffect, useState } from 'preact/hooks';
import type { ListedRecording } from '../wire/recorder-api/recording.ts';
import { EMPTY_FILTER, listRecordings } from './archive.ts';
import { whereText, whoText } from './format.ts';
import { LiveScreen } from './live-screen.tsx';
import { Recorder } from './recorder-context.ts';
import { formatRoute } from './route.ts';

const REFRESH_MS = 3000;
/** Maximum number of live screens. Each needs a connection and a terminal. */
const MAX_SHOWN = 12;

export function WallView(): JSX.Element {
  const { sessions, problem, more } = useSessions();
  useEffect(() => {
    document.title = 'Live — tailcast';
  }, []);
  return (
    <>
      <h1>Live</h1>
      {problem === undefined ? null : (
        <p class="notice problem" role="alert">
          {problem}
        </p>
      )}
      <p class={sessions?.length === 0 ? 'notice empty' : 'notice'} role="status">
        {sessions === undefined ? 'Loading…' : countText(sessions, more)}
      </p>
      <ul class="live-wall">
        {sessions?.map(({ recording, isOver }) => (
          <li key={recording.id} class={isOver ? 'tile over' : 'tile'}>
            <h2>
              <a href={formatRoute({ view: 'recording', id: recording.id, at: undefined })}>
                {whereText(recording)}
              </a>{' '}
              <span class={isOver ? 'badge' : 'badge state-running'}>{isOver ? 'over' : 'running'}</span>
            </h2>
            <p class="notice">
              {whoText(recording)} · <code>{recording.command ?? recording.kind}</code>
            </p>
            <LiveScreen recording={recording} />
          </li>
        ))}
      </ul>
    </>
  );
}

/** A session on the wall. */
interface Shown {
  readonly recording: ListedRecording;
  readonly isOver: boolean;
}

function countText(sessions: readonly Shown[], more: boolean): string {
  const over = sessions.filter(({ isOver }) => isOver).length;
  if (sessions.length === 0) return 'No session is running.';
  const count = `${sessions.length - over} running${more ? '; not all are shown' : ''}`;
  return over === 0 ? count : `${count}, ${over} over`;
}

interface Sessions {
  /** Undefined before the first response. */
  readonly sessions: readonly Shown[] | undefined;
  /** True if there are more running sessions. */
  readonly more: boolean;
  readonly problem: string | undefined;
}

function useSessions(): Sessions {
  const { ask } = useContext(Recorder);
  const [state, setState] = useState<Sessions>({ sessions: undefined, more: false, problem: undefined });
  useEffect(() => {
    const gone = new AbortController();
    const look = (): void => {
      if (document.hidden) return;
      listRecordings(ask, { ...EMPTY_FILTER, state: 'running' }, undefined, gone.signal).then(
        ({ recordings, next }) =>
          setState(({ sessions = [] }) => ({
            sessions: merge(sessions, recordings),
            more: recordings.length > MAX_SHOWN || (next ?? undefined) !== undefined,
            problem: undefined,
          })),
        (error: unknown) => {
          if (gone.signal.aborted) return;
          setState((old) => ({ ...old, problem: error instanceof Error ? error.message : String(error) }));
        },
      );
    };
    look();
    const timer = setInterval(look, REFRESH_MS);
    return () => {
      clearInterval(timer);
      gone.abort();
    };
  }, []);
  return state;
}

/** Visible sessions keep their position. New sessions replace stopped ones. */
function merge(shown: readonly Shown[], running: readonly ListedRecording[]): readonly Shown[] {
  const now = new Set(running.map(({ id }) => id));
  const known = new Set(shown.map(({ recording }) => recording.id));
  const kept = shown.map(({ recording }) => ({ recording, isOver: !now.has(recording.id) }));
  const fresh = running
    .filter(({ id }) => !known.has(id))
    .toReversed()
    .map((recording) => ({ recording, isOver: false }));
  const places = [...kept, ...fresh];
  const gone = new Set(kept.filter(({ isOver }) => isOver).slice(0, Math.max(0, places.length - MAX_SHOWN)));
  return places.filter((place) => !gone.has(place)).slice(0, MAX_SHOWN);
}
