/** The screen of a recording with its controls. */
import type { JSX } from 'preact';
import { useContext, useEffect, useMemo, useRef, useState } from 'preact/hooks';
import type { ListedRecording } from '../wire/recorder-api/recording.ts';
import type { ReviewComment } from '../wire/recorder-api/review.ts';
import { exitCodeOf } from '../wire/recorder-api/recording-status.ts';
import { clockText } from '../screen/clock-text.ts';
import { Announcer } from './announcer.tsx';
import { CommandList, commandEntries, currentEntry } from './command-list.tsx';
import { KeyHelp, useKeys } from './keyboard.tsx';
import { Controls } from './player-controls.tsx';
import { Notices } from './player-notices.tsx';
import { keyActions, toggle } from './player-keys.ts';
import { usePreference } from './preferences.ts';
import { Recorder } from './recorder-context.ts';
import { ReviewPanel, useReview } from './review-panel.tsx';
import { formatRoute } from './route.ts';
import { toggleFullscreen, useZoom } from './screen-size.ts';
import { HitsBar, seekHit, useSearchHits } from './search-hits.tsx';
import { SidePanel, type SideTab } from './side-panel.tsx';
import { TerminalScreen } from './terminal-screen.tsx';
import { Timeline, type TimelineMark } from './timeline.tsx';
import { TranscriptView } from './transcript-view.tsx';
import { usePlayback, type Played } from './use-playback.ts';
import type { Zone } from './wall-text.ts';

const TOLD_MS = 4000;

/** True if the user prefers reduced motion; the player then starts paused. */
function prefersStill(): boolean {
  return matchMedia('(prefers-reduced-motion: reduce)').matches;
}

const NO_MARKS: readonly TimelineMark[] = [];

export interface PlayerProps {
  readonly recording: ListedRecording;
  readonly startAt: number | undefined;
  /** Text to find in the transcript; may be empty. */
  readonly find: string;
  /** Query that found the recording; the player marks the matches of the query. Empty if no query found it. */
  readonly query: string;
  readonly zone: Zone;
  readonly onZone: () => void;
  /** Called to return to the live view; undefined unless the session is running. */
  readonly onLive: (() => void) | undefined;
}

export function Player({ recording, startAt, find, query, zone, onZone, onLive }: PlayerProps): JSX.Element {
  const [screen, setScreen] = useState<HTMLElement | null>(null);
  const frame = useRef<HTMLElement>(null);
  const [announces, setAnnounces] = useState(false);
  const [message, onMessage] = useMessage();
  const [helps, setHelps] = useState(false);
  const { fit, zoom } = useZoom(screen);
  const choice = useSideChoice(find);
  const { side, setSide, hits } = choice;
  const sought = useSearchHits(recording.id, query);
  const highlighted = useHighlighted(sought.texts, choice.find);
  // a link to a position opens a paused player; a link to a match, or a look-back in a running session, starts playback
  const autoPlay = !prefersStill() && (startAt === undefined || query !== '' || onLive !== undefined);
  const played = usePlayback(screen, { recording, startAt, autoPlay, fit, highlighted });
  const { playback, previewed, state, index } = played;
  const { speed, skips, useSpeed, useSkips } = useRate(playback);
  const caughtUp = onLive !== undefined && state.ended;
  useEffect(() => {
    if (caughtUp) onLive();
  }, [caughtUp]);
  const reviewing = useReview(recording.id);
  const { review } = reviewing;
  const marks = useMemo(
    () => marksOf(recording, index, review?.comments, [...hits, ...sought.marks]),
    [index, recording, hits, sought, review],
  );
  const entries = useEntries(recording, played, onLive !== undefined);
  const seek = (seconds: number): void => void playback?.seek(seconds);
  const onHit = (by: 1 | -1): void => seekHit(playback, sought.marks, by);
  const onCommand = (by: 1 | -1): void => seekCommand(playback, entries ?? [], by);
  const link = (): void => void copyLink(recording.id, playback?.state.position ?? 0).then(onMessage);
  const onSide = (): void => setSide(side === 'closed' ? 'commands' : 'closed');
  const onFullscreen = (): void => void toggleFullscreen(frame.current);
  const handles = { playback, speed, skips, useSpeed, useSkips, onHit, onCommand };
  const actions = keyActions({
    ...handles,
    onZoom: zoom,
    onTranscript: onSide,
    onZone,
    onLink: link,
    onHelp: () => setHelps((shown) => !shown),
    onGo: () => document.querySelector<HTMLInputElement>('.position input')?.focus(),
    onFullscreen,
  });
  useKeys(actions);

  return (
    <section ref={frame} class="player" aria-label="Player">
      <Notices played={played} onHidden={choice.showHidden} />
      <div class={side === 'closed' ? 'stage' : 'stage with-side'}>
        <TerminalScreen onElement={setScreen} />
        {side === 'closed' ? null : (
          <Side {...{ choice, entries, reviewing, recording, state }} onSeek={seek} />
        )}
      </div>
      <HitsBar query={query} hits={sought} position={state.position} onStep={onHit} />
      <Timeline
        position={state.position}
        seconds={state.seconds}
        {...{ index, previewed, marks, zone }}
        startedAt={recording.startedAt}
        onSeek={seek}
      />
      <Controls
        {...{ recording, state, speed, skips, side, announces, useSpeed, useSkips, onCommand, onSide }}
        {...{ onFullscreen, onLive, onMessage }}
        onPlay={() => toggle(playback)}
        onSeek={seek}
        onZoom={zoom}
        onAnnounce={setAnnounces}
        onLink={link}
        onHelp={() => setHelps(true)}
      />
      <p class="told" role="status">
        {message === '' ? progressText(played.progress) : message}
      </p>
      {announces ? <Announcer screen={screen} /> : null}
      {helps ? <KeyHelp actions={actions} onClose={() => setHelps(false)} /> : null}
    </section>
  );
}

