/** Hook that creates the terminal and the playback of a recording, and loads its play index. */
import { useContext, useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { Playback, type PlaybackState } from '../screen/playback.ts';
import { GROWING_STEP_BYTES, type PlayIndex } from '../screen/play-index.ts';
import { createTerminal } from '../screen/terminal.ts';
import { readFrame, readPlayIndex } from './archive.ts';
import type { ListedRecording } from '../wire/recorder-api/recording.ts';
import { openCast, type OpenCast } from './cast-source.ts';
import { Recorder, type Ask } from './recorder-context.ts';
import { createScreenView, type ScreenFit, type ScreenView } from './screen-view.ts';

/** Source of previews. With the play index, a seek is fast for every position. */
export interface Previewed {
  readonly id: string;
  readonly opened: OpenCast;
  readonly index: PlayIndex;
}

export interface Played {
  readonly playback: Playback | undefined;
  /** Source of previews; undefined while it loads and for a running session. */
  readonly previewed: Previewed | undefined;
  readonly state: PlaybackState;
  readonly index: PlayIndex | undefined;
  /**
   * Progress of the recorder's work on the play index, from 0 to 1; undefined if the recorder is not creating a play
   * index.
   */
  readonly progress: number | undefined;
}

export interface PlayedOptions {
  readonly recording: ListedRecording;
  readonly startAt: number | undefined;
  readonly autoPlay: boolean;
  readonly fit: ScreenFit;
  /** Texts that are highlighted on the screen, in lower case. */
  readonly highlighted: readonly string[];
}

const NOTHING: PlaybackState = {
  position: 0,
  seconds: 0,
  playing: false,
  ended: false,
  waiting: true,
  badLines: 0,
  isCut: false,
  stoppedAt: undefined,
  problem: undefined,
};
const INDEX_RETRY_MS = 1000;
const GROW_MS = 1000;
/** Interval of drawings during a seek, in seconds. */
const SEEK_DRAW_SECONDS = 0.25;

/** Plays into `element` while the component is mounted. */
export function usePlayback(element: HTMLElement | null, options: PlayedOptions): Played {
  const { recording, startAt, autoPlay, fit, highlighted } = options;
  const { id } = recording;
  const { ask } = useContext(Recorder);
  const [playback, setPlayback] = useState<Playback>();
  const [state, setState] = useState(NOTHING);
  const [index, setIndex] = useState<PlayIndex>();
  const [previewed, setPreviewed] = useState<Previewed>();
  const [progress, setProgress] = useState<number>();
  const isGrowing = recording.state === 'running';
  const first = useRef({ startAt, autoPlay });
  const setView = useDisplayed(fit, highlighted);

  // a normal effect would wait until the browser has painted the page without a screen
  useLayoutEffect(() => {
    if (element === null) return undefined;
    const gone = new AbortController();
    const stop = (): void => gone.abort();
    const view = openView(element, recording, gone.signal);
    setView(view);
    gone.signal.addEventListener('abort', () => setView(undefined));
    const run = async (): Promise<void> => {
      const opened = await openCast(ask, id, gone.signal, isGrowing);
      if (gone.signal.aborted) return;
      const { start } = opened;
      const terminal = createTerminal({ ...start.size, withoutTerminal: start.withoutTerminal });
      const made = new Playback({
        ...opened,
        terminal,
        seconds: recording.durationSeconds,
        loadFrame: (number) => readFrame(ask, id, number, gone.signal),
        onChange: () => drawing.change(),
      });
      const drawing = createDrawing(made, () => view.paint(terminal.emulator), setState);
      const stopDrawing = startAnimation((seconds) => {
        made.tick(seconds);
        drawing.frame(seconds);
      });
      gone.signal.addEventListener('abort', () => {
        stopDrawing();
        // when a session stops, playback continues at the viewer's position
        first.current = { startAt: made.state.position, autoPlay: made.state.playing };
        made.dispose();
        terminal.dispose();
      });
      if (isGrowing) await useFramesSoFar(ask, opened, id, made, gone.signal);
      if (gone.signal.aborted) return;
      setPlayback(made);
      const seeking = made.seek(first.current.startAt ?? 0);
      if (first.current.autoPlay) made.play();
      if (isGrowing) {
        await growWith(opened, made, gone.signal);
        return;
      }
      // only a seek to a later position needs the index
      if (first.current.startAt === undefined) await seeking;
      await followIndex(ask, id, gone.signal, setProgress, (found) => {
        made.useFrames(found.frames, found.seconds);
        setIndex(found);
        setPreviewed({ id, opened, index: found });
      });
    };
    run().catch((error: unknown) => {
      if (!gone.signal.aborted)
        setState({
          ...NOTHING,
          waiting: false,
          problem: error instanceof Error ? error.message : String(error),
        });
    });
    return stop;
  }, [element, id, isGrowing]);
  return { playback, previewed, state, index, progress };
}

/**
 * Draws the screen and shows the state in each animation frame that follows a change. Draws the last screen of a seek
 * immediately, so that the next frame contains it.
 */
export function createDrawing<State>(
  playback: { readonly isSeeking: boolean; readonly state: State },
  draw: () => void,
  show: (state: State) => void,
): { change(): void; frame(seconds: number): void } {
  let isShown = false;
  let isDrawn = false;
  let sinceDrawn = 0;
  let wasSeeking = false;
  const drawNow = (): void => {
    isDrawn = true;
    sinceDrawn = 0;
    draw();
  };
  return {
    change() {
      isShown = false;
      isDrawn = false;
      const hasArrived = wasSeeking && !playback.isSeeking;
      wasSeeking = playback.isSeeking;
      if (hasArrived) drawNow();
    },
    /** @param seconds time since the previous frame */
    frame(seconds) {
      sinceDrawn += seconds;
      if (!isShown) show(playback.state);
      isShown = true;
      // draw rarely during a seek, because each drawing delays the seek
      if (isDrawn || (playback.isSeeking && sinceDrawn < SEEK_DRAW_SECONDS)) return;
      drawNow();
    },
  };
}

/** Opens a view that has the terminal size of the recording, and closes it when `signal` aborts. */
function openView(
  element: HTMLElement,
  { width: columns, height: rows }: ListedRecording,
  signal: AbortSignal,
): ScreenView {
  const view = createScreenView(element);
  if (columns > 0 && rows > 0) view.reserve({ columns, rows });
  const fitting = watchRoom(element, (width, height) => view.fit(width, height));
  signal.addEventListener('abort', () => {
    fitting.stop();
    view.dispose();
  });
  return view;
}

/** Applies the size and the highlights to the current view. @returns a function that sets the current view */
function useDisplayed(
  fit: PlayedOptions['fit'],
  highlighted: readonly string[],
): (view: ScreenView | undefined) => void {
  const shown = useRef<ScreenView>(undefined);
  const display = useRef({ fit, highlighted });
  display.current = { fit, highlighted };
  useEffect(() => shown.current?.setFit(fit), [fit]);
  useEffect(() => shown.current?.highlight(highlighted), [highlighted]);
  return (view) => {
    shown.current = view;
    view?.setFit(display.current.fit);
    view?.highlight(display.current.highlighted);
  };
}

/**
 * Calls `draw` for each animation frame, with the time since the previous frame. @returns a function that stops the
 * calls
 */
function startAnimation(draw: (seconds: number) => void): () => void {
  let last = performance.now();
  const next = (now: number): void => {
    draw(Math.max(0, now - last) / 1000);
    last = now;
    frame = requestAnimationFrame(next);
  };
  let frame = requestAnimationFrame(next);
  return () => cancelAnimationFrame(frame);
}

/** Loads the existing keyframes of a running session if its recording is large, so that a look-back is fast. */
async function useFramesSoFar(
  ask: Ask,
  { cast }: OpenCast,
  id: string,
  playback: Playback,
  signal: AbortSignal,
): Promise<void> {
  if (cast.bytes < GROWING_STEP_BYTES) return;
  const found = await readPlayIndex(ask, id, signal).catch(() => undefined);
  if (found !== undefined && 'frames' in found) playback.useFrames(found.frames, 0);
}

/** Updates the playback of a running session until `signal` aborts. */
async function growWith({ refresh }: OpenCast, playback: Playback, signal: AbortSignal): Promise<void> {
  const { seconds } = playback.state;
  const since = performance.now();
  while (!signal.aborted) {
    await new Promise((resolve) => setTimeout(resolve, GROW_MS));
    // an error is ignored, because the next call retries; the recorder may be temporarily unreachable
    await refresh().catch(() => undefined);
    if (!signal.aborted) playback.grow(seconds + (performance.now() - since) / 1000);
  }
}

/** Polls until the index is ready, or until it is unavailable. */
export async function followIndex(
  ask: Ask,
  id: string,
  signal: AbortSignal,
  setProgress: (progress: number | undefined) => void,
  found: (index: PlayIndex) => void,
): Promise<void> {
  for (;;) {
    // ignore the error, because the recording plays without an index
    const answer = await readPlayIndex(ask, id, signal).catch(() => undefined);
    if (signal.aborted) return;
    if (answer === undefined || 'frames' in answer) {
      setProgress(undefined);
      if (answer !== undefined) found(answer);
      return;
    }
    setProgress(answer.progress);
    await new Promise((resolve) => setTimeout(resolve, INDEX_RETRY_MS));
  }
}

/** Calls a function with the available size, immediately and after each change. */
export function watchRoom(
  element: HTMLElement,
  tell: (width: number, height: number) => void,
): { stop(): void } {
  const look = (): void => {
    const { clientWidth } = element;
    const style = getComputedStyle(element);
    const across = Number.parseFloat(style.paddingLeft) + Number.parseFloat(style.paddingRight);
    const down = Number.parseFloat(style.paddingTop) + Number.parseFloat(style.paddingBottom);
    tell(clientWidth - across, Number.parseFloat(style.maxHeight) - down);
  };
  const observer = new ResizeObserver(look);
  observer.observe(element);
  addEventListener('resize', look);
  look();
  return {
    stop() {
      observer.disconnect();
      removeEventListener('resize', look);
    },
  };
}
