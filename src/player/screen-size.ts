/** Size of the terminal's text, and full screen. */
import { usePreference, type Preference } from './preferences.ts';
import type { ScreenFit } from './screen-view.ts';

const SIZES = [10, 12, 14, 16, 18, 20, 24, 28, 32] as const;

/** Size of the terminal's text, and a function that changes it by one step. */
export function useZoom(screen: HTMLElement | null): {
  readonly fit: ScreenFit;
  readonly zoom: (by: 1 | -1) => void;
} {
  const [fit, setFit] = usePreference('fit');
  const zoom = (by: 1 | -1): void => {
    const now = Number.parseFloat(screen?.style.getPropertyValue('--font') ?? '14');
    const next =
      by === 1 ? SIZES.find((size) => size > now + 0.01) : SIZES.findLast((size) => size < now - 0.01);
    if (next !== undefined) setFit(`${next}` satisfies Preference<'fit'>);
  };
  return { fit: fit === 'auto' || fit === 'width' || fit === 'height' ? fit : Number(fit), zoom };
}

/** Shows the player in full screen, or leaves full screen. */
export async function toggleFullscreen(frame: HTMLElement | null): Promise<void> {
  if (document.fullscreenElement === null) await frame?.requestFullscreen().catch(() => undefined);
  else await document.exitFullscreen();
}
