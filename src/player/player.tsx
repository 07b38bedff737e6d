/** The screen of a recording with everything that moves it. */
import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import type { Playback } from '../screen/playback.ts';
import type { PlayIndex } from '../screen/play-index.ts';
import { castAddress } from './archive.ts';
import type { ListedRecording } from '../wire/recorder-api/recording.ts';
import { clockText, parseClock, type Zone } from './clock-text.ts';
import { KeyHelp, useKeys, type KeyAction } from './keyboard.tsx';
import { formatRoute } from './route.ts';
import { Timeline } from './timeline.tsx';
import { usePlayback, type Played } from './use-playback.ts';

const SPEEDS = [0.5, 1, 2, 4, 8, 16];
const STEP_SECONDS = 5;
const LONG_STEP_SECONDS = 60;
const TOLD_MS = 4000;

/** Who asked their system for less movement is shown a still picture first. */
function prefersStill(): boolean {
  return matchMedia('(prefers-reduced-motion: reduce)').matches;
}

export function Player({
  recording,
  startAt,
  zone,
  onZone,
}: {
  readonly recording: ListedRecording;
  readonly startAt: number | undefined;
  readonly zone: Zone;
  readonly onZone: () => void;
}): JSX.Element {
  const [screen, setScreen] = useState<HTMLElement | null>(null);
  const [speed, setSpeed] = useState(1);
  const [skips, setSkips] = useState(true);
  const [told, setTold] = useState('');
  const [helps, setHelps] = useState(false);
  const played = usePlayback(screen, { recording, startAt, autoPlay: !prefersStill() });
  const { playback, state, index } = played;

  const tell = (text: string): void => {
    setTold(text);
    setTimeout(() => setTold((now) => (now === text ? '' : now)), TOLD_MS);
  };
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
    index,
    speed,
    skips,
    useSpeed,
    useSkips,
    onZone,
    onLink: link,
    onHelp: () => setHelps((shown) => !shown),
    onGo: () => document.querySelector<HTMLInputElement>('.position input')?.focus(),
    onFullscreen: () => void toggleFullscreen(screen),
  });
  useKeys(actions);

  return (
    <section class="player" aria-label="Player">
      {/* lang: what was on a screen is in no language that we know */}
      <div
        ref={setScreen}
        class="terminal"
        role="img"
        aria-label="Screen of the session"
        lang="zxx"
        translate={false}
      />
      <Notices played={played} />
      <Timeline
        position={state.position}
        seconds={state.seconds}
        index={index}
        startedAt={recording.startedAt}
        zone={zone}
        onSeek={(seconds) => void playback?.seek(seconds)}
      />
      <Controls
        {...{ recording, playback, state, speed, skips, zone, useSpeed, useSkips, onZone }}
        onLink={link}
        onHelp={() => setHelps(true)}
      />
      <p class="told" role="status">
        {told}
      </p>
      {helps ? <KeyHelp actions={actions} onClose={() => setHelps(false)} /> : null}
    </section>
  );
}

interface ControlProps {
  readonly recording: ListedRecording;
  readonly playback: Playback | undefined;
  readonly state: Played['state'];
  readonly speed: number;
  readonly skips: boolean;
  readonly zone: Zone;
  readonly useSpeed: (speed: number) => void;
  readonly useSkips: (skips: boolean) => void;
  readonly onZone: () => void;
  readonly onLink: () => void;
  readonly onHelp: () => void;
}

function Controls(props: ControlProps): JSX.Element {
  const { recording, playback, state, speed, skips, zone, useSpeed, useSkips, onZone, onLink, onHelp } =
    props;
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
      <span class="spacer" />
      <button type="button" onClick={onZone} title="Local time or UTC (z)">
        {zone === 'utc' ? 'UTC' : 'Local time'}
      </button>
      <button type="button" onClick={onLink}>
        Link to this moment
      </button>
      <a
        class="button"
        href={castAddress(recording.id, { watched: false })}
        download={`${recording.id}.cast`}
      >
        Download
      </a>
      <button type="button" aria-label="Keyboard help" onClick={onHelp}>
        ?
      </button>
    </div>
  );
}

