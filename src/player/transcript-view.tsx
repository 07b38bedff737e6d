/**
 * Transcript next to the screen: the text of the recording with times. Users can find and copy text, and seek to a row.
 */
import { ArrowDown, ArrowUp, FileDown } from 'lucide';
import type { JSX } from 'preact';
import { recordingFileName } from '../wire/recorder-api/recording.ts';
import { useContext, useEffect, useMemo, useRef, useState } from 'preact/hooks';
import {
  HIDDEN_PARTIAL_TEXT,
  PARTIAL_TEXT,
  type TranscriptDocument,
  type TranscriptRows,
} from '../search/transcript-document.ts';
import { readTranscript } from './archive.ts';
import { IconButton } from './icon.tsx';
import { saveFile } from './save-file.ts';
import { Recorder } from './recorder-context.ts';
import { clockText, stoppedText } from '../screen/clock-text.ts';
import type { TimelineMark } from './timeline.tsx';
import { showRow, VirtualRows } from './virtual-rows.tsx';

export interface TranscriptViewProps {
  readonly id: string;
  readonly position: number;
  /** True during playback. The list then scrolls to keep the current row visible. */
  readonly playing: boolean;
  /** Text of the find field. */
  readonly find: string;
  readonly onFind: (find: string) => void;
  readonly onSeek: (seconds: number) => void;
  /** True if the list shows the lines that never became visible, instead of the rows of the screen. */
  readonly isHidden: boolean;
  readonly onHidden: (shown: boolean) => void;
  /** Called with the positions of the matches. */
  readonly onHits: (hits: readonly TimelineMark[]) => void;
}

/** Height of a row, in pixels. Equal to `--transcript-row` in the style sheet. */
const ROW_HEIGHT = 20;
const RETRY_MS = 1000;
/** Time before a match at which playback starts, in seconds. */
const LEAD_SECONDS = 0.05;
const MAX_SHOWN = 2000;

const NO_ROWS: TranscriptRows = [];

type Loaded = TranscriptDocument | 'loading' | 'none';

export function TranscriptView(props: TranscriptViewProps): JSX.Element {
  const { id, position, playing, find, onFind, isHidden, onSeek, onHits, onHidden } = props;
  const loaded = useTranscript(id);
  const [current, setCurrent] = useState(-1);
  const scroller = useRef<HTMLDivElement>(null);
  /** Direction of the search if the user pressed Enter before the matches were known. */
  const waiting = useRef<1 | -1 | undefined>(undefined);
  const rows = rowsOf(loaded, isHidden);
  const hits = useMemo(() => findRows(rows, find), [rows, find]);
  const at = rowAt(rows, position);
  useEffect(() => {
    setCurrent(-1);
    onHits(hits.map((index) => ({ at: rows[index]?.[0] ?? 0, kind: 'hit', text: rows[index]?.[1] ?? '' })));
    if (waiting.current !== undefined) go(waiting.current);
  }, [hits]);
  useEffect(() => {
    if (playing) showRow(scroller.current, at, ROW_HEIGHT);
  }, [at, playing]);

  const search = (text: string): void => {
    waiting.current = undefined;
    onFind(text);
  };
  const go = (by: 1 | -1): void => {
    waiting.current = hits.length === 0 ? by : undefined;
    if (hits.length === 0) return;
    const start = current < 0 ? hits.findIndex((row) => row >= at) : current + by;
    const next = (Math.max(0, start) + hits.length) % hits.length;
    const row = hits[next] ?? 0;
    setCurrent(next);
    showRow(scroller.current, row, ROW_HEIGHT);
    onSeek((rows[row]?.[0] ?? 0) + LEAD_SECONDS);
  };
  return (
    <section class="transcript" aria-label="Transcript">
      <div class="find" role="search">
        <FindInput find={find} onFind={search} onGo={go} />
        <output aria-live="polite">{findText(find, hits.length, current)}</output>
        <IconButton
          icon={ArrowUp}
          label="Previous match"
          disabled={hits.length === 0}
          onClick={() => go(-1)}
        />
        <IconButton icon={ArrowDown} label="Next match" disabled={hits.length === 0} onClick={() => go(1)} />
        <IconButton
          icon={FileDown}
          label="Save as text"
          disabled={rows.length === 0}
          onClick={() => saveText(id, rows, stateText(loaded, isHidden))}
        />
        {isHidden || rowsOf(loaded, true).length > 0 ? (
          <button type="button" aria-pressed={isHidden} onClick={() => onHidden(!isHidden)}>
            Never visible
          </button>
        ) : null}
      </div>
      <div ref={scroller} class="rows" tabIndex={0} role="region" aria-label="Rows of the transcript">
        <VirtualRows
          scroller={scroller}
          count={rows.length}
          rowHeight={ROW_HEIGHT}
          row={(index) => (
            <TranscriptRow key={index} row={rows[index]} find={find} isNow={index === at} onSeek={onSeek} />
          )}
        />
      </div>
      <p class="told" role="status">
        {stateText(loaded, isHidden)}
      </p>
    </section>
  );
}

