/** Menu to share or download the open recording. The page of an exported file does not have this menu. */
import { Clapperboard, Download, Link, Package, Share2 } from 'lucide';
import type { JSX } from 'preact';
import { useContext, useEffect, useState } from 'preact/hooks';
import { clockText, parseClock } from '../screen/clock-text.ts';
import { recordingFileName, type ListedRecording } from '../wire/recorder-api/recording.ts';
import { castAddress } from './addresses.ts';
import { clipRecording } from './clip-recording.ts';
import { Drop } from './drop.tsx';
import { Icon } from './icon.tsx';
import { Recorder } from './recorder-context.ts';
import { saveFile } from './save-file.ts';

export interface ShareMenuProps {
  readonly recording: ListedRecording;
  readonly position: number;
  readonly seconds: number;
  readonly onLink: () => void;
  /** Shows a message for a few seconds. */
  readonly onMessage: (text: string) => void;
}

export function ShareMenu({
  recording,
  position,
  seconds,
  onLink,
  onMessage,
}: ShareMenuProps): JSX.Element | null {
  const { ask, exportRecording } = useContext(Recorder);
  const [exporting, setExporting] = useState<AbortController>();
  useEffect(() => () => exporting?.abort(), [exporting]);
  if (exportRecording === undefined) return null;
  const run = async (
    action: (signal: AbortSignal, onProgress: (share: number) => void) => Promise<Blob>,
    ending: string,
  ): Promise<void> => {
    const stop = new AbortController();
    const onProgress = (share: number): void => onMessage(`Exporting: ${Math.floor(share * 100)} %.`);
    setExporting(stop);
    onProgress(0);
    try {
      const file = await action(stop.signal, onProgress);
      const name = recordingFileName(recording.id, ending);
      saveFile(name, file);
      onMessage(`Exported as ${name}.`);
    } catch (error) {
      if (!stop.signal.aborted) onMessage(error instanceof Error ? error.message : String(error));
    }
    setExporting(undefined);
  };
  const saveClip = async (from: number, to: number): Promise<void> =>
    run((signal) => clipRecording(ask, recording.id, { from, to }, signal), '.svg');
  return (
    <Drop class="share" label="Share" icon={Share2}>
      <button type="button" class="closes" onClick={onLink}>
        <Icon icon={Link} /> Link to this moment
      </button>
      <a
        class="button closes"
        href={castAddress(recording.id, { watched: false })}
        download={recordingFileName(recording.id, '.cast')}
      >
        <Icon icon={Download} /> Download asciicast
      </a>
      <button
        type="button"
        class="closes"
        title="One HTML file with recording and evidence. It plays without a recorder, and other pages can embed it."
        disabled={exporting !== undefined || recording.state === 'running'}
        onClick={() =>
          void run((signal, onProgress) => exportRecording(recording, signal, onProgress), '.html')
        }
      >
        <Icon icon={Package} /> Export bundle
      </button>
      <ClipForm
        position={position}
        seconds={seconds}
        disabled={exporting !== undefined || recording.state === 'running'}
        onSave={(from, to) => void saveClip(from, to)}
      />
    </Drop>
  );
}

const CLIP_SECONDS = 10;

function ClipForm({
  position,
  seconds,
  disabled,
  onSave,
}: {
  readonly position: number;
  readonly seconds: number;
  readonly disabled: boolean;
  readonly onSave: (from: number, to: number) => void;
}): JSX.Element {
  const [from, setFrom] = useState<string>();
  const [to, setTo] = useState<string>();
  const start = from ?? clockText(position, true);
  const end = to ?? clockText(Math.min(seconds, position + CLIP_SECONDS), true);
  const range = [parseClock(start), parseClock(end)] as const;
  const isValid = range[0] !== undefined && range[1] !== undefined && range[1] > range[0];
  return (
    <div class="clip">
      <strong>Clip</strong>
      <label>
        From
        <input value={start} onInput={(event) => setFrom(event.currentTarget.value)} />
      </label>
      <label>
        To
        <input value={end} onInput={(event) => setTo(event.currentTarget.value)} />
      </label>
      <button
        type="button"
        class="closes"
        disabled={disabled || !isValid}
        onClick={() => onSave(range[0] ?? 0, range[1] ?? 0)}
      >
        <Icon icon={Clapperboard} /> Save as animated SVG
      </button>
    </div>
  );
}
