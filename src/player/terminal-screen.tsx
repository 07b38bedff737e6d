import type { JSX } from 'preact';

/** Element for the screen of a terminal. Its language is unknown. */
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
