/** Two recordings side by side. The recordings play with one shared clock, or each with its own clock. */
import { Link2, Link2Off, Pause, Play } from 'lucide';
import type { JSX } from 'preact';
import { useContext, useEffect, useState } from 'preact/hooks';
import { clockText } from '../screen/clock-text.ts';
import type { Playback } from '../screen/playback.ts';
import type { ListedRecording } from '../wire/recorder-api/recording.ts';
import { readRecording } from './archive.ts';
import { whereText, whoText } from './format.ts';
import { Icon } from './icon.tsx';
import { useKeys } from './keyboard.tsx';
import { toggle } from './player-keys.ts';
import { usePreference } from './preferences.ts';
import { RecorderProblem } from './problem-view.tsx';
import { Recorder } from './recorder-context.ts';
import { formatRoute } from './route.ts';
import { SpeedSelect } from './speed-select.tsx';
import { StatusBadges } from './status-badges.tsx';
import { TerminalScreen } from './terminal-screen.tsx';
import { Timeline } from './timeline.tsx';
import { usePlayback, type Played } from './use-playback.ts';
import { momentOf } from './wall-text.ts';

const STEP_SECONDS = 5;
/** Maximum difference between the two positions if the recordings share a clock, in seconds. */
const MAX_DRIFT = 0.5;

export function CompareView({ ids }: { readonly ids: readonly [string, string] }): JSX.Element {
  const [left, right] = [useRecording(ids[0]), useRecording(ids[1])];
  useEffect(() => {
    document.title = 'Compare — tailcast';
  }, []);
  const problem = left.problem ?? right.problem;
  if (problem !== undefined) return <RecorderProblem problem={problem} />;
  return (
    <>
      <h1 class="hidden-label">Compare two recordings</h1>
      {left.recording === undefined || right.recording === undefined ? (
        <p role="status">Loading…</p>
      ) : [left.recording, right.recording].some(({ state }) => state === 'running') ? (
        <p class="empty">A running session cannot be compared. Open its live view instead.</p>
      ) : (
        <Comparison left={left.recording} right={right.recording} />
      )}
    </>
  );
}

function useRecording(id: string): {
  readonly recording: ListedRecording | undefined;
  readonly problem: Error | undefined;
} {
  const { ask } = useContext(Recorder);
  const [recording, setRecording] = useState<ListedRecording>();
  const [problem, setProblem] = useState<Error>();
  useEffect(() => {
    const gone = new AbortController();
    readRecording(ask, id, gone.signal).then(setRecording, (error: unknown) => {
      if (!gone.signal.aborted) setProblem(error instanceof Error ? error : new Error(String(error)));
    });
    return () => gone.abort();
  }, [id]);
  return { recording, problem };
}

function Comparison({
  left,
  right,
}: {
  readonly left: ListedRecording;
  readonly right: ListedRecording;
}): JSX.Element {
  const [isOneClock, setOneClock] = useState(true);
  const [speed, setSpeed] = useState(1);
  const panes = [usePane(left), usePane(right)] as const;
  const playbacks = panes.map(({ played: { playback } }) => playback);
  useClocks(playbacks, isOneClock, speed);
  const isPlaying = panes.some(({ played: { state } }) => state.playing);
  const toggleBoth = (): void => {
    for (const playback of playbacks)
      if (isPlaying) playback?.pause();
      else playback?.play();
  };
  /** Seeks both recordings if they share a clock, otherwise only the given recording. */
  const seek = (seconds: number, playback: Playback | undefined): void => {
    for (const each of isOneClock ? playbacks : [playback]) void each?.seek(seconds);
  };
  const step = (by: number): void => {
    const position = Math.max(...playbacks.map((playback) => playback?.state.position ?? 0));
    for (const playback of playbacks)
      void playback?.seek((isOneClock ? position : playback.state.position) + by);
  };
  useKeys([
    { keys: [' ', 'k'], does: 'Play or pause both recordings', run: toggleBoth },
    { keys: ['ArrowLeft', 'j'], does: '5 seconds back', run: () => step(-STEP_SECONDS) },
    { keys: ['ArrowRight', 'l'], does: '5 seconds forward', run: () => step(STEP_SECONDS) },
  ]);
  return (
    <div class="player">
      <div class="controls">
        <button type="button" class="primary" onClick={toggleBoth}>
          <Icon icon={isPlaying ? Pause : Play} /> {isPlaying ? 'Pause both' : 'Play both'}
        </button>
        <SpeedSelect speed={speed} onSpeed={setSpeed} />
        <button
          type="button"
          aria-pressed={isOneClock}
          title="With one clock, both recordings show the same second after their start."
          onClick={() => setOneClock(!isOneClock)}
        >
          <Icon icon={isOneClock ? Link2 : Link2Off} /> One clock
        </button>
      </div>
      <div class="compare">
        {panes.map((pane, index) => (
          <Pane
            key={index}
            {...pane}
            recording={index === 0 ? left : right}
            number={index + 1}
            isOneClock={isOneClock}
            onSeek={(seconds) => seek(seconds, pane.played.playback)}
          />
        ))}
      </div>
    </div>
  );
}

