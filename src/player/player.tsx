/** The screen of a recording with its controls. */
import type { JSX } from 'preact';
import { useEffect, useMemo, useState } from 'preact/hooks';
import type { Playback } from '../screen/playback.ts';
import { recall, remember } from './remember.ts';
import { TakeAway } from './take-away.tsx';
import type { ListedRecording } from '../wire/recorder-api/recording.ts';
import { exitCodeOf } from '../wire/recorder-api/recording-status.ts';
import { hiddenText } from '../search/transcript-document.ts';
import { clockText, parseClock, stoppedText } from '../screen/clock-text.ts';
import { type Zone } from './wall-text.ts';
import { KeyHelp, useKeys } from './keyboard.tsx';
import { keyActions, SPEEDS, toggle } from './player-keys.ts';
import { formatRoute } from './route.ts';
import { HitsBar, seekHit, useSearchHits } from './search-hits.tsx';
import { TerminalScreen } from './terminal-screen.tsx';
import { Timeline, type TimelineMark } from './timeline.tsx';
import { TranscriptView } from './transcript-view.tsx';
import { usePlayback, type Played } from './use-playback.ts';

const TOLD_MS = 4000;

/** True if the user prefers reduced motion; the player then starts paused. */
function prefersStill(): boolean {
  return matchMedia('(prefers-reduced-motion: reduce)').matches;
}

const TRANSCRIPT_KEY = 'tailcast.transcript';
const NO_MARKS: readonly TimelineMark[] = [];

export interface PlayerProps {
  readonly recording: ListedRecording;
  readonly startAt: number | undefined;
  /** Text to find in the transcript; empty for none. */
  readonly find: string;
  /** Query that found the recording; its matches are marked. Empty for none. */
  readonly query: string;
  readonly zone: Zone;
  readonly onZone: () => void;
  /** Called to return to the live view; undefined if the session does not run. */
  readonly onLive: (() => void) | undefined;
}

export function Player({ recording, startAt, find, query, zone, onZone, onLive }: PlayerProps): JSX.Element {
  const [screen, setScreen] = useState<HTMLElement | null>(null);
  const [speed, setSpeed] = useState(1);
  const [skips, setSkips] = useState(true);
  const [told, tell] = useTold();
  const [helps, setHelps] = useState(false);
  const played = usePlayback(screen, { recording, startAt, autoPlay: !prefersStill() });
  const { playback, previewed, state, index } = played;
  const caughtUp = onLive !== undefined && state.ended;
  useEffect(() => {
    if (caughtUp) onLive();
  }, [caughtUp]);
  const choice = useTranscriptChoice(find);
  const { reads, useReads, hits } = choice;
  const sought = useSearchHits(recording.id, query);
  const marks = useMemo(
    () => sorted([...(index?.marks ?? []), ...endOf(recording), ...hits, ...sought.marks]),
    [index, recording, hits, sought],
  );
  const onHit = (by: 1 | -1): void => seekHit(playback, sought.marks, by);

  const link = (): void => void copyLink(recording.id, playback?.state.position ?? 0).then(tell);
  const useSpeed = (factor: number): void => {
    setSpeed(factor);
    if (playback !== undefined) playback.speed = factor;
  };
  const useSkips = (value: boolean): void => {
    setSkips(value);
    if (playback !== undefined) playback.skipsIdle = value;
  };
  const actions = keyActions({
    playback,
    marks,
    speed,
    skips,
    useSpeed,
    useSkips,
    onHit,
    onTranscript: () => useReads(!reads),
    onZone,
    onLink: link,
    onHelp: () => setHelps((shown) => !shown),
    onGo: () => document.querySelector<HTMLInputElement>('.position input')?.focus(),
    onFullscreen: () => void toggleFullscreen(screen),
  });
  useKeys(actions);

  return (
    <section class="player" aria-label="Player">
      <div class={choice.reads ? 'stage with-transcript' : 'stage'}>
        <TerminalScreen onElement={setScreen} />
        <TranscriptBeside id={recording.id} find={find} played={played} choice={choice} />
      </div>
      <Notices played={played} onHidden={choice.showHidden} />
      <HitsBar query={query} hits={sought} position={state.position} onStep={onHit} />
      <Timeline
        position={state.position}
        seconds={state.seconds}
        index={index}
        previewed={previewed}
        marks={marks}
        startedAt={recording.startedAt}
        zone={zone}
        onSeek={(seconds) => void playback?.seek(seconds)}
      />
      <Controls
        {...{ recording, playback, state, speed, skips, reads, zone, useSpeed, useSkips, useReads, onZone }}
        onLink={link}
        onLive={onLive}
        tell={tell}
        onHelp={() => setHelps(true)}
      />
      <p class="told" role="status">
        {told}
      </p>
      {helps ? <KeyHelp actions={actions} onClose={() => setHelps(false)} /> : null}
    </section>
  );
}

