import type { JSX } from 'preact';

/** Button for a check that reads the complete recording, with a progress message. */
export function CheckNow({
  asked,
  done,
  onAsk,
}: {
  readonly asked: boolean;
  readonly done: boolean;
  readonly onAsk: () => void;
}): JSX.Element | null {
  if (!asked) {
    return (
      <button type="button" onClick={onAsk}>
        Check now (reads the complete recording)
      </button>
    );
  }
  if (done) return null;
  return (
    <p class="notice" role="status">
      Checking…
    </p>
  );
}
