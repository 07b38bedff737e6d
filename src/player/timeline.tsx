/** Timeline of a recording: activity, marks, and the position. A click or a key seeks to any time. */
import type { JSX } from 'preact';
import { useRef, useState } from 'preact/hooks';
import type { PlayIndex, PlayMark } from '../screen/play-index.ts';
import { Preview } from './preview.tsx';
import type { Previewed } from './use-playback.ts';
import { clockText } from '../screen/clock-text.ts';
import { wallText, wallTimeOf, type Zone } from './wall-text.ts';

export interface TimelineProps {
  readonly position: number;
  readonly seconds: number;
  readonly index: PlayIndex | undefined;
  readonly previewed: Previewed | undefined;
  /** Marks in order of time. */
  readonly marks: readonly TimelineMark[];
  readonly startedAt: string;
  readonly zone: Zone;
  readonly onSeek: (seconds: number) => void;
}

/** A mark on the time line: a mark of the play index, the end of the session, or a search match. */
export interface TimelineMark {
  readonly at: number;
  readonly kind: PlayMark['kind'] | 'exit' | 'failure' | 'hit' | 'note';
  readonly text: string;
}

const STRIP_HEIGHT = 100;
/** Maximum number of drawn marks per kind. The viewer could not distinguish more marks. */
const MAX_DRAWN = 100;

/** A slider. `keyboard.tsx` handles the keys of the time line. */
export function Timeline(props: TimelineProps): JSX.Element {
  const { position, seconds, index, previewed, marks, startedAt, zone, onSeek } = props;
  const track = useRef<HTMLDivElement>(null);
  const [hover, setHover] = useState<number>();
  const at = (event: { readonly clientX: number }): number => {
    const box = track.current?.getBoundingClientRect();
    if (box === undefined || box.width === 0) return 0;
    return Math.max(0, Math.min(1, (event.clientX - box.left) / box.width)) * seconds;
  };
  const shown = hover ?? position;
  const near = hover === undefined ? undefined : nearest(drawn(marks), hover, seconds / 100);
  return (
    <div class="timeline">
      <div
        ref={track}
        class="track"
        role="slider"
        tabIndex={0}
        aria-label="Position in the recording"
        aria-valuemin={0}
        aria-valuemax={Math.round(seconds)}
        aria-valuenow={Math.round(position)}
        aria-valuetext={
          `${clockText(position)} of ${clockText(seconds)}, ` +
          `${wallText(wallTimeOf(startedAt, position), zone)}`
        }
        onPointerDown={(event) => {
          event.currentTarget.setPointerCapture(event.pointerId);
          onSeek(at(event));
        }}
        onPointerMove={(event) => {
          setHover(at(event));
          if ((event.buttons & 1) === 1) onSeek(at(event));
        }}
        onPointerLeave={() => setHover(undefined)}
      >
        {index === undefined ? null : <Strip activity={index.activity} />}
        <span class="played" style={{ width: share(position, seconds) }} />
        {drawn(marks).map((mark, number) => (
          <span
            key={number}
            class={`mark mark-${mark.kind}`}
            title={markText(mark)}
            style={{ left: share(mark.at, seconds) }}
          />
        ))}
        <span class="heads">
          {/* the position is set with a transform, because browsers count other movements as layout shifts */}
          <span class="head" style={{ transform: `translateX(${share(position, seconds)})` }} />
        </span>
        {hover === undefined ? null : (
          <span class="hover" style={{ left: bubbleAt(hover, seconds) }} aria-hidden="true">
            {previewed === undefined ? null : <Preview previewed={previewed} at={hover} />}
            {clockText(hover, true)} · {wallText(wallTimeOf(startedAt, hover), zone, false)}
            {near === undefined ? null : <span class="near">{markText(near)}</span>}
          </span>
        )}
      </div>
      <p class="wall">{wallText(wallTimeOf(startedAt, shown), zone)}</p>
    </div>
  );
}

/**
 * Chart of the output over time. The height of a bar is the square root of the amount of output. With a linear height,
 * a prompt would be invisible next to a long listing, which has a thousand times as much output.
 */
function Strip({ activity }: { readonly activity: readonly number[] }): JSX.Element {
  const most = Math.max(1, ...activity);
  const path = activity
    .map((count, span) => {
      const height = Math.ceil(Math.sqrt(count / most) * STRIP_HEIGHT);
      return height === 0 ? '' : `M${span} ${STRIP_HEIGHT}h1v-${height}h-1z`;
    })
    .join('');
  return (
    <svg
      class="strip"
      viewBox={`0 0 ${activity.length} ${STRIP_HEIGHT}`}
      preserveAspectRatio="none"
      aria-hidden="true"
    >
      <path d={path} />
    </svg>
  );
}

/** Returns the first {@link MAX_DRAWN} marks of each kind. */
function drawn(marks: readonly TimelineMark[]): readonly TimelineMark[] {
  const counts = new Map<string, number>();
  return marks.filter(({ kind }) => {
    const count = (counts.get(kind) ?? 0) + 1;
    counts.set(kind, count);
    return count <= MAX_DRAWN;
  });
}

/** Returns the mark nearest to the time at the pointer; undefined if no mark is near. */
function nearest(marks: readonly TimelineMark[], at: number, within: number): TimelineMark | undefined {
  let best: TimelineMark | undefined;
  for (const mark of marks) {
    const distance = Math.abs(mark.at - at);
    if (distance <= within && (best === undefined || distance < Math.abs(best.at - at))) best = mark;
  }
  return best;
}

const MARK_WORDS: Readonly<Record<TimelineMark['kind'], string>> = {
  command: '$',
  part: '',
  exit: '',
  failure: '',
  hit: 'match:',
  note: 'comment:',
  resize: 'terminal resized to',
  gap: 'missing:',
  marker: 'marker:',
  damage: 'damaged:',
};

function markText({ kind, text, at }: TimelineMark): string {
  return `${clockText(at)} ${MARK_WORDS[kind]} ${text}`;
}

/** Returns the position of the preview at the pointer, such that the preview stays inside the page. */
function bubbleAt(part: number, whole: number): string {
  return `clamp(9.5rem, ${share(part, whole)}, calc(100% - 9.5rem))`;
}

function share(part: number, whole: number): string {
  return `${whole > 0 ? Math.max(0, Math.min(1, part / whole)) * 100 : 0}%`;
}