/** Entries of the command list; undefined while the recorder creates the play index. */
function useEntries(
  recording: ListedRecording,
  { index, progress }: Played,
  isLive: boolean,
): ReturnType<typeof commandEntries> | undefined {
  const isLoading = index === undefined && !isLive && progress !== undefined;
  return useMemo(
    () => (isLoading ? undefined : commandEntries(recording, index?.marks ?? [])),
    [index, recording, isLoading],
  );
}

function progressText(progress: number | undefined): string {
  return progress === undefined
    ? ''
    : `The time line is created: ${Math.floor(progress * 100)} %. Until then, seeking is slower.`;
}

/** Lower-case texts that the screen highlights. */
function useHighlighted(texts: readonly string[], find: string): readonly string[] {
  return useMemo(
    () => [...new Set([...texts, find.trim().toLowerCase()])].filter((text) => text !== ''),
    [texts, find],
  );
}

interface Rate {
  readonly speed: number;
  readonly skips: boolean;
  readonly useSpeed: (speed: number) => void;
  readonly useSkips: (skips: boolean) => void;
}

/** Speed of the playback, and whether it skips idle time. */
function useRate(playback: Played['playback']): Rate {
  const [speed, setSpeed] = useState(1);
  const [skips, setSkips] = useState(true);
  return {
    speed,
    skips,
    useSpeed(factor) {
      setSpeed(factor);
      if (playback !== undefined) playback.speed = factor;
    },
    useSkips(value) {
      setSkips(value);
      if (playback !== undefined) playback.skipsIdle = value;
    },
  };
}

/** Seeks to the next or previous command. */
function seekCommand(
  playback: Played['playback'],
  entries: ReturnType<typeof commandEntries>,
  by: 1 | -1,
): void {
  const now = playback?.state.position ?? 0;
  const at = currentEntry(entries, now);
  // less than a second after the start of a command, going back selects the previous command
  const isAtStart = now - (entries[at]?.at ?? 0) < 1;
  const next = entries[by === 1 ? at + 1 : isAtStart ? at - 1 : at];
  if (next !== undefined) void playback?.seek(next.at);
}

interface SideProps {
  readonly choice: SideChoice;
  readonly entries: ReturnType<typeof commandEntries> | undefined;
  readonly reviewing: ReturnType<typeof useReview>;
  readonly recording: ListedRecording;
  readonly state: Played['state'];
  readonly onSeek: (seconds: number) => void;
}

