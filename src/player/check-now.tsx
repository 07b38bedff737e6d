import type { JSX } from 'preact';

/** Starts what takes as long as reading the whole recording, and says that it runs. */
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
        Check now (reads the whole recording)
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
