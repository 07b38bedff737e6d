/**
 * Rows of a list of any length. Only chunks near the visible area are in the page; spacers replace the other chunks, so
 * that the page stays fast.
 */
import type { JSX, RefObject } from 'preact';
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import type { Listed, SessionHits } from './archive.ts';
import { ArrowDown, ArrowUp } from 'lucide';
import type { ListSort } from '../search/search-index.ts';
import { hiddenMatch, whereText, whoText } from './format.ts';
import { Icon } from './icon.tsx';
import { LIST_COLUMNS, useHiddenColumns, type ListColumn } from './list-columns.tsx';
import { usePreference } from './preferences.ts';
import { usePointedAt } from './pointed-row.ts';
import { ReviewChips } from './review-panel.tsx';
import { formatRoute } from './route.ts';
import { clockText, stoppedText } from '../screen/clock-text.ts';
import { leadTo } from '../search/recording-link.ts';
import { snippetParts } from './snippet.ts';
import { Thumbnail } from './thumbnail.tsx';
import { dayOf, type Zone } from './wall-text.ts';
import { WithPlayerViews } from './with-player-views.tsx';

/** Number of rows per chunk. A small number keeps scrolling smooth. */
const CHUNK = 10;
/** Maximum distance from the visible area at which chunks are rendered, in pixels. */
const NEAR = 1200;
/** Estimated height of a row that was not rendered yet, in pixels. */
const USUAL_HEIGHT = 68;

export interface RecordingTableProps {
  readonly recordings: readonly Listed[];
  /** True if the list has more rows than `recordings`. */
  readonly isContinued: boolean;
  /** Text of the filter. */
  readonly text: string;
  /** Search query; empty without a search. */
  readonly query: string;
  /** Height of each rendered chunk, in pixels. The component that owns the list keeps this map. */
  readonly heights: Map<number, number>;
  /** Sort order of the list; undefined if the list cannot be sorted. */
  readonly sort: ListSort | undefined;
  /** Called with the new sort order. Undefined if the list cannot be sorted. */
  readonly onSort: ((sort: ListSort) => void) | undefined;
  readonly selected: ReadonlySet<string>;
  readonly onSelect: (ids: readonly string[], isSelected: boolean) => void;
}

/** Columns before {@link LIST_COLUMNS}: selection, thumbnail, command. */
const FIRST_TRACKS = { comfortable: '2.25rem 8rem minmax(0, 1fr)', compact: '2.25rem minmax(0, 1fr)' };

export function RecordingTable({
  recordings,
  isContinued,
  text,
  query,
  heights,
  sort,
  onSort,
  selected,
  onSelect,
}: RecordingTableProps): JSX.Element {
  const [density] = usePreference('density');
  const [zone] = usePreference('zone');
  const [hidden] = useHiddenColumns();
  const columns = useMemo(() => LIST_COLUMNS.filter(({ name }) => !hidden.has(name)), [hidden]);
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
        aria-label="Recordings"
        class={density}
        style={{ '--tracks': [FIRST_TRACKS[density], ...columns.map(({ width }) => width)].join(' ') }}
        aria-rowcount={isContinued ? -1 : recordings.length + 1}
        onKeyDown={(event) => {
          const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
          if (by === undefined || !stepFrom(event.currentTarget, by)) return;
          event.preventDefault();
        }}
      >
        <TableHead {...{ recordings, columns, density, sort, onSort, selected, onSelect }} />
        <Room key="above" height={heightOf(heights, 0, first)} />
        {shown.map((number) => (
          <Chunk
            key={number}
            number={number}
            {...{ recordings, text, query, columns, density, zone, selected, onSelect }}
            isGrouped={sort === undefined || sort === 'newest' || sort === 'oldest'}
          />
        ))}
        <Room key="below" height={heightOf(heights, last, count)} />
      </table>
      {pointed === undefined ? null : (
        <div class="row-preview" style={{ left: `${pointed.left}px`, top: `${pointed.top}px` }}>
          <WithPlayerViews
            isPreview
            show={({ RecordingPreview }) => (
              <RecordingPreview key={pointed.recording.id} recording={pointed.recording} />
            )}
          />
        </div>
      )}
    </>
  );
}