interface PaneState {
  readonly played: Played;
  readonly setScreen: (screen: HTMLElement | null) => void;
}

function usePane(recording: ListedRecording): PaneState {
  const [screen, setScreen] = useState<HTMLElement | null>(null);
  const played = usePlayback(screen, {
    recording,
    startAt: 0,
    autoPlay: false,
    fit: 'auto',
    highlighted: NOTHING,
  });
  return { played, setScreen };
}

const NOTHING: readonly string[] = [];

/** Applies the speed. Recordings that share a clock do not skip idle time, and are kept at the same position. */
function useClocks(playbacks: readonly (Playback | undefined)[], isOneClock: boolean, speed: number): void {
  useEffect(() => {
    for (const playback of playbacks)
      if (playback !== undefined) Object.assign(playback, { speed, skipsIdle: !isOneClock });
    if (!isOneClock) return undefined;
    const align = (): void => {
      const [one, two] = playbacks;
      if (one === undefined || two === undefined) return;
      const [ahead, behind] = one.state.position > two.state.position ? [one, two] : [two, one];
      const { position } = ahead.state;
      // a recording that has reached its end stays there
      if (position - behind.state.position > MAX_DRIFT && behind.state.position < behind.state.seconds - 0.05)
        void behind.seek(position);
    };
    align();
    const timer = setInterval(align, 1000);
    return () => clearInterval(timer);
  }, [...playbacks, isOneClock, speed]);
}

interface PaneProps extends PaneState {
  readonly recording: ListedRecording;
  readonly number: number;
  readonly isOneClock: boolean;
  readonly onSeek: (seconds: number) => void;
}

function Pane(props: PaneProps): JSX.Element {
  const { recording, number, played, setScreen, isOneClock, onSeek } = props;
  const { playback, previewed, state, index } = played;
  const { startedAt, id } = recording;
  const [zone] = usePreference('zone');
  const name = `recording ${number}, ${whoText(recording)}`;
  return (
    <section aria-label={name}>
      <h2>
        <a href={formatRoute({ view: 'recording', id, at: undefined })}>
          {recording.command ?? recording.kind}
        </a>
        <StatusBadges recording={recording} />
      </h2>
      <p class={state.problem === undefined ? 'soft' : 'problem'}>
        {state.problem ??
          `${whoText(recording)} · ${whereText(recording)} · ${momentOf(new Date(startedAt), zone)}`}
      </p>
      <TerminalScreen onElement={setScreen} />
      <Timeline
        position={state.position}
        seconds={state.seconds}
        marks={index?.marks ?? []}
        {...{ index, previewed, zone, startedAt, onSeek }}
      />
      <p class="clock">
        {isOneClock ? null : (
          <button
            type="button"
            aria-label={state.playing ? `Pause ${name}` : `Play ${name}`}
            onClick={() => toggle(playback)}
          >
            <Icon icon={state.playing ? Pause : Play} />
          </button>
        )}
        {clockText(state.position, true)} / {clockText(state.seconds)}
      </p>
    </section>
  );
}