/** A message that is shown for a few seconds. */
function useTold(): [string, (text: string) => void] {
  const [told, setTold] = useState('');
  return [
    told,
    (text) => {
      setTold(text);
      setTimeout(() => setTold((now) => (now === text ? '' : now)), TOLD_MS);
    },
  ];
}

function sorted(marks: readonly TimelineMark[]): readonly TimelineMark[] {
  return marks.toSorted((left, right) => left.at - right.at);
}

/** Mark for the end of the session, if known. */
function endOf(recording: ListedRecording): readonly TimelineMark[] {
  const { durationSeconds: at = 0, result, resultMessage, state, problem } = recording;
  const cut = state === 'completed' || problem === undefined ? [] : [problem];
  const hasCode = exitCodeOf(result) !== undefined;
  const ended = hasCode ? `exit ${result}` : result;
  const text = [ended, resultMessage, ...cut].filter((part) => part !== undefined).join(': ');
  if (text === '') return [];
  return [{ at, kind: result === '0' && cut.length === 0 ? 'exit' : 'failure', text }];
}

interface TranscriptChoice {
  readonly reads: boolean;
  readonly useReads: (shown: boolean) => void;
  readonly hits: readonly TimelineMark[];
  readonly setHits: (hits: readonly TimelineMark[]) => void;
  /** True if the transcript shows the lines that never became visible. */
  readonly isHidden: boolean;
  readonly setHidden: (shown: boolean) => void;
  readonly showHidden: () => void;
}

function TranscriptBeside({
  id,
  find,
  played: { playback, state },
  choice: { reads, setHits, isHidden, setHidden },
}: {
  readonly id: string;
  readonly find: string;
  readonly played: Played;
  readonly choice: TranscriptChoice;
}): JSX.Element | null {
  if (!reads) return null;
  return (
    <TranscriptView
      id={id}
      position={state.position}
      playing={state.playing}
      find={find}
      isHidden={isHidden}
      onHidden={setHidden}
      onSeek={(seconds) => void playback?.seek(seconds)}
      onHits={setHits}
    />
  );
}

/** Visibility of the transcript, remembered between recordings, and its matches. */
function useTranscriptChoice(find: string): TranscriptChoice {
  const [reads, setReads] = useState(find !== '' || recall(TRANSCRIPT_KEY) === 'shown');
  const [hits, setHits] = useState(NO_MARKS);
  const [isHidden, setHidden] = useState(false);
  const useReads = (shown: boolean): void => {
    setReads(shown);
    if (!shown) setHits(NO_MARKS);
    remember(TRANSCRIPT_KEY, shown ? 'shown' : 'hidden');
  };
  useFind(() => useReads(true));
  const showHidden = (): void => {
    useReads(true);
    setHidden(true);
  };
  return { reads, useReads, hits, setHits, isHidden, setHidden, showHidden };
}

/** Ctrl-F finds in the recording. Inside the find field, Ctrl-F opens the browser's own search. */
function useFind(show: () => void): void {
  useEffect(() => {
    const onKey = (event: KeyboardEvent): void => {
      if (event.key !== 'f' || !(event.ctrlKey || event.metaKey) || event.altKey || event.shiftKey) return;
      const field = (): HTMLInputElement | null => document.querySelector('.transcript .find input');
      if (document.activeElement === field() && field() !== null) return;
      event.preventDefault();
      show();
      requestAnimationFrame(() => field()?.focus());
    };
    addEventListener('keydown', onKey);
    return () => removeEventListener('keydown', onKey);
  }, []);
}

interface ControlProps {
  readonly recording: ListedRecording;
  readonly playback: Playback | undefined;
  readonly state: Played['state'];
  readonly speed: number;
  readonly skips: boolean;
  readonly reads: boolean;
  readonly zone: Zone;
  readonly useSpeed: (speed: number) => void;
  readonly useSkips: (skips: boolean) => void;
  readonly useReads: (reads: boolean) => void;
  readonly onZone: () => void;
  readonly onLink: () => void;
  readonly onLive: (() => void) | undefined;
  readonly tell: (text: string) => void;
  readonly onHelp: () => void;
}

function Controls(props: ControlProps): JSX.Element {
  const { recording, playback, state, speed, skips, reads, zone } = props;
  const { useSpeed, useSkips, useReads, onZone, onLink, onLive, onHelp, tell } = props;
  return (
    <div class="controls">
      <button
        type="button"
        class="play"
        aria-label={state.playing ? 'Pause' : 'Play'}
        onClick={() => toggle(playback)}
      >
        <span aria-hidden="true">{state.playing ? '❚❚' : '▶'}</span>
      </button>
      <Position state={state} onGo={(seconds) => void playback?.seek(seconds)} />
      <label>
        Speed{' '}
        <select value={String(speed)} onChange={(event) => useSpeed(Number(event.currentTarget.value))}>
          {SPEEDS.map((factor) => (
            <option key={factor} value={String(factor)}>
              {factor}x
            </option>
          ))}
        </select>
      </label>
      <label>
        <input type="checkbox" checked={skips} onChange={(event) => useSkips(event.currentTarget.checked)} />{' '}
        skip idle time
      </label>
      {onLive === undefined ? null : (
        <button type="button" class="live" onClick={onLive}>
          To live
        </button>
      )}
      <span class="spacer" />
      <button type="button" aria-pressed={reads} onClick={() => useReads(!reads)}>
        Transcript
      </button>
      <button type="button" onClick={onZone} title="Local time or UTC (z)">
        {zone === 'utc' ? 'UTC' : 'Local time'}
      </button>
      <TakeAway recording={recording} onLink={onLink} tell={tell} />
      <button type="button" aria-label="Keyboard help" onClick={onHelp}>
        ?
      </button>
    </div>
  );
}

