/** Keyboard controls of the player. */
import type { Playback } from '../screen/playback.ts';
import type { KeyAction } from './keyboard.tsx';

/** Available playback speeds. */
export const SPEEDS = [0.5, 1, 2, 4, 8, 16];
const STEP_SECONDS = 5;
const LONG_STEP_SECONDS = 60;

interface Handles {
  readonly playback: Playback | undefined;
  readonly speed: number;
  readonly skips: boolean;
  readonly useSpeed: (speed: number) => void;
  readonly useSkips: (skips: boolean) => void;
  /** Seeks to the next or previous match of the search. */
  readonly onHit: (by: 1 | -1) => void;
  /** Seeks to the next or previous command. */
  readonly onCommand: (by: 1 | -1) => void;
  readonly onZoom: (by: 1 | -1) => void;
  readonly onTranscript: () => void;
  readonly onZone: () => void;
  readonly onLink: () => void;
  readonly onHelp: () => void;
  readonly onGo: () => void;
  readonly onFullscreen: () => void;
}

/** Key actions, in the order of the help. */
export function keyActions(handles: Handles): readonly KeyAction[] {
  const { playback, speed } = handles;
  const move = (seconds: number): void => {
    void playback?.seek((playback.state.position ?? 0) + seconds);
  };
  const faster = (by: 1 | -1): void => {
    const next = SPEEDS[SPEEDS.indexOf(speed) + by];
    if (next !== undefined) handles.useSpeed(next);
  };
  const end = (): number => playback?.state.seconds ?? 0;
  return [
    { keys: [' ', 'k'], does: 'Play or pause', run: () => toggle(playback) },
    { keys: ['['], does: 'Previous command', run: () => handles.onCommand(-1) },
    { keys: [']'], does: 'Next command', run: () => handles.onCommand(1) },
    { keys: ['ArrowLeft', 'j'], does: '5 seconds back', run: () => move(-STEP_SECONDS) },
    { keys: ['ArrowRight', 'l'], does: '5 seconds forward', run: () => move(STEP_SECONDS) },
    { keys: ['Shift+ArrowLeft'], does: '1 minute back', run: () => move(-LONG_STEP_SECONDS) },
    { keys: ['Shift+ArrowRight'], does: '1 minute forward', run: () => move(LONG_STEP_SECONDS) },
    { keys: ['.'], does: 'Pause and show the next change', run: () => void playback?.step() },
    {
      keys: ['Home'],
      does: 'Start (in the terminal)',
      isForTerminal: true,
      run: () => void playback?.seek(0),
    },
    {
      keys: ['End'],
      does: 'End (in the terminal)',
      isForTerminal: true,
      run: () => void playback?.seek(end()),
    },
    {
      keys: ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9'],
      does: 'Tenths of the recording',
      run: (key) => void playback?.seek((end() * Number(key)) / 10),
    },
    { keys: ['<'], does: 'Slower', run: () => faster(-1) },
    { keys: ['>'], does: 'Faster', run: () => faster(1) },
    ...sizeKeys(handles),
    { keys: ['n'], does: 'Next match of the search', run: () => handles.onHit(1) },
    { keys: ['N'], does: 'Previous match', run: () => handles.onHit(-1) },
    { keys: ['t'], does: 'Panel; Ctrl-F finds in the transcript', run: handles.onTranscript },
    { keys: ['i'], does: 'Skip idle time', run: () => handles.useSkips(!handles.skips) },
    { keys: ['g'], does: 'Go to a time', run: handles.onGo },
    { keys: ['c'], does: 'Copy a link to this moment', run: handles.onLink },
    { keys: ['z'], does: 'Local time or UTC', run: handles.onZone },
    helpKey(handles.onHelp),
  ];
}

/** Key action that opens the help. */
export function helpKey(onHelp: () => void): KeyAction {
  return { keys: ['?'], does: 'Keyboard help', run: onHelp };
}

/** Key actions for the size of the screen. */
export function sizeKeys({
  onZoom,
  onFullscreen,
}: Pick<Handles, 'onZoom' | 'onFullscreen'>): readonly KeyAction[] {
  return [
    { keys: ['-'], does: 'Smaller text', run: () => onZoom(-1) },
    { keys: ['+', '='], does: 'Larger text', run: () => onZoom(1) },
    { keys: ['f'], does: 'Full screen', run: onFullscreen },
  ];
}

/** Plays or pauses. */
export function toggle(playback: Playback | undefined): void {
  if (playback?.state.playing === true) playback.pause();
  else playback?.play();
}