/** Panel with commands, transcript and notes. */
function Side({ choice, entries, reviewing, recording, state, onSeek }: SideProps): JSX.Element {
  const isOffline = useContext(Recorder).exportRecording === undefined;
  const { side, setSide } = choice;
  const { review } = reviewing;
  return (
    <SidePanel
      tabs={[
        {
          tab: 'commands',
          title: 'Commands',
          count: entries?.filter(({ isCommand }) => isCommand).length,
        },
        { tab: 'transcript', title: 'Transcript' },
        ...(isOffline ? [] : [{ tab: 'notes', title: 'Notes', count: review?.comments.length } as const]),
      ]}
      selected={isOffline && side === 'notes' ? 'commands' : side}
      onSelect={setSide}
    >
      {side === 'notes' && !isOffline ? (
        <ReviewPanel state={reviewing} position={state.position} onSeek={onSeek} />
      ) : side !== 'transcript' ? (
        <CommandList entries={entries} position={state.position} onSeek={onSeek} />
      ) : (
        <TranscriptView
          id={recording.id}
          position={state.position}
          playing={state.playing}
          find={choice.find}
          onFind={choice.setFind}
          isHidden={choice.isHidden}
          onHidden={choice.setHidden}
          onSeek={onSeek}
          onHits={choice.setHits}
        />
      )}
    </SidePanel>
  );
}

/** State of a message that is shown for a few seconds. */
function useMessage(): [string, (text: string) => void] {
  const [message, setMessage] = useState('');
  return [
    message,
    (text) => {
      setMessage(text);
      setTimeout(() => setMessage((now) => (now === text ? '' : now)), TOLD_MS);
    },
  ];
}

/** All marks of the time line, in order of time. */
function marksOf(
  recording: ListedRecording,
  index: Played['index'],
  comments: readonly ReviewComment[] = [],
  hits: readonly TimelineMark[] = [],
): readonly TimelineMark[] {
  return [...(index?.marks ?? []), ...endOf(recording), ...hits, ...commentMarks(comments)].toSorted(
    (left, right) => left.at - right.at,
  );
}

function commentMarks(comments: readonly ReviewComment[]): readonly TimelineMark[] {
  return comments.flatMap(({ seconds, text }) =>
    seconds === undefined ? [] : [{ at: seconds, kind: 'note', text }],
  );
}

/** Mark with the result at the end of the session; empty if the result is unknown. */
function endOf(recording: ListedRecording): readonly TimelineMark[] {
  const { durationSeconds: at = 0, result, resultMessage, state, problem } = recording;
  const cut = state === 'completed' || problem === undefined ? [] : [problem];
  const hasCode = exitCodeOf(result) !== undefined;
  const ended = hasCode ? `exit ${result}` : result;
  const text = [ended, resultMessage, ...cut].filter((part) => part !== undefined).join(': ');
  if (text === '') return [];
  return [{ at, kind: result === '0' && cut.length === 0 ? 'exit' : 'failure', text }];
}

interface SideChoice {
  readonly side: SideTab;
  readonly setSide: (side: SideTab) => void;
  /** Text of the find field. */
  readonly find: string;
  readonly setFind: (find: string) => void;
  readonly hits: readonly TimelineMark[];
  readonly setHits: (hits: readonly TimelineMark[]) => void;
  /** True if the transcript shows the lines that never became visible. */
  readonly isHidden: boolean;
  readonly setHidden: (shown: boolean) => void;
  readonly showHidden: () => void;
}

/**
 * State of the panel: the selected tab and the matches in the transcript. The tab is a stored preference, so the next
 * recording opens with the same tab.
 */
function useSideChoice(sought: string): SideChoice {
  const [preferred, prefer] = usePreference('side');
  const [side, showSide] = useState<SideTab>(sought === '' ? preferred : 'transcript');
  const [find, setFind] = useState(sought);
  const [hits, setHits] = useState(NO_MARKS);
  const [isHidden, setHidden] = useState(false);
  const setSide = (chosen: SideTab): void => {
    showSide(chosen);
    prefer(chosen);
    if (chosen !== 'transcript') setHits(NO_MARKS);
  };
  useFind(() => setSide('transcript'));
  const showHidden = (): void => {
    setSide('transcript');
    setHidden(true);
  };
  return { side, setSide, find, setFind, hits, setHits, isHidden, setHidden, showHidden };
}

/** Ctrl-F moves the focus to the find field of the transcript. In the find field, Ctrl-F opens the browser's search. */
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

/**
 * Writes the position into the URL of the page, and copies the URL to the clipboard. @returns the message for the user
 */
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
