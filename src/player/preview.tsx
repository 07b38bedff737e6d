/**
 * Small preview of a recording at a position. A second player renders the preview, so the preview and the main player
 * show the same screen.
 */
import type { JSX } from 'preact';
import { useContext, useEffect, useRef, useState } from 'preact/hooks';
import type { PlayIndex } from '../screen/play-index.ts';
import { Playback } from '../screen/playback.ts';
import { createTerminal } from '../screen/terminal.ts';
import type { ListedRecording } from '../wire/recorder-api/recording.ts';
import { readFrame } from './archive.ts';
import { openCast } from './cast-source.ts';
import { Recorder } from './recorder-context.ts';
import { createScreenView } from './screen-view.ts';
import { followIndex, type Previewed } from './use-playback.ts';

const WIDTH_PX = 280;
const HEIGHT_PX = 160;
/** Time after which a preview is loaded for a pointer that does not move, in milliseconds. */
const PAUSE_MS = 60;

/** A preview at a position. It is hidden from assistive technology, because the linked page has the same content. */
export function Preview({
  previewed,
  at,
}: {
  readonly previewed: Previewed;
  readonly at: number;
}): JSX.Element {
  const { ask } = useContext(Recorder);
  const element = useRef<HTMLDivElement>(null);
  const show = useRef<(at: number) => void>(undefined);
  useEffect(() => {
    if (element.current === null) return undefined;
    const { id, opened, index } = previewed;
    const gone = new AbortController();
    const terminal = createTerminal({
      ...opened.start.size,
      withoutTerminal: opened.start.withoutTerminal,
    });
    const view = createScreenView(element.current);
    view.fit(WIDTH_PX, HEIGHT_PX);
    const playback = new Playback({
      ...opened,
      terminal,
      seconds: index.seconds,
      loadFrame: (number) => readFrame(ask, id, number, gone.signal),
      onChange: () => undefined,
    });
    playback.useFrames(index.frames, index.seconds);
    show.current = (seconds) =>
      void playback.seek(seconds).then(() => {
        if (!gone.signal.aborted) view.paint(terminal.emulator);
      });
    return () => {
      show.current = undefined;
      gone.abort();
      playback.dispose();
      view.dispose();
      terminal.dispose();
    };
  }, [previewed]);
  useEffect(() => {
    const timer = setTimeout(() => show.current?.(at), PAUSE_MS);
    return () => clearTimeout(timer);
  }, [previewed, at]);
  return <div ref={element} class="preview" aria-hidden="true" lang="zxx" translate={false} />;
}

/**
 * Preview of a recording at the middle of its output. Renders nothing before the preview is loaded, or if the recording
 * has no preview.
 */
export function RecordingPreview({
  recording: { id },
}: {
  readonly recording: ListedRecording;
}): JSX.Element | null {
  const { ask } = useContext(Recorder);
  const [previewed, setPreviewed] = useState<Previewed>();
  useEffect(() => {
    const gone = new AbortController();
    const load = async (): Promise<void> => {
      const opened = await openCast(ask, id, gone.signal);
      await followIndex(
        ask,
        id,
        gone.signal,
        () => undefined,
        (index) => {
          if (index.characters > 0) setPreviewed({ id, opened, index });
        },
      );
    };
    // the view of the recording reports the error
    load().catch(() => undefined);
    return () => gone.abort();
  }, [id]);
  if (previewed === undefined) return null;
  return <Preview previewed={previewed} at={middleOf(previewed.index)} />;
}

/** Time at which half of the output was written. */
function middleOf({ activity, seconds }: Pick<PlayIndex, 'activity' | 'seconds'>): number {
  const half = activity.reduce((sum, count) => sum + count, 0) / 2;
  let before = 0;
  const span = activity.findIndex((count) => (before += count) >= half);
  return ((span + 1) / Math.max(1, activity.length)) * seconds;
}
