/** Keyboard controls of the player. */
import type { Playback } from '../screen/playback.ts';
import type { KeyAction } from './keyboard.tsx';
import type { TimelineMark } from './timeline.tsx';

/** Available playback speeds. */
export const SPEEDS = [0.5, 1, 2, 4, 8, 16];
const STEP_SECONDS = 5;
const LONG_STEP_SECONDS = 60;

interface Handles {
  readonly playback: Playback | undefined;
  readonly marks: readonly TimelineMark[];
  readonly speed: number;
  readonly skips: boolean;
  readonly useSpeed: (speed: number) => void;
  readonly useSkips: (skips: boolean) => void;
  /** Seeks to the next or previous match of the search. */
  readonly onHit: (by: 1 | -1) => void;
  readonly onTranscript: () => void;
  readonly onZone: () => void;
  readonly onLink: () => void;
  readonly onHelp: () => void;
  readonly onGo: () => void;
  readonly onFullscreen: () => void;
}

/** Key actions, in the order of the help. */
export function keyActions(handles: Handles): readonly KeyAction[] {
  const { playback, marks, speed } = handles;
  const move = (seconds: number): void => {
    void playback?.seek((playback.state.position ?? 0) + seconds);
  };
  const faster = (by: 1 | -1): void => {
    const next = SPEEDS[SPEEDS.indexOf(speed) + by];
    if (next !== undefined) handles.useSpeed(next);
  };
  const mark = (by: 1 | -1): void => {
    const now = playback?.state.position ?? 0;
    const times = marks.map(({ at }) => at);
    // shortly after a match the position still counts as that match, so going back must skip it
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
    { keys: ['n'], does: 'to the next hit of the search', run: () => handles.onHit(1) },
    { keys: ['N'], does: 'to the hit before', run: () => handles.onHit(-1) },
    { keys: ['t'], does: 'transcript; Ctrl-F finds in it', run: handles.onTranscript },
    { keys: ['i'], does: 'skip idle time or not', run: () => handles.useSkips(!handles.skips) },
    { keys: ['g'], does: 'go to a time', run: handles.onGo },
    { keys: ['c'], does: 'copy a link to this moment', run: handles.onLink },
    { keys: ['z'], does: 'local time or UTC', run: handles.onZone },
    { keys: ['f'], does: 'full screen', run: handles.onFullscreen },
    { keys: ['?'], does: 'these keys', run: handles.onHelp },
  ];
}

/** Plays or pauses. */
export function toggle(playback: Playback | undefined): void {
  if (playback?.state.playing === true) playback.pause();
  else playback?.play();
}
