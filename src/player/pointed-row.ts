/** Finds the list row that is under the pointer or has the keyboard focus. */
import type { RefObject } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import type { Listed } from './archive.ts';

interface Pointed {
  readonly recording: Listed;
  /** Position of the preview in the window, in pixels. */
  readonly left: number;
  readonly top: number;
}

/**
 * Time after which a preview is loaded, in milliseconds. Each preview causes an access event, so a pointer that only
 * passes must not load a preview.
 */
const DWELL_MS = 500;
const PREVIEW_HEIGHT = 190;

/** Returns the recording whose row has been under the mouse or has had the focus for {@link DWELL_MS}. */
export function usePointedAt(
  table: RefObject<HTMLTableElement | null>,
  recordings: readonly Listed[],
): Pointed | undefined {
  const [pointed, setPointed] = useState<Pointed>();
  const all = useRef(recordings);
  all.current = recordings;
  useEffect(() => {
    const element = table.current;
    if (element === null) return undefined;
    let timer: ReturnType<typeof setTimeout> | undefined;
    let at: Element | undefined;
    const leave = (): void => {
      clearTimeout(timer);
      at = undefined;
      setPointed(undefined);
    };
    const come = (event: Event): void => {
      const row = event.target instanceof Element ? event.target.closest<HTMLElement>('tr[data-id]') : null;
      if (row === null || row === at) return;
      leave();
      at = row;
      timer = setTimeout(() => setPointed(pointedAt(row, all.current)), DWELL_MS);
    };
    const onKey = (event: KeyboardEvent): void => {
      if (event.key === 'Escape') leave();
    };
    element.addEventListener('mouseover', come);
    element.addEventListener('focusin', come);
    element.addEventListener('mouseleave', leave);
    element.addEventListener('focusout', leave);
    addEventListener('scroll', leave, { passive: true });
    addEventListener('keydown', onKey);
    return () => {
      clearTimeout(timer);
      element.removeEventListener('mouseover', come);
      element.removeEventListener('focusin', come);
      element.removeEventListener('mouseleave', leave);
      element.removeEventListener('focusout', leave);
      removeEventListener('scroll', leave);
      removeEventListener('keydown', onKey);
    };
  }, []);
  return pointed;
}

function pointedAt(row: HTMLElement, recordings: readonly Listed[]): Pointed | undefined {
  const recording = recordings.find(({ id }) => id === row.dataset['id']);
  // running sessions have no preview; the wall shows their screens
  if (recording === undefined || recording.state === 'running') return undefined;
  const box = row.getBoundingClientRect();
  const hasRoomBelow = box.bottom + PREVIEW_HEIGHT < innerHeight;
  return {
    recording,
    left: box.left + box.width / 3,
    top: hasRoomBelow ? box.bottom + 4 : Math.max(0, box.top - PREVIEW_HEIGHT),
  };
}
