/**
 * Rows of a list of any length. Only chunks near the visible area are in the page; spacers replace the others, so that
 * the page stays fast.
 */
import type { JSX, RefObject } from 'preact';
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import type { Listed, SessionHits } from './archive.ts';
import { durationText, hiddenMatch, sizeText, whereText, whoText } from './format.ts';
import { RecordingPreview } from './preview.tsx';
import { formatRoute } from './route.ts';
import { clockText, stoppedText } from '../screen/clock-text.ts';
import { leadTo } from '../search/recording-link.ts';
import { snippetParts } from './snippet.ts';
import { StatusBadges } from './status-badges.tsx';
import { wallText } from './wall-text.ts';

/** Rows per chunk: few, so that scrolling stays smooth. */
const CHUNK = 10;
/** Distance from the visible area at which chunks are in the page, in pixels. */
const NEAR = 1200;
/** Estimated height of a row that was not rendered yet, in pixels. */
const USUAL_HEIGHT = 36;

export interface RecordingTableProps {
  readonly recordings: readonly Listed[];
  /** True if there are more rows. */
  readonly isContinued: boolean;
  /** Text of the filter. */
  readonly text: string;
  /** Search query; empty without a search. */
  readonly query: string;
  /** Height of each chunk that was rendered, in pixels. The owner of the list stores it. */
  readonly heights: Map<number, number>;
}

export function RecordingTable({
  recordings,
  isContinued,
  text,
  query,
  heights,
}: RecordingTableProps): JSX.Element {
  const table = useRef<HTMLTableElement>(null);
  const count = Math.ceil(recordings.length / CHUNK);
  const { first, last } = useChunksInSight(table, count, heights);
  const shown = Array.from(
    { length: Math.max(0, Math.min(last, count) - first) },
    (_, index) => first + index,
  );
  const pointed = usePointedAt(table, recordings);
  return (
    <>
      <table
        ref={table}
        role="table"
        aria-rowcount={isContinued ? -1 : recordings.length + 1}
        onKeyDown={(event) => {
          const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
          if (by === undefined || !stepFrom(event.currentTarget, by)) return;
          event.preventDefault();
        }}
      >
        <thead role="rowgroup">
          <tr role="row" aria-rowindex={1}>
            {['Started', 'Who', 'Where', 'Command'].map((name) => (
              <th key={name} role="columnheader" scope="col">
                {name}
              </th>
            ))}
            {['Length', 'Size'].map((name) => (
              <th key={name} role="columnheader" scope="col" class="number">
                {name}
              </th>
            ))}
            <th role="columnheader" scope="col">
              State
            </th>
          </tr>
        </thead>
        <Room key="above" height={heightOf(heights, 0, first)} />
        {shown.map((number) => (
          <Chunk key={number} number={number} recordings={recordings} text={text} query={query} />
        ))}
        <Room key="below" height={heightOf(heights, last, count)} />
      </table>
      {pointed === undefined ? null : (
        <div class="row-preview" style={{ left: `${pointed.left}px`, top: `${pointed.top}px` }}>
          <RecordingPreview key={pointed.recording.id} recording={pointed.recording} />
        </div>
      )}
    </>
  );
}

/** Moves the focus to another link. @returns false if there is none */
function stepFrom(table: HTMLTableElement, by: number): boolean {
  const links = [...table.querySelectorAll<HTMLElement>('a')];
  const next = links[links.findIndex((link) => link === document.activeElement) + by];
  next?.focus();
  return next !== undefined;
}

interface Pointed {
  readonly recording: Listed;
  /** Free area for a preview, in pixels. */
  readonly left: number;
  readonly top: number;
}

/**
 * Time after which a preview is loaded, in milliseconds. A pointer that only passes must not create an entry in the
 * access log.
 */
const DWELL_MS = 500;
const PREVIEW_HEIGHT = 190;

/** The recording under the mouse or with the keyboard focus, after {@link DWELL_MS}. */
function usePointedAt(
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
  // the wall shows running sessions
  if (recording === undefined || recording.state === 'running') return undefined;
  const box = row.getBoundingClientRect();
  const hasRoomBelow = box.bottom + PREVIEW_HEIGHT < innerHeight;
  return {
    recording,
    left: box.left + box.width / 3,
    top: hasRoomBelow ? box.bottom + 4 : Math.max(0, box.top - PREVIEW_HEIGHT),
  };
}

/** Spacer for chunks outside the page. */
function Room({ height }: { readonly height: number }): JSX.Element | null {
  if (height <= 0) return null;
  return (
    <tbody class="far" role="presentation" aria-hidden="true">
      <tr style={{ height: `${height}px` }} />
    </tbody>
  );
}

/** Height of a range of chunks, in pixels. */
function heightOf(heights: ReadonlyMap<number, number>, from: number, to: number): number {
  // chunks that were not rendered yet get the height of the first chunk
  const usual = heights.get(0) ?? CHUNK * USUAL_HEIGHT;
  let sum = 0;
  for (let number = from; number < to; number += 1) sum += heights.get(number) ?? usual;
  return sum;
}

interface Chunks {
  readonly first: number;
  /** Index after the last chunk. */
  readonly last: number;
}