function FindInput({
  find,
  onFind,
  onGo,
}: Pick<TranscriptViewProps, 'find' | 'onFind'> & { readonly onGo: (by: 1 | -1) => void }): JSX.Element {
  return (
    <input
      type="search"
      aria-label="Find in this recording"
      placeholder="Find in this recording"
      value={find}
      onInput={(event) => onFind(event.currentTarget.value)}
      onKeyDown={(event) => {
        if (event.key === 'Enter') onGo(event.shiftKey ? -1 : 1);
        if (event.key === 'Escape') event.currentTarget.blur();
      }}
    />
  );
}

function TranscriptRow({
  row: [at, text] = [0, ''],
  find,
  isNow,
  onSeek,
}: {
  readonly row: TranscriptRows[number] | undefined;
  readonly find: string;
  readonly isNow: boolean;
  readonly onSeek: (seconds: number) => void;
}): JSX.Element {
  const jump = (): void => onSeek(at + LEAD_SECONDS);
  return (
    <div
      class={`line${isNow ? ' now' : ''}`}
      // a click that selects text to copy does not seek
      onClick={() => (getSelection()?.isCollapsed === false ? undefined : jump())}
    >
      <button type="button" class="at" tabIndex={-1} onClick={jump}>
        {clockText(at)}
      </button>
      <span class="text" lang="zxx" translate={false}>
        {marked(text.slice(0, MAX_SHOWN), find)}
        {text.length > MAX_SHOWN ? ` … (${text.length - MAX_SHOWN} more characters in the text file)` : null}
      </span>
    </div>
  );
}

/** Polls until the transcript is ready, or until it is unavailable. */
function useTranscript(id: string): Loaded {
  const { ask } = useContext(Recorder);
  const [loaded, setLoaded] = useState<Loaded>('loading');
  useEffect(() => {
    const gone = new AbortController();
    const run = async (): Promise<void> => {
      for (;;) {
        const answer = await readTranscript(ask, id, gone.signal);
        if (gone.signal.aborted) return;
        if (answer === undefined || 'rows' in answer) {
          setLoaded(answer ?? 'none');
          return;
        }
        await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
      }
    };
    run().catch(() => (gone.signal.aborted ? undefined : setLoaded('none')));
    return () => gone.abort();
  }, [id]);
  return loaded;
}

type Rows = TranscriptRows;

function rowsOf(loaded: Loaded, isHidden: boolean): TranscriptRows {
  if (typeof loaded === 'string') return NO_ROWS;
  return isHidden ? loaded.hidden.rows : loaded.rows;
}

function findRows(rows: Rows, find: string): readonly number[] {
  const wanted = find.trim().toLowerCase();
  if (wanted === '') return [];
  return rows.flatMap(([, text], index) => (text.toLowerCase().includes(wanted) ? [index] : []));
}

/** Returns the index of the last row that was visible at a position. */
function rowAt(rows: Rows, position: number): number {
  let low = 0;
  let high = rows.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((rows[middle]?.[0] ?? Infinity) <= position) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

function marked(text: string, find: string): readonly (JSX.Element | string)[] {
  const wanted = find.trim().toLowerCase();
  const lower = text.toLowerCase();
  // some letters are longer in lower case, which would shift the marks of the matches
  if (wanted === '' || lower.length !== text.length) return [text];
  const parts: (JSX.Element | string)[] = [];
  let start = 0;
  for (let at = lower.indexOf(wanted); at >= 0; at = lower.indexOf(wanted, start)) {
    parts.push(text.slice(start, at), <mark key={at}>{text.slice(at, at + wanted.length)}</mark>);
    start = at + wanted.length;
  }
  return [...parts, text.slice(start)];
}

function findText(find: string, count: number, current: number): string {
  if (find.trim() === '') return '';
  if (count === 0) return 'No match';
  return current < 0 ? `${count} found` : `${current + 1} of ${count}`;
}

function stateText(loaded: Loaded, isHidden: boolean): string {
  if (loaded === 'loading') return 'The recorder creates the transcript…';
  if (loaded === 'none') return 'This recording has no transcript.';
  if (isHidden && loaded.hidden.isPartial === true) return HIDDEN_PARTIAL_TEXT;
  if (loaded.stoppedAt !== undefined) return stoppedText(loaded.stoppedAt);
  if (!isHidden && loaded.rows.length === 0) return 'The screen had no text.';
  return loaded.isPartial ? PARTIAL_TEXT : '';
}

/** Saves rows as a text file. Each line starts with the time of its row; `notice` is the last line. */
function saveText(id: string, rows: Rows, notice: string): void {
  const lines = rows.map(([at, row]) => `${clockText(at, true)}\t${row}\n`);
  if (notice !== '') lines.push(`${notice}\n`);
  const text = lines.join('');
  saveFile(recordingFileName(id, '.txt'), new Blob([text], { type: 'text/plain' }));
}
