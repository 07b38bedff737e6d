/** The live screen of a running session. */
import type { JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { Announcer } from './announcer.tsx';
import { stoppedText } from '../screen/clock-text.ts';
import { createCastReader } from '../screen/cast-reader.ts';
import { createTerminal, type PlayTerminal } from '../screen/terminal.ts';
import type { ListedRecording } from '../wire/recorder-api/recording.ts';
import { followLive } from './cast-source.ts';
import { whereText } from './format.ts';
import { OrderButtons } from './order-buttons.tsx';
import { KeyHelp, useKeys } from './keyboard.tsx';
import { ScreenControls } from './player-controls.tsx';
import { helpKey, sizeKeys } from './player-keys.ts';
import { toggleFullscreen, useZoom } from './screen-size.ts';
import { createScreenView, type ScreenFit } from './screen-view.ts';
import { TerminalScreen } from './terminal-screen.tsx';
import { watchRoom } from './use-playback.ts';

type Link = 'connecting' | 'live' | 'lost' | 'over';

const WORDS: Readonly<Record<Link, string>> = {
  connecting: 'Connecting…',
  live: 'Following the session.',
  lost: 'The connection was lost; trying again.',
  over: 'The session is over.',
};

export interface LiveScreenProps {
  readonly recording: ListedRecording;
  /**
   * Called when the viewer wants to look back; `seconds` is the current length of the session. If undefined, the view
   * has no button to look back.
   */
  readonly onLookBack?: (seconds: number) => void;
  /** True if the view is paused: the screen does not change until the view resumes with the newest output. */
  readonly isPaused?: boolean;
  /** Called after each output of the session. */
  readonly onOutput?: () => void;
}

export function LiveScreen(props: LiveScreenProps): JSX.Element {
  const { recording, onLookBack, isPaused = false, onOutput } = props;
  const { id, startedAt } = recording;
  const [screen, setScreen] = useState<HTMLElement | null>(null);
  const [link, setLink] = useState<Link>('connecting');
  const [stoppedAt, setStoppedAt] = useState<number>();
  const last = useRef({ seconds: 0, at: performance.now() });
  const frame = useRef<HTMLElement>(null);
  const isTile = onLookBack === undefined;
  const sized = useZoom(screen);
  const fit = isTile ? 'whole' : sized.fit;
  const display = useRef<LiveDisplay>({ isPaused, onOutput, fit, paint: undefined, setFit: undefined });
  Object.assign(display.current, { isPaused, onOutput, fit });
  useEffect(() => display.current.setFit?.(fit), [fit]);
  const size = { onZoom: sized.zoom, onFullscreen: () => void toggleFullscreen(frame.current) };
  useEffect(() => {
    if (!isPaused) display.current.paint?.();
  }, [isPaused]);
  useEffect(
    () =>
      screen === null
        ? undefined
        : follow(id, screen, { setLink, setStoppedAt, display: display.current }, last.current),
    [screen, id],
  );
  const lookBack = (): void => {
    const { seconds, at } = last.current;
    onLookBack?.(seconds + (performance.now() - at) / 1000);
  };
  return (
    <section
      ref={frame}
      class="player"
      aria-label={`Live view of ${whereText(recording)} since ${startedAt}`}
    >
      <div class="stage">
        <TerminalScreen onElement={setScreen} />
      </div>
      <p class="told" role="status">
        {WORDS[link]}
      </p>
      {stoppedAt === undefined ? null : (
        <p class="notice warning" data-notice="stopped">
          {stoppedText(stoppedAt)}
        </p>
      )}
      {isTile ? null : <LiveControls id={id} screen={screen} onLookBack={lookBack} {...size} />}
    </section>
  );
}

interface LiveControlsProps {
  readonly id: string;
  readonly screen: HTMLElement | null;
  readonly onLookBack: () => void;
  readonly onZoom: (by: 1 | -1) => void;
  readonly onFullscreen: () => void;
}

function LiveControls(props: LiveControlsProps): JSX.Element {
  const { id, screen, onLookBack, onZoom, onFullscreen } = props;
  const [announces, setAnnounces] = useState(false);
  const [helps, setHelps] = useState(false);
  const actions = [...sizeKeys({ onZoom, onFullscreen }), helpKey(() => setHelps((shown) => !shown))];
  useKeys(actions);
  return (
    <div class="controls">
      <button type="button" onClick={onLookBack}>
        Look back
      </button>
      <OrderButtons id={id} />
      <span class="spacer hide-on-phone" />
      <ScreenControls
        {...{ onZoom, onFullscreen, announces }}
        onAnnounce={setAnnounces}
        onHelp={() => setHelps(true)}
      />
      {announces ? <Announcer screen={screen} /> : null}
      {helps ? <KeyHelp actions={actions} onClose={() => setHelps(false)} /> : null}
    </div>
  );
}

interface LiveDisplay {
  readonly isPaused: boolean;
  readonly onOutput: (() => void) | undefined;
  readonly fit: ScreenFit;
  /** Draws the newest state. */
  paint: (() => void) | undefined;
  /** Sets the size of the text. */
  setFit: ((fit: ScreenFit) => void) | undefined;
}

/** Follows the session until the returned function is called. */
function follow(
  id: string,
  element: HTMLElement,
  {
    setLink: tell,
    setStoppedAt,
    display,
  }: {
    readonly setLink: (link: Link) => void;
    readonly setStoppedAt: (seconds: number | undefined) => void;
    readonly display: LiveDisplay;
  },
  last: { seconds: number; at: number },
): () => void {
  const view = createScreenView(element);
  view.setFit(display.fit);
  display.setFit = (fit) => view.setFit(fit);
  const fitting = watchRoom(element, (width, height) => view.fit(width, height));
  let terminal: PlayTerminal | undefined;
  let read = createCastReader({ rowsFirst: false });
  let drawing = 0;
  let isStopped = false;
  /** Queue of asciicast events, so that a resize waits until all earlier text is drawn. */
  let queue: Promise<void> = Promise.resolve();
  const paint = (): void => {
    drawing = 0;
    if (terminal !== undefined && !display.isPaused) view.paint(terminal.emulator);
  };
  display.paint = paint;
  const show = async (line: string, on: PlayTerminal): Promise<void> => {
    on.budget.allow(line.length);
    const action = read(line);
    if (action !== undefined) {
      last.seconds = action.seconds;
      last.at = performance.now();
    }
    if (action?.kind === 'output') {
      display.onOutput?.();
      await on.write(action.text);
    }
    if (action?.kind === 'resize') on.resize(action.size);
    if (on.isStopped && !isStopped) {
      isStopped = true;
      setStoppedAt(last.seconds);
    }
    if (drawing === 0) drawing = requestAnimationFrame(paint);
  };
  const feed = followLive(id, {
    onStart(start) {
      // after each reconnect, the screen is drawn from the beginning of the session
      terminal?.dispose();
      terminal = createTerminal({ ...start.size, withoutTerminal: start.withoutTerminal });
      read = createCastReader(start);
      queue = Promise.resolve();
      isStopped = false;
      setStoppedAt(undefined);
      tell('live');
      paint();
    },
    onLine(line) {
      const on = terminal;
      if (on !== undefined) queue = queue.then(() => show(line, on));
    },
    onEnd(isOver) {
      tell(isOver ? 'over' : 'lost');
      const on = terminal;
      if (isOver && on !== undefined) queue = queue.then(() => on.end()).then(paint);
    },
  });
  return () => {
    display.paint = undefined;
    display.setFit = undefined;
    feed.close();
    fitting.stop();
    cancelAnimationFrame(drawing);
    view.dispose();
    terminal?.dispose();
  };
}