/** What whoever looks should know before they believe the picture. */
function Notices({ played }: { readonly played: Played }): JSX.Element {
  const { state, progress } = played;
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
      {played.index?.characters === 0 ? (
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
      index?.isBinary === true,
      'binary',
      'The output of this session is data and no text. What is shown is how a terminal would take it.',
    ],
  ];
  return warnings.filter(([holds]) => holds).map(([, name, text]) => [name, text]);
}

function counted(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? '' : 's'}`;
}

/** Where it stands; a time can be typed. */
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

function toggle(playback: Playback | undefined): void {
  if (playback?.state.playing === true) playback.pause();
  else playback?.play();
}

interface Handles {
  readonly playback: Playback | undefined;
  readonly index: PlayIndex | undefined;
  readonly speed: number;
  readonly skips: boolean;
  readonly useSpeed: (speed: number) => void;
  readonly useSkips: (skips: boolean) => void;
  readonly onZone: () => void;
  readonly onLink: () => void;
  readonly onHelp: () => void;
  readonly onGo: () => void;
  readonly onFullscreen: () => void;
}

function keyActions(handles: Handles): readonly KeyAction[] {
  const { playback, index, speed } = handles;
  const move = (seconds: number): void => {
    void playback?.seek((playback.state.position ?? 0) + seconds);
  };
  const faster = (by: 1 | -1): void => {
    const next = SPEEDS[SPEEDS.indexOf(speed) + by];
    if (next !== undefined) handles.useSpeed(next);
  };
  const mark = (by: 1 | -1): void => {
    const now = playback?.state.position ?? 0;
    const times = (index?.marks ?? []).map(({ at }) => at);
    // a moment after one is still at it: going back must not be held there
    const next = by === 1 ? times.find((at) => at > now + 0.01) : times.findLast((at) => at < now - 1);
    if (next !== undefined) void playback?.seek(next);
  };
  const end = (): number => playback?.state.seconds ?? 0;
  return [
    { keys: [' ', 'k'], does: 'play or pause', run: () => toggle(playback) },
    { keys: ['ArrowLeft', 'j'], does: '5 seconds back', run: () => move(-STEP_SECONDS) },
    { keys: ['ArrowRight', 'l'], does: '5 seconds on', run: () => move(STEP_SECONDS) },
    { keys: ['Shift+ArrowLeft', 'PageDown'], does: 'a minute back', run: () => move(-LONG_STEP_SECONDS) },
    { keys: ['Shift+ArrowRight', 'PageUp'], does: 'a minute on', run: () => move(LONG_STEP_SECONDS) },
    { keys: ['.'], does: 'pause, and the next change', run: () => void playback?.step() },
    { keys: ['Home'], does: 'to the start', run: () => void playback?.seek(0) },
    { keys: ['End'], does: 'to the end', run: () => void playback?.seek(end()) },
    {
      keys: ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9'],
      does: 'to so many tenths',
      run: (key) => void playback?.seek((end() * Number(key)) / 10),
    },
    { keys: ['<', '-'], does: 'slower', run: () => faster(-1) },
    { keys: ['>', '+'], does: 'faster', run: () => faster(1) },
    { keys: ['['], does: 'to the mark before', run: () => mark(-1) },
    { keys: [']'], does: 'to the next mark', run: () => mark(1) },
    { keys: ['i'], does: 'skip idle time or not', run: () => handles.useSkips(!handles.skips) },
    { keys: ['g'], does: 'go to a time', run: handles.onGo },
    { keys: ['c'], does: 'copy a link to this moment', run: handles.onLink },
    { keys: ['z'], does: 'local time or UTC', run: handles.onZone },
    { keys: ['f'], does: 'full screen', run: handles.onFullscreen },
    { keys: ['?'], does: 'these keys', run: handles.onHelp },
  ];
}

/** Puts the moment into the address and its link into the clipboard. @returns what to tell */
async function copyLink(id: string, at: number): Promise<string> {
  history.replaceState(null, '', formatRoute({ view: 'recording', id, at }));
  try {
    // a page that came over plain http has no clipboard
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
