/** Line above the list: number of recordings, and actions for the selected recordings. */
import { Columns2, FileDown, Package, X } from 'lucide';
import type { JSX } from 'preact';
import { useContext, useState } from 'preact/hooks';
import type { Listed } from './archive.ts';
import { whereText, whoText } from './format.ts';
import { Icon, IconButton } from './icon.tsx';
import { Recorder, type RecorderPage } from './recorder-context.ts';
import { formatRoute } from './route.ts';
import { saveFile } from './save-file.ts';
import { recordingFileName } from '../wire/recorder-api/recording.ts';

export interface ListToolbarProps {
  readonly status: string;
  readonly recordings: readonly Listed[];
  readonly selected: ReadonlySet<string>;
  readonly onClear: () => void;
}

export function ListToolbar({ status, recordings, selected, onClear }: ListToolbarProps): JSX.Element {
  const { exportRecording } = useContext(Recorder);
  const [progress, setProgress] = useState('');
  const chosen = recordings.filter(({ id }) => selected.has(id));
  const [older, newer, ...others] = chosen.toSorted((left, right) =>
    left.startedAt.localeCompare(right.startedAt),
  );
  return (
    <div class={chosen.length > 0 ? 'list-bar selecting' : 'list-bar'}>
      <p role="status">
        {progress !== '' ? progress : chosen.length > 0 ? `${chosen.length} selected` : status}
      </p>
      <span class="spacer" />
      {older !== undefined && newer !== undefined && others.length === 0 && !chosen.some(isRunning) ? (
        <a class="button" href={formatRoute({ view: 'compare', ids: [older.id, newer.id] })}>
          <Icon icon={Columns2} /> Compare
        </a>
      ) : null}
      {chosen.length === 0 || exportRecording === undefined ? null : (
        <button
          type="button"
          disabled={progress !== ''}
          onClick={() => void exportAll(chosen, exportRecording, setProgress)}
        >
          <Icon icon={Package} /> Export bundles
        </button>
      )}
      <button
        type="button"
        class="quiet"
        disabled={recordings.length === 0}
        onClick={() => saveCsv(chosen, recordings)}
      >
        <Icon icon={FileDown} /> {chosen.length > 0 ? 'Save as CSV' : 'Save list as CSV'}
      </button>
      {chosen.length === 0 ? null : <IconButton icon={X} label="Clear the selection" onClick={onClear} />}
    </div>
  );
}

function isRunning({ state }: Listed): boolean {
  return state === 'running';
}

/** Saves one HTML file for each recording. */
async function exportAll(
  recordings: readonly Listed[],
  exportRecording: NonNullable<RecorderPage['exportRecording']>,
  setProgress: (text: string) => void,
): Promise<void> {
  try {
    for (const [index, recording] of recordings.entries()) {
      setProgress(`Exporting ${index + 1} of ${recordings.length}…`);
      const file = await exportRecording(recording, new AbortController().signal, () => undefined);
      saveFile(recordingFileName(recording.id, '.html'), file);
    }
    setProgress('');
  } catch (error) {
    setProgress(error instanceof Error ? error.message : String(error));
    setTimeout(() => setProgress(''), 5000);
  }
}

const CSV_FIELDS: readonly (readonly [
  title: string,
  value: (recording: Listed) => string | number | undefined,
])[] = [
  ['id', ({ id }) => id],
  ['started', ({ startedAt }) => startedAt],
  ['seconds', ({ durationSeconds }) => durationSeconds],
  ['who', whoText],
  ['node', ({ source }) => source.node],
  ['where', whereText],
  ['command', ({ command, kind }) => command ?? kind],
  ['state', ({ state }) => state],
  ['result', ({ result }) => result],
  ['trust', ({ trust }) => trust],
  ['bytes', ({ bytes }) => bytes],
];

/** Saves the selected rows, or all loaded rows if no row is selected. */
function saveCsv(chosen: readonly Listed[], all: readonly Listed[]): void {
  const rows = (chosen.length > 0 ? chosen : all).map((recording) =>
    CSV_FIELDS.map(([, value]) => csvValue(String(value(recording) ?? ''))).join(','),
  );
  const text = [CSV_FIELDS.map(([title]) => title).join(','), ...rows, ''].join('\r\n');
  saveFile('recordings.csv', new Blob([text], { type: 'text/csv' }));
}

/** Quotes a value. A leading apostrophe prevents spreadsheets from executing recorded text as a formula. */
function csvValue(text: string): string {
  const safe = /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}
