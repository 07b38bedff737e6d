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
import { Recorder } from './recorder-context.ts';
import { RecordingView } from './recording-view.tsx';
import { saveFile } from './save-file.ts';
import { wallText } from './wall-text.ts';
import './style.css';

// the recording follows this script in the page
addEventListener('DOMContentLoaded', () => {
  const root = document.getElementById('app');
  if (root === null) return;
  const bundle = findBundle(document);
  root.replaceChildren();
  render(bundle === undefined ? <Broken /> : <Offline bundle={bundle} />, root);
});

function Broken(): JSX.Element {
  return (
    <p class="notice problem" role="alert">
      This file is not whole: the recording in it is missing, or was cut off.
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
          tailcast <span>recording, exported {wallText(new Date(madeAt), 'local')}</span>
        </span>
      </header>
      <main>
        {found?.verdict === 'faulty' ? (
          <p class="notice problem" role="alert">
            <strong>{VERDICTS.faulty}</strong> What is wrong stands below.
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
 * Maximum size of an automatic check, in bytes, because the check reads the complete recording. Larger ones need a
 * click.
 */
const MAX_UNASKED_BYTES = 64 * 1024 ** 2;

const VERDICTS: Readonly<Record<BundleCheck['verdict'], string>> = {
  sound: 'What is in this file is what the key signed.',
  faulty: 'What is in this file is NOT what was signed.',
  none: 'There is no signature to hold this file against.',
  unable: 'It cannot be said here whether this file is what was signed.',
};

/** Result of a check in this browser, independent of the recorder's result at export. */
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
    <section class="evidence" aria-labelledby="check-title">
      <h2 id="check-title">This file, checked here</h2>
      <CheckNow asked={asked} done={found !== undefined} onAsk={onAsk} />
      {found === undefined ? null : (
        <>
          <p
            class={found.verdict === 'faulty' ? 'notice problem' : 'notice'}
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
              <p>The signature covers everything that this page shows of the recording:</p>
              <ul class="covers">
                {found.covers.map((covered) => (
                  <li key={covered}>{covered}</li>
                ))}
              </ul>
            </>
          )}
          {found.keyId === undefined ? null : (
            <p class="notice">
              The key is <code>{found.keyId}</code>. That it is your recorder’s is for you to compare; that
              nothing was taken out of the archive says only <code>tailcast verify</code> there.
            </p>
          )}
        </>
      )}
    </section>
  );
}

const FILES: readonly (readonly [file: BundleFile, ending: string, what: string])[] = [
  ['cast', '.cast', 'the recording, asciicast'],
  ['sidecar', '.json', 'what the recorder wrote down beside it, signed'],
  ['notes', '.notes', 'what a cast cannot say: streams, exact bytes, gaps, the end'],
  ['key', '.pem', 'the public key that signed it'],
];

/** Download of each file in its stored form, for tools. */
function Files({ bundle }: { readonly bundle: BundleReader }): JSX.Element {
  const save = async (file: BundleFile, name: string): Promise<void> =>
    saveFile(name, new Blob([await bundle.read(file)]));
  return (
    <section class="evidence" aria-labelledby="files-title">
      <h2 id="files-title">Files in it</h2>
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
