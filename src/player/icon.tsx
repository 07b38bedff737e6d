/** Icons of the page, from `lucide`. Icons are decorative: assistive technology reads only the name of the control. */
import type { JSX } from 'preact';
import { h } from 'preact';

/** Elements of an icon: tag and attributes. */
export type IconShape = readonly (readonly [tag: string, attributes: Readonly<Record<string, unknown>>])[];

export function Icon({ icon, size = 16 }: { readonly icon: IconShape; readonly size?: number }): JSX.Element {
  return (
    <svg class="icon" width={size} height={size} viewBox="0 0 24 24" aria-hidden="true">
      {icon.map(([tag, attributes]) => h(tag, attributes))}
    </svg>
  );
}

export interface IconButtonProps {
  readonly icon: IconShape;
  /** Accessible name and tooltip. */
  readonly label: string;
  /** Keyboard shortcut in the tooltip. */
  readonly shortcut?: string;
  readonly class?: string;
  readonly isPressed?: boolean;
  readonly disabled?: boolean;
  readonly onClick: () => void;
}

/** Button with an icon and no text. */
export function IconButton(props: IconButtonProps): JSX.Element {
  const { icon, label, shortcut, isPressed, disabled = false, onClick } = props;
  return (
    <button
      type="button"
      class={`icon-button ${props.class ?? ''}`}
      aria-label={label}
      title={shortcut === undefined ? label : `${label} (${shortcut})`}
      aria-pressed={isPressed}
      disabled={disabled}
      onClick={onClick}
    >
      <Icon icon={icon} />
    </button>
  );
}
