import type { JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';

const ANNOUNCE_MS = 1500;
const MAX_ANNOUNCED = 3;

/** Live region that announces the last lines of the screen to screen readers. */
export function Announcer({ screen }: { readonly screen: HTMLElement | null }): JSX.Element {
  const [text, setText] = useState('');
  useEffect(() => {
    const timer = setInterval(() => {
      const rows = [...(screen?.querySelectorAll('.row') ?? [])].map((row) => row.textContent.trim());
      setText(
        rows
          .filter((row) => row !== '')
          .slice(-MAX_ANNOUNCED)
          .join('\n'),
      );
    }, ANNOUNCE_MS);
    return () => clearInterval(timer);
  }, [screen]);
  return (
    <p class="hidden-label" aria-live="polite">
      {text}
    </p>
  );
}
