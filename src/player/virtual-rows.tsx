/** A long list of rows with equal height. Only visible rows are in the page. */
import type { JSX, RefObject } from 'preact';
import { useEffect, useLayoutEffect, useState } from 'preact/hooks';

export interface VirtualRowsProps {
  /** The scrolling element. */
  readonly scroller: RefObject<HTMLElement | null>;
  readonly count: number;
  /** Height of a row, in pixels. */
  readonly rowHeight: number;
  readonly row: (index: number) => JSX.Element;
}

/** Extra rows above and below the visible area, for fast scrolling. */
const BEYOND = 20;

export function VirtualRows({ scroller, count, rowHeight, row }: VirtualRowsProps): JSX.Element {
  const [range, setRange] = useState({ first: 0, last: 60 });
  const look = (): void => {
    const element = scroller.current;
    if (element === null) return;
    const first = Math.max(0, Math.floor(element.scrollTop / rowHeight) - BEYOND);
    const last = Math.ceil((element.scrollTop + element.clientHeight) / rowHeight) + BEYOND;
    setRange((old) => (old.first === first && old.last === last ? old : { first, last }));
  };
  useLayoutEffect(look, [count, rowHeight]);
  useEffect(() => {
    const element = scroller.current;
    if (element === null) return undefined;
    element.addEventListener('scroll', look, { passive: true });
    const observer = new ResizeObserver(look);
    observer.observe(element);
    return () => {
      element.removeEventListener('scroll', look);
      observer.disconnect();
    };
  }, [count, rowHeight]);
  const last = Math.min(range.last, count);
  const first = Math.min(range.first, last);
  return (
    <div class="virtual" style={{ height: `${count * rowHeight}px` }}>
      <div style={{ transform: `translateY(${first * rowHeight}px)` }}>
        {Array.from({ length: last - first }, (_, index) => row(first + index))}
      </div>
    </div>
  );
}

/** Scrolls by the minimum distance that makes a row visible. */
export function showRow(scroller: HTMLElement | null, index: number, rowHeight: number): void {
  if (scroller === null) return;
  const top = index * rowHeight;
  const { scrollTop, clientHeight } = scroller;
  if (top >= scrollTop && top + rowHeight <= scrollTop + clientHeight) return;
  scroller.scrollTop = Math.max(0, top - clientHeight / 2);
}