/** Warnings about the recording above the screen. */
function Notices({
  played,
  onHidden,
}: {
  readonly played: Played;
  readonly onHidden: () => void;
}): JSX.Element {
  const { state, progress, index } = played;
  return (
    <>
      {state.problem === undefined ? null : (
        <p class="notice problem" role="alert">
          {state.problem}
        </p>
      )}
      {warningsOf(played).map(([name, text]) => (
        <p key={name} class="notice warning" data-notice={name}>
          {text}
        </p>
      ))}
      {index !== undefined && index.hidden > 0 ? (
        <p class="notice warning" data-notice="hidden">
          {hiddenText(index.hidden)}:{' '}
          <button type="button" onClick={onHidden}>
            show them
          </button>
        </p>
      ) : null}
      {index?.characters === 0 ? (
        <p class="notice" data-notice="silent">
          This session wrote nothing.
        </p>
      ) : null}
      {progress === undefined ? null : (
        <p class="notice" role="status">
          The time line of this recording is being made: {Math.floor(progress * 100)} %. Until then jumps take
          longer.
        </p>
      )}
    </>
  );
}

function warningsOf({ state, index }: Played): readonly (readonly [name: string, text: string])[] {
  const stoppedAt = state.stoppedAt ?? index?.stoppedAt;
  const gaps = index?.marks.filter(({ kind }) => kind === 'gap').length ?? 0;
  const bad = index?.badLines ?? state.badLines;
  const warnings: (readonly [boolean, string, string])[] = [
    [gaps > 0, 'gap', `Output is missing in ${counted(gaps, 'place')}, marked on the time line.`],
    [
      bad > 0,
      'damage',
      `${counted(bad, 'line')} of this recording cannot be read. What was there is not shown.`,
    ],
    [
      index?.isCut ?? state.isCut,
      'cut',
      'This recording ends inside of a line: it was cut off. What came before is shown.',
    ],
    [
      index?.tinySize !== undefined,
      'size',
      `This session reported a terminal of ${index?.tinySize}. The player shows that size; transcript, search and alerts read the session as 80x24.`,
    ],
    [
      index?.isBinary === true,
      'binary',
      'The output of this session is data and no text. What is shown is how a terminal would take it.',
    ],
    [stoppedAt !== undefined, 'stopped', stoppedText(stoppedAt ?? 0)],
  ];
  return warnings.filter(([holds]) => holds).map(([, name, text]) => [name, text]);
}

function counted(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? '' : 's'}`;
}

/** Current position; the user can type a time. */
function Position({
  state,
  onGo,
}: {
  readonly state: Played['state'];
  readonly onGo: (seconds: number) => void;
}): JSX.Element {
  const [typed, setTyped] = useState<string>();
  return (
    <span class="position">
      <input
        aria-label="Go to a time, as 90, 1:30 or 1h2m3s"
        size={8}
        value={typed ?? clockText(state.position, true)}
        onFocus={(event) => {
          setTyped(clockText(state.position, true));
          event.currentTarget.select();
        }}
        onInput={(event) => setTyped(event.currentTarget.value)}
        onBlur={() => setTyped(undefined)}
        onKeyDown={(event) => {
          if (event.key === 'Escape') event.currentTarget.blur();
          if (event.key !== 'Enter') return;
          const seconds = parseClock(event.currentTarget.value);
          if (seconds !== undefined) onGo(seconds);
          event.currentTarget.blur();
        }}
      />{' '}
      / <span class="length">{clockText(state.seconds)}</span>
      <span class="state">{state.ended ? ' ended' : ''}</span>
    </span>
  );
}

/** Writes the position into the address, and copies the link to the clipboard. @returns the message for the user */
async function copyLink(id: string, at: number): Promise<string> {
  history.replaceState(null, '', formatRoute({ view: 'recording', id, at }));
  try {
    // pages over plain HTTP have no clipboard access
    await navigator.clipboard.writeText(location.href);
    return `Link to ${clockText(at, true)} copied.`;
  } catch {
    return `The link to ${clockText(at, true)} is in the address bar.`;
  }
}

async function toggleFullscreen(screen: HTMLElement | null): Promise<void> {
  if (document.fullscreenElement === null) await screen?.requestFullscreen().catch(() => undefined);
  else await document.exitFullscreen();
}
