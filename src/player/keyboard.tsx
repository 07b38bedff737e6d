/** Keyboard shortcuts, and their help. */
import type { JSX } from 'preact';
import { useEffect, useRef } from 'preact/hooks';

export interface KeyAction {
  /** Values of `event.key`, as shown in the help. */
  readonly keys: readonly string[];
  readonly does: string;
  /** True if the key works only while the terminal has the focus. Without this focus, the key scrolls the page. */
  readonly isForTerminal?: boolean;
  readonly run: (key: string) => void;
}

/** Key actions of all mounted components. */
const registered = new Set<{ readonly current: readonly KeyAction[] }>();

/** Returns the actions of the current view. */
export function registeredActions(): readonly KeyAction[] {
  return [...registered].flatMap(({ current }) => current);
}

/**
 * Handles keys while the component is mounted. The browser handles keys in input fields, and keys with a modifier such
 * as Ctrl.
 */
export function useKeys(actions: readonly KeyAction[]): void {
  const current = useRef(actions);
  current.current = actions;
  useEffect(() => {
    const onKey = (event: KeyboardEvent): void => {
      if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
      if (isTaken(event)) return;
      const name = event.shiftKey && event.key.length > 1 ? `Shift+${event.key}` : event.key;
      const action = current.current.find(({ keys }) => keys.includes(name));
      if (action === undefined || (action.isForTerminal === true && !isInTerminal(event))) return;
      event.preventDefault();
      action.run(name);
    };
    addEventListener('keydown', onKey);
    registered.add(current);
    return () => {
      removeEventListener('keydown', onKey);
      registered.delete(current);
    };
  }, []);
}

function isInTerminal({ target }: KeyboardEvent): boolean {
  return target instanceof Element && target.closest('.terminal, .track') !== null;
}

/** True if the focused element handles the key itself. */
function isTaken({ target, key }: KeyboardEvent): boolean {
  if (!(target instanceof Element)) return false;
  if (target.closest('input:not([type=checkbox]), select, textarea, dialog') !== null) return true;
  if (key.startsWith('Arrow')) return target.closest('[role=tablist], input, .rows') !== null;
  return (key === ' ' || key === 'Enter') && target.closest('button, a, input, summary, label') !== null;
}

const NAMES: Readonly<Record<string, string>> = {
  ' ': 'Space',
  ArrowLeft: '←',
  ArrowRight: '→',
  'Shift+ArrowLeft': 'Shift ←',
  'Shift+ArrowRight': 'Shift →',
};

/** Name of a key, as shown to the user. */
export function keyLabel(key: string): string {
  return NAMES[key] ?? key;
}

/** Help for keyboard shortcuts. Escape closes the help. */
export function KeyHelp({
  actions,
  onClose,
}: {
  readonly actions: readonly KeyAction[];
  readonly onClose: () => void;
}): JSX.Element {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => dialog.current?.showModal(), []);
  return (
    <dialog ref={dialog} class="help" aria-labelledby="help-title" onClose={onClose}>
      <h2 id="help-title">Keys</h2>
      <dl>
        {actions.map(({ keys, does }) => (
          <div key={does}>
            <dt>
              {(keys.length > 4 ? [`${keys[0]}`, '…', `${keys.at(-1)}`] : keys).map((key) =>
                key === '…' ? ' … ' : <kbd key={key}>{keyLabel(key)}</kbd>,
              )}
            </dt>
            <dd>{does}</dd>
          </div>
        ))}
      </dl>
      <button type="button" onClick={() => dialog.current?.close()}>
        Close
      </button>
    </dialog>
  );
}
