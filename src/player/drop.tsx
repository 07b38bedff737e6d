/**
 * A pop-up over the page. The pop-up closes on Escape, on a click elsewhere, and when the user follows a link in it.
 */
import { ChevronDown } from 'lucide';
import type { ComponentChildren, JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { Icon, type IconShape } from './icon.tsx';

export interface DropProps {
  readonly label: string;
  readonly class: string;
  readonly icon?: IconShape;
  /** True if the button shows only the icon; the label is then the accessible name. */
  readonly isQuiet?: boolean;
  readonly onOpen?: () => void;
  readonly children: ComponentChildren;
}

export function Drop(props: DropProps): JSX.Element {
  const { label, class: name, icon, isQuiet = false, onOpen, children } = props;
  const details = useRef<HTMLDetailsElement>(null);
  const [open, setOpen] = useState(false);
  useEffect(() => {
    if (!open) return undefined;
    const close = (event: Event): void => {
      const { target } = event;
      // `composedPath` is used because it also contains elements that the click has removed from the page
      const isInside = event.composedPath().some((place) => place === details.current);
      if (!isInside || (target instanceof Element && target.closest('.panel a, .panel .closes') !== null))
        setOpen(false);
    };
    const onKey = (event: KeyboardEvent): void => {
      if (event.key !== 'Escape') return;
      setOpen(false);
      details.current?.querySelector('summary')?.focus();
    };
    addEventListener('click', close);
    addEventListener('keydown', onKey);
    return () => {
      removeEventListener('click', close);
      removeEventListener('keydown', onKey);
    };
  }, [open]);
  return (
    <details
      ref={details}
      class={`drop ${name}`}
      open={open}
      onToggle={({ currentTarget: { open: isOpen } }) => {
        setOpen(isOpen);
        if (isOpen) onOpen?.();
      }}
    >
      <summary class={isQuiet ? 'icon-button' : 'button'} aria-label={label} title={label}>
        {icon === undefined ? null : <Icon icon={icon} />}
        {isQuiet ? null : (
          <>
            <span class="label">{label}</span>
            <Icon icon={ChevronDown} size={14} />
          </>
        )}
      </summary>
      <div class="panel">{children}</div>
    </details>
  );
}