type TableHeadProps = Pick<RecordingTableProps, 'recordings' | 'sort' | 'onSort' | 'selected' | 'onSelect'> &
  Pick<ChunkProps, 'columns' | 'density'>;

function TableHead(props: TableHeadProps): JSX.Element {
  const { recordings, columns, density, sort, onSort, selected, onSelect } = props;
  return (
    <thead role="rowgroup">
      <tr role="row" aria-rowindex={1}>
        <th role="columnheader" scope="col" class="select">
          <SelectBox
            label="Select all loaded recordings"
            checked={recordings.length > 0 && selected.size === recordings.length}
            onChange={(isSelected) =>
              onSelect(
                recordings.map(({ id }) => id),
                isSelected,
              )
            }
          />
        </th>
        {density === 'compact' ? null : (
          <th role="columnheader" scope="col">
            <span class="hidden-label">Screen</span>
          </th>
        )}
        <th role="columnheader" scope="col">
          Command
        </th>
        {columns.map((column) => (
          <ColumnTitle key={column.name} column={column} sort={sort} onSort={onSort} />
        ))}
      </tr>
    </thead>
  );
}

function SelectBox({
  label,
  checked,
  onChange,
}: {
  readonly label: string;
  readonly checked: boolean;
  readonly onChange: (isSelected: boolean) => void;
}): JSX.Element {
  return (
    <input
      type="checkbox"
      aria-label={label}
      checked={checked}
      onChange={(event) => onChange(event.currentTarget.checked)}
    />
  );
}

/** Title of a column, with a button if the recorder can sort by this column. */
function ColumnTitle({
  column: { title, sorts, class: name },
  sort,
  onSort,
}: {
  readonly column: ListColumn;
  readonly sort: ListSort | undefined;
  readonly onSort: RecordingTableProps['onSort'];
}): JSX.Element {
  if (sorts === undefined || onSort === undefined)
    return (
      <th role="columnheader" scope="col" class={name}>
        {title}
      </th>
    );
  const [first, second] = sorts;
  const isSorted = sort === first || (sort === second && second === 'oldest');
  return (
    <th
      role="columnheader"
      scope="col"
      class={name}
      aria-sort={isSorted ? (sort === 'oldest' ? 'ascending' : 'descending') : 'none'}
    >
      <button type="button" class="quiet" onClick={() => onSort(sort === first ? second : first)}>
        {title}
        {isSorted ? <Icon icon={sort === 'oldest' ? ArrowUp : ArrowDown} size={13} /> : null}
      </button>
    </th>
  );
}

/** Moves the focus by this number of links. @returns false if there is no such link */
function stepFrom(table: HTMLTableElement, by: number): boolean {
  const links = [...table.querySelectorAll<HTMLElement>('a')];
  const next = links[links.findIndex((link) => link === document.activeElement) + by];
  next?.focus();
  return next !== undefined;
}

/** Spacer for chunks that are not rendered. */
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
  // the height of the first chunk is the estimate for chunks that were never rendered
  const usual = heights.get(0) ?? CHUNK * USUAL_HEIGHT;
  let sum = 0;
  for (let number = from; number < to; number += 1) sum += heights.get(number) ?? usual;
  return sum;
}

interface Chunks {
  readonly first: number;
  /** Index after the last rendered chunk. */
  readonly last: number;
}

/** Chunks near the visible area, updated while scrolling. Measures their heights. */
function useChunksInSight(
  table: RefObject<HTMLTableElement | null>,
  count: number,
  heights: Map<number, number>,
): Chunks {
  // one chunk is drawn first, because most screens show no more rows at the start
  const [chunks, setChunks] = useState<Chunks>({ first: 0, last: 1 });
  const current = useRef(count);
  current.current = count;
  const look = (): void => {
    const found = chunksInSight(table.current, current.current, heights);
    setChunks((old) => (old.first === found.first && old.last === found.last ? old : found));
  };
  // heights are measured only after the current rows are drawn
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
  // distance from the top of the visible area to the start of the first chunk, in pixels
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
  readonly columns: readonly ListColumn[];
  readonly density: 'comfortable' | 'compact';
  readonly zone: Zone;
  readonly selected: ReadonlySet<string>;
  readonly onSelect: RecordingTableProps['onSelect'];
  /** True if the list has a heading before the recordings of each day. */
  readonly isGrouped: boolean;
}

