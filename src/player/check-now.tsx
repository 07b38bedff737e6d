import type { JSX } from 'preact';

/** Button that starts a check of the complete recording, and a message during the check. */
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
