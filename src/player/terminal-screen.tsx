import type { JSX } from 'preact';

/** Where a terminal is drawn into. What was on a screen is in no language that we know. */
export function TerminalScreen({
  onElement,
}: {
  readonly onElement: (element: HTMLElement | null) => void;
}): JSX.Element {
  return (
    <div
      ref={onElement}
      class="terminal"
      role="img"
      aria-label="Screen of the session"
      lang="zxx"
      translate={false}
    />
  );
}