function Chunk(props: ChunkProps): JSX.Element {
  const { number, recordings, text, query, columns, density, zone, selected, onSelect, isGrouped } = props;
  const rows = recordings.slice(number * CHUNK, (number + 1) * CHUNK);
  const before = recordings[number * CHUNK - 1];
  const dayBefore = before === undefined ? '' : dayOf(new Date(before.startedAt), zone);
  const chosen = rows.map(({ id }) => (selected.has(id) ? 'x' : '-')).join('');
  // unchanged rows are not rendered again
  return useMemo(
    () => (
      <tbody role="rowgroup" data-chunk={number}>
        {rows.map((recording, index) => (
          <RecordingRow
            key={recording.id}
            recording={recording}
            day={isGrouped ? newDay(rows, index, dayBefore, zone) : undefined}
            {...{ text, query, columns, density, zone, onSelect }}
            isSelected={selected.has(recording.id)}
            rowIndex={number * CHUNK + index + 2}
          />
        ))}
      </tbody>
    ),
    [number, text, query, columns, density, zone, chosen, dayBefore, isGrouped, rows.length, ...padded(rows)],
  );
}

/** Pads a chunk to its maximum size. The rows are the dependencies of a hook, so their number must be constant. */
function padded(rows: readonly Listed[]): readonly (Listed | undefined)[] {
  return Array.from({ length: CHUNK }, (_, index) => rows[index]);
}

/**
 * Returns the day of a recording if the previous recording started on another day.
 * @param before day of the recording before the first row
 */
function newDay(rows: readonly Listed[], index: number, before: string, zone: Zone): string | undefined {
  const dayAt = (at: number): string => dayOf(new Date(rows[at]?.startedAt ?? ''), zone);
  const day = dayAt(index);
  return day === (index === 0 ? before : dayAt(index - 1)) ? undefined : day;
}

interface RowProps extends Pick<ChunkProps, 'text' | 'query' | 'columns' | 'density' | 'zone' | 'onSelect'> {
  readonly recording: Listed;
  readonly day: string | undefined;
  readonly isSelected: boolean;
  readonly rowIndex: number;
}

function RecordingRow(props: RowProps): JSX.Element {
  const { recording, day, text, query, columns, density, zone, isSelected, onSelect, rowIndex } = props;
  const { id } = recording;
  const address = formatRoute({ view: 'recording', id, at: undefined, query });
  const why = hiddenMatch(recording, text);
  const command = recording.command ?? recording.kind;
  const row = (
    <>
      {day === undefined ? null : (
        <tr key="day" role="row" class="day">
          <td role="cell" aria-colspan={columns.length + 3}>
            {day}
          </td>
        </tr>
      )}
      <tr
        key={id}
        role="row"
        class={`recording state-${recording.state}`}
        data-id={id}
        aria-rowindex={rowIndex}
        aria-selected={isSelected}
      >
        <td role="cell" class="select">
          <SelectBox
            label={`Select ${command} of ${whoText(recording)}`}
            checked={isSelected}
            onChange={(chosen) => onSelect([id], chosen)}
          />
        </td>
        {density === 'compact' ? null : (
          <td role="cell" class="screen">
            <Thumbnail recording={recording} />
          </td>
        )}
        <td role="cell" class="command">
          <a
            href={address}
            title={command}
            aria-label={`${command}, ${whoText(recording)}, ${whereText(recording)}`}
          >
            <code>{command}</code>
          </a>
          {why === undefined ? null : <span class="why">{why}</span>}
          <ReviewChips review={recording.review} />
        </td>
        {columns.map(({ name, class: className, cell }) => (
          <td key={name} role="cell" class={className}>
            {cell(recording, zone)}
          </td>
        ))}
      </tr>
    </>
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

/** Matches in a session, as links. A link opens the recording shortly before the match. */
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
      <td role="cell">
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
        {more ? <span class="why">This recording has more matches. Open it to see all of them.</span> : null}
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