/** Chunks near the visible area, updated while scrolling. Measures their heights. */
function useChunksInSight(
  table: RefObject<HTMLTableElement | null>,
  count: number,
  heights: Map<number, number>,
): Chunks {
  const [chunks, setChunks] = useState<Chunks>({ first: 0, last: Math.ceil(50 / CHUNK) });
  const current = useRef(count);
  current.current = count;
  const look = (): void => {
    const found = chunksInSight(table.current, current.current, heights);
    setChunks((old) => (old.first === found.first && old.last === found.last ? old : found));
  };
  // after the current rows are drawn
  useEffect(look, [count, chunks]);
  useEffect(() => {
    addEventListener('scroll', look, { passive: true });
    addEventListener('resize', look);
    return () => {
      removeEventListener('scroll', look);
      removeEventListener('resize', look);
    };
  }, [heights]);
  return chunks;
}

function chunksInSight(table: HTMLTableElement | null, count: number, heights: Map<number, number>): Chunks {
  // pixels from the visible area to the start of the first chunk
  let top = 0;
  for (const body of [...(table?.tBodies ?? [])].toReversed()) {
    if (body.dataset['chunk'] === undefined) continue;
    const box = body.getBoundingClientRect();
    const number = Number(body.dataset['chunk']);
    heights.set(number, box.height);
    top = box.top - heightOf(heights, 0, number);
  }
  let first = 0;
  while (first < count - 1 && top + heightOf(heights, first, first + 1) < -NEAR) {
    top += heightOf(heights, first, first + 1);
    first += 1;
  }
  let last = first;
  while (last < count && top < innerHeight + NEAR) {
    top += heightOf(heights, last, last + 1);
    last += 1;
  }
  return { first, last };
}

interface ChunkProps {
  readonly number: number;
  readonly recordings: readonly Listed[];
  readonly text: string;
  readonly query: string;
}

function Chunk({ number, recordings, text, query }: ChunkProps): JSX.Element {
  const rows = recordings.slice(number * CHUNK, (number + 1) * CHUNK);
  // avoid rendering unchanged rows
  return useMemo(
    () => (
      <tbody role="rowgroup" data-chunk={number}>
        {rows.map((recording, index) => (
          <RecordingRow
            key={recording.id}
            recording={recording}
            text={text}
            query={query}
            rowIndex={number * CHUNK + index + 2}
          />
        ))}
      </tbody>
    ),
    [number, text, query, rows.length, ...padded(rows)],
  );
}

/** Pads a chunk to its maximum size, because the number of dependencies of a hook must not change. */
function padded(rows: readonly Listed[]): readonly (Listed | undefined)[] {
  return Array.from({ length: CHUNK }, (_, index) => rows[index]);
}

function RecordingRow({
  recording,
  text,
  query,
  rowIndex,
}: {
  readonly recording: Listed;
  readonly text: string;
  readonly query: string;
  readonly rowIndex: number;
}): JSX.Element {
  const address = formatRoute({ view: 'recording', id: recording.id, at: undefined, query });
  const why = hiddenMatch(recording, text);
  const row = (
    <tr
      key={recording.id}
      role="row"
      class={`state-${recording.state}`}
      data-id={recording.id}
      aria-rowindex={rowIndex}
    >
      <td role="cell">
        <a href={address}>
          <time dateTime={recording.startedAt}>{wallText(new Date(recording.startedAt), 'local')}</time>
        </a>
      </td>
      <td role="cell">{whoText(recording)}</td>
      <td role="cell">{whereText(recording)}</td>
      <td role="cell">
        <code>{recording.command ?? recording.kind}</code>
        {why === undefined ? null : <span class="why">{why}</span>}
      </td>
      <td role="cell" class="number">
        {durationText(recording.durationSeconds)}
      </td>
      <td role="cell" class="number">
        {sizeText(recording.bytes)}
      </td>
      <td role="cell">
        <StatusBadges recording={recording} />
      </td>
    </tr>
  );
  const { found } = recording;
  if (found === undefined || (found.hits.length === 0 && !found.partial)) return row;
  return (
    <>
      {row}
      <HitsRow key="hits" id={recording.id} found={found} query={query} />
    </>
  );
}

/** Matches in a session. Each links to a time shortly before the match. */
function HitsRow({
  id,
  found: { hits, more, partial, stoppedAt },
  query,
}: {
  readonly id: string;
  readonly found: SessionHits;
  readonly query: string;
}): JSX.Element {
  return (
    <tr role="row" class="hits">
      <td role="cell" aria-colspan={7}>
        <ul>
          {hits.map((hit, index) => (
            <li key={index}>
              <a href={formatRoute({ view: 'recording', id, at: leadTo(hit.at), query })}>
                <span class="at">{clockText(hit.at)}</span>
                <code lang="zxx" translate={false}>
                  {hit.isCommand ? '$ ' : ''}
                  {snippetParts(hit).map(({ text, isMatch }, part) =>
                    isMatch ? <mark key={part}>{text}</mark> : text,
                  )}
                </code>
              </a>
            </li>
          ))}
        </ul>
        {more ? <span class="why">There are more hits in it: open it to see them all.</span> : null}
        {partial ? (
          <span class="why">
            {stoppedAt === undefined
              ? 'Not all text of this session is in the index.'
              : stoppedText(stoppedAt)}
          </span>
        ) : null}
      </td>
    </tr>
  );
}
