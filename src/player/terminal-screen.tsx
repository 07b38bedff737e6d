import type { JSX } from 'preact';
import { usePreference } from './preferences.ts';

/** Element for the screen of a terminal. `lang` is `zxx`, because the language of the text is unknown. */
export function TerminalScreen({
  onElement,
}: {
  readonly onElement: (element: HTMLElement | null) => void;
}): JSX.Element {
  const [theme] = usePreference('terminal');
  return (
    <div
      ref={onElement}
      class="terminal"
      role="img"
      aria-label="Screen of the session. The transcript contains its text."
      tabIndex={0}
      data-theme={theme}
      lang="zxx"
      translate={false}
    />
  );
}
