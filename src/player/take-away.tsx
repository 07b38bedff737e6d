/** Downloads of the open recording. */
import type { JSX } from 'preact';
import { useContext, useEffect, useState } from 'preact/hooks';
import { recordingFileName, type ListedRecording } from '../wire/recorder-api/recording.ts';
import { castAddress } from './archive.ts';
import { Recorder } from './recorder-context.ts';
import { saveFile } from './save-file.ts';

/** Downloads that a recorder offers. An exported file already contains them. */
export function TakeAway({
  recording,
  onLink,
  tell,
}: {
  readonly recording: ListedRecording;
  readonly onLink: () => void;
  readonly tell: (text: string) => void;
}): JSX.Element | null {
  const { exportRecording } = useContext(Recorder);
  const [exporting, setExporting] = useState<AbortController>();
  useEffect(() => () => exporting?.abort(), [exporting]);
  if (exportRecording === undefined) return null;
  const run = (stop: AbortController): void => {
    const onProgress = (share: number): void => tell(`Exporting: ${Math.floor(share * 100)} %.`);
    onProgress(0);
    exportRecording(recording, stop.signal, onProgress)
      .then((file) => {
        const name = recordingFileName(recording.id, '.html');
        saveFile(name, file);
        tell(`Exported as ${name}.`);
      })
      .catch((error: unknown) => {
        if (!stop.signal.aborted) tell(error instanceof Error ? error.message : String(error));
      })
      .finally(() => setExporting(undefined));
    setExporting(stop);
  };
  return (
    <>
      <button type="button" onClick={onLink}>
        Link to this moment
      </button>
      <a
        class="button"
        href={castAddress(recording.id, { watched: false })}
        download={recordingFileName(recording.id, '.cast')}
      >
        Download
      </a>
      <button
        type="button"
        title="One file that plays without a recorder, with its evidence"
        disabled={exporting !== undefined || recording.state === 'running'}
        onClick={() => run(new AbortController())}
      >
        Export
      </button>
    </>
  );
}
