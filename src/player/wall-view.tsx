/** Running sessions side by side, each with its live screen. A stopped session stays visible with a notice. */
import { Pause, Play } from 'lucide';
import type { JSX } from 'preact';
import { useContext, useEffect, useRef, useState } from 'preact/hooks';
import type { ListedRecording } from '../wire/recorder-api/recording.ts';
import { EMPTY_FILTER } from './addresses.ts';
import { listRecordings } from './archive.ts';
import { TITLE_SEPARATOR, tileTitles, whereText, whoText } from './format.ts';
import { Icon } from './icon.tsx';
import { useKeys } from './keyboard.tsx';
import { LiveScreen } from './live-screen.tsx';
import { usePreference, type Preference } from './preferences.ts';
import { NoRule } from './problem-view.tsx';
import { Recorder } from './recorder-context.ts';
import { formatRoute, goTo } from './route.ts';
import { Choice } from './settings-menu.tsx';

const REFRESH_MS = 3000;
/** Maximum number of live screens. Each live screen needs a connection and a terminal emulator. */
const MAX_SHOWN = 12;

export function WallView({ text }: { readonly text: string }): JSX.Element {
  const [isPaused, setPaused] = useState(false);
  const [tile] = usePreference('tile');
  const [zone] = usePreference('zone');
  const { sessions, noRuleFor, problem, more } = useSessions(text, isPaused);
  useEffect(() => {
    document.title = 'Live — tailcast';
  }, []);
  useKeys([{ keys: ['p'], does: 'Pause or continue all screens', run: () => setPaused(!isPaused) }]);
  const titles = tileTitles(sessions?.map(({ recording }) => recording) ?? [], zone);
  if (noRuleFor !== undefined) return <NoRule viewer={noRuleFor} />;
  const count = sessions === undefined ? 'Loading…' : countText(sessions, more, text !== '');
  return (
    <>
      <h1>Live</h1>
      {problem === undefined ? null : (
        <p class="notice problem" role="alert">
          {problem}
        </p>
      )}
      <div class="wall-bar">
        <WallFilter text={text} />
        <button type="button" aria-pressed={isPaused} onClick={() => setPaused(!isPaused)}>
          <Icon icon={isPaused ? Play : Pause} /> {isPaused ? 'Continue' : 'Pause'}
        </button>
        <Choice name="tile" legend="Size of the screens" options={SIZES} />
      </div>
      <p class={sessions?.length === 0 ? 'notice empty' : 'notice'} role="status">
        {isPaused ? `${count}, paused` : count}
      </p>
      <ul class={`live-wall ${tile}`}>
        {sessions?.map(({ recording, isOver }, index) => (
          <Tile
            key={recording.id}
            recording={recording}
            isOver={isOver}
            isPaused={isPaused}
            title={titles[index] ?? whereText(recording)}
          />
        ))}
      </ul>
    </>
  );
}

const SIZES = ['small', 'medium', 'large'] as const satisfies readonly Preference<'tile'>[];
const TYPING_PAUSE_MS = 250;

/** Filter by user, target or command. The filter is part of the address. */
function WallFilter({ text }: { readonly text: string }): JSX.Element {
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  useEffect(() => () => clearTimeout(timer.current), []);
  return (
    <input
      type="search"
      name="text"
      aria-label="Filter running sessions"
      placeholder="Filter by user, pod or command"
      defaultValue={text}
      onInput={({ currentTarget: { value } }) => {
        clearTimeout(timer.current);
        const wanted = formatRoute({ view: 'wall', text: value.trim() });
        timer.current = setTimeout(() => goTo(wanted, { replace: true }), TYPING_PAUSE_MS);
      }}
    />
  );
}

/** Time for which a tile is marked after new output, in milliseconds. */
const FRESH_MS = 1200;

interface TileProps {
  readonly recording: ListedRecording;
  readonly isOver: boolean;
  readonly isPaused: boolean;
  readonly title: string;
}

function Tile({ recording, isOver, isPaused, title }: TileProps): JSX.Element {
  const tile = useRef<HTMLLIElement>(null);
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  useEffect(() => () => clearTimeout(timer.current), []);
  // a plain object instead of component state, to avoid a render for each output of a busy session
  const onOutput = (): void => {
    tile.current?.setAttribute('data-fresh', '');
    clearTimeout(timer.current);
    timer.current = setTimeout(() => tile.current?.removeAttribute('data-fresh'), FRESH_MS);
  };
  const [target = '', ...suffix] = title.split(TITLE_SEPARATOR);
  const end = Math.max(0, target.length - TAIL_LENGTH);
  return (
    <li ref={tile} class={isOver ? 'tile over' : 'tile'}>
      <h2>
        <a
          href={formatRoute({ view: 'recording', id: recording.id, at: undefined })}
          title={title}
          aria-label={title}
        >
          <span>{target.slice(0, end)}</span>
          <span>{[target.slice(end), ...suffix].join(TITLE_SEPARATOR)}</span>
        </a>{' '}
        <span class={isOver ? 'badge' : 'badge state-running'}>{isOver ? 'over' : 'running'}</span>
      </h2>
      <p class="notice">
        {whoText(recording)} · <code>{recording.command ?? recording.kind}</code>
      </p>
      <LiveScreen recording={recording} isPaused={isPaused} onOutput={onOutput} />
    </li>
  );
}

/**
 * Number of characters at the end of a target that are never truncated, because the names of pods differ at their end.
 */
const TAIL_LENGTH = 12;

/** A session on the wall. */
interface Shown {
  readonly recording: ListedRecording;
  readonly isOver: boolean;
}

function countText(sessions: readonly Shown[], more: boolean, isFiltered: boolean): string {
  const over = sessions.filter(({ isOver }) => isOver).length;
  if (sessions.length === 0)
    return isFiltered ? 'No running session matches the filter.' : 'No session is running.';
  const count = `${sessions.length - over} running${more ? '; not all are shown' : ''}`;
  return over === 0 ? count : `${count}, ${over} over`;
}

interface Sessions {
  /** Sessions on the wall; undefined before the first response. */
  readonly sessions: readonly Shown[] | undefined;
  /** True if more sessions are running than the wall shows. */
  readonly more: boolean;
  readonly problem: string | undefined;
  /** Login of the viewer, or name of the viewer's tailnet node, if no viewer rule matches; otherwise undefined. */
  readonly noRuleFor?: string | undefined;
}

const LOADING: Sessions = { sessions: undefined, more: false, problem: undefined };

/** @param isPaused true if the list must not change */
function useSessions(text: string, isPaused: boolean): Sessions {
  const { ask } = useContext(Recorder);
  const [state, setState] = useState(LOADING);
  useEffect(() => setState(LOADING), [text]);
  useEffect(() => {
    if (isPaused) return undefined;
    const gone = new AbortController();
    const look = (): void => {
      if (document.hidden) return;
      listRecordings(ask, { ...EMPTY_FILTER, text, state: 'running' }, undefined, gone.signal).then(
        ({ recordings, next, noRuleFor }) =>
          setState(({ sessions = [] }) => ({
            sessions: merge(sessions, recordings),
            more: recordings.length > MAX_SHOWN || (next ?? undefined) !== undefined,
            problem: undefined,
            noRuleFor,
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
  }, [text, isPaused]);
  return state;
}

/** Visible sessions keep their position. New sessions replace stopped sessions. */
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
