/** Controls of the player, in groups: playback, speed, size of the text, sharing, full screen. */
import {
  AArrowDown,
  AArrowUp,
  ChevronsLeft,
  ChevronsRight,
  FastForward,
  Keyboard,
  Maximize,
  Minimize,
  PanelRight,
  Pause,
  Play,
  Radio,
  Settings2,
} from 'lucide';
import type { JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { clockText, parseClock } from '../screen/clock-text.ts';
import type { PlaybackState } from '../screen/playback.ts';
import type { ListedRecording } from '../wire/recorder-api/recording.ts';
import { Drop } from './drop.tsx';
import { Icon, IconButton } from './icon.tsx';
import { usePreference } from './preferences.ts';
import { Choice } from './settings-menu.tsx';
import { ShareMenu } from './share-menu.tsx';
import type { SideTab } from './side-panel.tsx';
import { SpeedSelect } from './speed-select.tsx';

export interface ControlProps {
  readonly recording: ListedRecording;
  readonly state: PlaybackState;
  readonly speed: number;
  readonly skips: boolean;
  readonly side: SideTab;
  readonly announces: boolean;
  readonly onPlay: () => void;
  readonly onSeek: (seconds: number) => void;
  /** Seeks to the next or previous command. */
  readonly onCommand: (by: 1 | -1) => void;
  readonly useSpeed: (speed: number) => void;
  readonly useSkips: (skips: boolean) => void;
  /** Makes the text larger or smaller. */
  readonly onZoom: (by: 1 | -1) => void;
  readonly onAnnounce: (announces: boolean) => void;
  readonly onSide: () => void;
  readonly onLink: () => void;
  readonly onLive: (() => void) | undefined;
  readonly onFullscreen: () => void;
  readonly onMessage: (text: string) => void;
  readonly onHelp: () => void;
}

export function Controls(props: ControlProps): JSX.Element {
  const { recording, state, speed, skips, side } = props;
  return (
    <div class="controls">
      <PlayButtons {...props} />
      <Position state={state} onGo={props.onSeek} />
      {props.onLive === undefined ? null : (
        <button type="button" class="live" onClick={props.onLive}>
          <Icon icon={Radio} /> To live
        </button>
      )}
      <span class="spacer hide-on-phone" />
      <span class="group">
        <SpeedSelect speed={speed} title="Speed (< and >)" onSpeed={props.useSpeed} />
        <IconButton
          icon={FastForward}
          label="Skip idle time"
          shortcut="i"
          isPressed={skips}
          onClick={() => props.useSkips(!skips)}
        />
      </span>
      <TextSize onZoom={props.onZoom} />
      <span class="group">
        <DisplayOptions {...props} />
        <ShareMenu
          recording={recording}
          position={state.position}
          seconds={state.seconds}
          onLink={props.onLink}
          onMessage={props.onMessage}
        />
        <IconButton
          icon={PanelRight}
          label="Panel with commands and transcript"
          shortcut="t"
          isPressed={side !== 'closed'}
          onClick={props.onSide}
        />
        <FullscreenButton onFullscreen={props.onFullscreen} />
        <HelpButton onHelp={props.onHelp} />
      </span>
    </div>
  );
}

/** Controls of a live screen: size of the text, screen options, full screen and help. */
export function ScreenControls(
  props: Pick<ControlProps, 'onZoom' | 'onFullscreen' | 'announces' | 'onAnnounce' | 'onHelp'>,
): JSX.Element {
  return (
    <>
      <TextSize onZoom={props.onZoom} />
      <span class="group">
        <DisplayOptions {...props} />
        <FullscreenButton onFullscreen={props.onFullscreen} />
        <HelpButton onHelp={props.onHelp} />
      </span>
    </>
  );
}

function HelpButton({ onHelp }: Pick<ControlProps, 'onHelp'>): JSX.Element {
  return (
    <IconButton icon={Keyboard} class="keyboard-only" label="Keyboard help" shortcut="?" onClick={onHelp} />
  );
}

function TextSize({ onZoom }: Pick<ControlProps, 'onZoom'>): JSX.Element {
  return (
    <span class="group hide-on-phone">
      <IconButton icon={AArrowDown} label="Smaller text" shortcut="-" onClick={() => onZoom(-1)} />
      <IconButton icon={AArrowUp} label="Larger text" shortcut="+" onClick={() => onZoom(1)} />
    </span>
  );
}

function FullscreenButton({ onFullscreen }: Pick<ControlProps, 'onFullscreen'>): JSX.Element {
  const isFull = useIsFullscreen();
  return (
    <IconButton
      icon={isFull ? Minimize : Maximize}
      label={isFull ? 'Leave full screen' : 'Full screen'}
      shortcut="f"
      onClick={onFullscreen}
    />
  );
}

function PlayButtons({ state, onPlay, onCommand }: ControlProps): JSX.Element {
  return (
    <span class="group">
      <IconButton icon={ChevronsLeft} label="Previous command" shortcut="[" onClick={() => onCommand(-1)} />
      <button
        type="button"
        class="play primary"
        aria-label={state.playing ? 'Pause' : 'Play'}
        title={state.playing ? 'Pause (Space)' : 'Play (Space)'}
        onClick={onPlay}
      >
        <Icon icon={state.playing ? Pause : Play} />
      </button>
      <IconButton icon={ChevronsRight} label="Next command" shortcut="]" onClick={() => onCommand(1)} />
    </span>
  );
}

const FITS: readonly (readonly [fit: 'auto' | 'width' | 'height', title: string])[] = [
  ['auto', 'Automatic'],
  ['width', 'Full width'],
  ['height', 'Full height'],
];

function DisplayOptions({
  onZoom,
  announces,
  onAnnounce,
}: Pick<ControlProps, 'onZoom' | 'announces' | 'onAnnounce'>): JSX.Element {
  const [fit, setFit] = usePreference('fit');
  return (
    <Drop class="display-options" label="Screen options" icon={Settings2} isQuiet>
      <fieldset class="choice">
        <legend>Size of the text</legend>
        {FITS.map(([name, title]) => (
          <label key={name}>
            <input type="radio" name="fit" checked={fit === name} onChange={() => setFit(name)} />
            {title}
          </label>
        ))}
        <IconButton icon={AArrowDown} label="Smaller text in the menu" onClick={() => onZoom(-1)} />
        <IconButton icon={AArrowUp} label="Larger text in the menu" onClick={() => onZoom(1)} />
      </fieldset>
      <Choice name="terminal" legend="Colours of the terminal" />
      <Choice name="zone" legend="Time zone" />
      <label class="check">
        <input
          type="checkbox"
          checked={announces}
          onChange={(event) => onAnnounce(event.currentTarget.checked)}
        />{' '}
        Read new output aloud (screen readers)
      </label>
    </Drop>
  );
}

function useIsFullscreen(): boolean {
  const [isFull, setFull] = useState(document.fullscreenElement !== null);
  useEffect(() => {
    const follow = (): void => setFull(document.fullscreenElement !== null);
    document.addEventListener('fullscreenchange', follow);
    return () => document.removeEventListener('fullscreenchange', follow);
  }, []);
  return isFull;
}

/** Shows the current position. The user can edit it to seek to a time. */
function Position({
  state,
  onGo,
}: {
  readonly state: PlaybackState;
  readonly onGo: (seconds: number) => void;
}): JSX.Element {
  const [typed, setTyped] = useState<string>();
  return (
    <span class="position">
      <input
        aria-label="Position. Enter a time, such as 90, 1:30 or 1h2m3s"
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
    </span>
  );
}
