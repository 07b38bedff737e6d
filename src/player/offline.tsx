/** Page of an exported recording: plays the embedded recording without network access. */
import { recordingFileName } from '../wire/recorder-api/recording.ts';
import { render } from 'preact';
import type { JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { answerBundle } from '../bundle/answer-bundle.ts';
import { checkBundle, type BundleCheck } from '../bundle/check-bundle.ts';
import type { BundleFile } from '../bundle/bundle-format.ts';
import type { BundleReader } from '../bundle/read-bundle.ts';
import { findBundle } from './find-bundle.ts';
import { CheckNow } from './check-now.tsx';
import { sizeText } from './format.ts';
import { applyTheme } from './preferences.ts';
import { Recorder } from './recorder-context.ts';
import { RecordingView } from './recording-view.tsx';
import { saveFile } from './save-file.ts';
import { wallText } from './wall-text.ts';
import './style.css';

// the page contains the recording after this script
addEventListener('DOMContentLoaded', () => {
  applyTheme();
  const root = document.getElementById('app');
  if (root === null) return;
  const bundle = findBundle(document);
  root.replaceChildren();
  render(bundle === undefined ? <Broken /> : <Offline bundle={bundle} />, root);
});

function Broken(): JSX.Element {
  return (
    <p class="notice problem" role="alert">
      This file is incomplete: it contains no complete recording. Download it again.
    </p>
  );
}

function Offline({ bundle }: { readonly bundle: BundleReader }): JSX.Element {
  const { id, madeAt, files } = bundle.manifest;
  const [asked, setAsked] = useState((files.cast?.bytes ?? 0) <= MAX_UNASKED_BYTES);
  const [found, setFound] = useState<BundleCheck>();
  const [ask] = useState(() => answerBundle(bundle));
  useEffect(() => {
    if (asked) void checkBundle(bundle).then(setFound);
  }, [asked]);
  const at = Number(new URLSearchParams(location.hash.split('?')[1] ?? '').get('t') ?? Number.NaN);
  return (
    <Recorder.Provider value={{ ask, exportRecording: undefined }}>
      <header>
        <span class="brand">
          tailcast <small>recording, exported {wallText(new Date(madeAt), 'local')}</small>
        </span>
      </header>
      <main>
        {found?.verdict === 'failed' ? (
          <p class="notice problem" role="alert">
            <strong>{VERDICTS.failed}</strong> The check below lists the differences.
          </p>
        ) : null}
        <RecordingView id={id} startAt={at >= 0 ? at : undefined} find="" query="" />
        <Check found={found} asked={asked} onAsk={() => setAsked(true)} />
        <Files bundle={bundle} />
      </main>
    </Recorder.Provider>
  );
}

/**
 * Maximum size, in bytes, of a recording that is checked automatically. A check reads the complete recording. The user
 * therefore starts the check of a larger recording with a click.
 */
const MAX_UNASKED_BYTES = 64 * 1024 ** 2;

const VERDICTS: Readonly<Record<BundleCheck['verdict'], string>> = {
  verified: 'The content of this file is unchanged since the key signed it.',
  failed: 'The content of this file differs from the signed content.',
  none: 'This file has no signature, so changes cannot be detected.',
  unable: 'This browser cannot check the signature of this file.',
};

/** Result of a check in this browser. The result does not depend on the recorder's result at the time of the export. */
function Check({
  found,
  asked,
  onAsk,
}: {
  readonly found: BundleCheck | undefined;
  readonly asked: boolean;
  readonly onAsk: () => void;
}): JSX.Element {
  return (
    <section class="card evidence" aria-labelledby="check-title">
      <h2 id="check-title">Check of this file in your browser</h2>
      <CheckNow asked={asked} done={found !== undefined} onAsk={onAsk} />
      {found === undefined ? null : (
        <>
          <p
            class={found.verdict === 'failed' ? 'notice problem' : 'notice'}
            data-checked={found.verdict}
            role="status"
          >
            <strong>{VERDICTS[found.verdict]}</strong>
          </p>
          <ul class="findings">
            {found.findings.map((finding) => (
              <li key={finding}>{finding}</li>
            ))}
          </ul>
          {found.covers.length === 0 ? null : (
            <>
              <p>The signature covers:</p>
              <ul class="covers">
                {found.covers.map((covered) => (
                  <li key={covered}>{covered}</li>
                ))}
              </ul>
            </>
          )}
          {found.keyId === undefined ? null : (
            <p class="notice">
              The key is <code>{found.keyId}</code>. Compare it with the key of your recorder. Only{' '}
              <code>tailcast verify</code> at the recorder can detect removed recordings.
            </p>
          )}
        </>
      )}
    </section>
  );
}

const FILES: readonly (readonly [file: BundleFile, ending: string, what: string])[] = [
  ['cast', '.cast', 'recording in asciicast format'],
  ['sidecar', '.json', 'signed facts from the recorder'],
  ['notes', '.notes', 'annotations: streams, exact bytes, gaps, end of the session'],
  ['key', '.pem', 'public key of the signature'],
];

/** Links that download each file in its original form, for use with other tools. */
function Files({ bundle }: { readonly bundle: BundleReader }): JSX.Element {
  const save = async (file: BundleFile, name: string): Promise<void> =>
    saveFile(name, new Blob([await bundle.read(file)]));
  return (
    <section class="card evidence" aria-labelledby="files-title">
      <h2 id="files-title">Files in this bundle</h2>
      <ul class="files">
        {FILES.map(([file, ending, what]) => {
          const size = bundle.manifest.files[file];
          if (size === undefined) return null;
          return (
            <li key={file}>
              <button
                type="button"
                onClick={() => void save(file, recordingFileName(bundle.manifest.id, ending))}
              >
                Save {ending}
              </button>{' '}
              {sizeText(size.bytes)} · {what}
            </li>
          );
        })}
      </ul>
    </section>
  );
}
