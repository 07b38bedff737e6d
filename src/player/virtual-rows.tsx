/** A long list of rows of one height, of which only those in sight are in the page. */
import type { JSX, RefObject } from 'preact';
import { useEffect, useLayoutEffect, useState } from 'preact/hooks';

export interface VirtualRowsProps {
  /** What scrolls. */
  readonly scroller: RefObject<HTMLElement | null>;
  readonly count: number;
  /** Pixels. */
  readonly rowHeight: number;
  readonly row: (index: number) => JSX.Element;
}

/** Rows beyond both edges, for whoever scrolls quickly. */
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

/** Brings a row into sight, as little as needed. */
export function showRow(scroller: HTMLElement | null, index: number, rowHeight: number): void {
  if (scroller === null) return;
  const top = index * rowHeight;
  const { scrollTop, clientHeight } = scroller;
  if (top >= scrollTop && top + rowHeight <= scrollTop + clientHeight) return;
  scroller.scrollTop = Math.max(0, top - clientHeight / 2);
}
