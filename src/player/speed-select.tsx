/** Choice of the playback speed. */
import type { JSX } from 'preact';
import { SPEEDS } from './player-keys.ts';

export interface SpeedSelectProps {
  readonly speed: number;
  readonly title?: string;
  readonly onSpeed: (speed: number) => void;
}

export function SpeedSelect({ speed, title, onSpeed }: SpeedSelectProps): JSX.Element {
  return (
    <select
      aria-label="Speed"
      title={title}
      value={String(speed)}
      onChange={(event) => onSpeed(Number(event.currentTarget.value))}
    >
      {SPEEDS.map((factor) => (
        <option key={factor} value={String(factor)}>
          {factor}×
        </option>
      ))}
    </select>
  );
}
