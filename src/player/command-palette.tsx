/** Command palette: all actions of the current view, views, saved searches and preferences. Ctrl-K opens it. */
import { Command } from 'lucide';
import type { JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { IconButton } from './icon.tsx';
import { keyLabel, registeredActions } from './keyboard.tsx';
import { applyTheme, PREFERENCES, setPreference, type PreferenceName } from './preferences.ts';
import { searchAddress } from './route.ts';
import { useSaved } from './saved-menu.tsx';
import type { SavedSearch } from '../wire/recorder-api/saved-search.ts';
import { PREFERENCE_WORDS } from './settings-menu.tsx';

interface PaletteEntry {
  readonly title: string;
  /** Keyboard shortcut. */
  readonly key?: string;
  readonly run: () => void;
}

const MAX_SHOWN = 12;

/**
 * Returns the entries whose title contains all words of the text. Entries whose title starts with the text come first.
 */
function matchingEntries(entries: readonly PaletteEntry[], text: string): readonly PaletteEntry[] {
  const wanted = text.trim().toLowerCase();
  const words = wanted.split(/\s+/);
  const found = entries.filter(({ title }) => words.every((word) => title.toLowerCase().includes(word)));
  const isFirst = ({ title }: PaletteEntry): boolean => title.toLowerCase().startsWith(wanted);
  return [...found.filter(isFirst), ...found.filter((entry) => !isFirst(entry))].slice(0, MAX_SHOWN);
}

function go(address: string): () => void {
  return () => {
    location.hash = address;
  };
}

const CHOICES: readonly (readonly [name: PreferenceName, title: string])[] = [
  ['theme', 'Theme'],
  ['zone', 'Time zone'],
  ['density', 'Rows of the list'],
  ['terminal', 'Colours of the terminal'],
  ['tile', 'Size of live screens'],
];

function allEntries(saved: readonly SavedSearch[]): readonly PaletteEntry[] {
  const actions = registeredActions()
    // The palette cannot offer actions with a range of keys, such as 0–9, because their effect depends on the key.
    .filter(({ keys, isForTerminal }) => keys.length <= 4 && isForTerminal !== true)
    .map(({ keys: [key = ''], does, run }) => ({ title: does, key: keyLabel(key), run: () => run(key) }));
  const preferences = CHOICES.flatMap(([name, title]) =>
    PREFERENCES[name].map((value) => ({
      title: `${title}: ${PREFERENCE_WORDS[value] ?? value}`,
      run() {
        setPreference(name, value);
        applyTheme();
      },
    })),
  );
  return [
    { title: 'Show recordings', run: go('#/') },
    { title: 'Show live sessions', run: go('#/live') },
    ...actions,
    ...saved.map(({ name, query }) => ({
      title: `Saved search: ${name}`,
      run: go(searchAddress(query)),
    })),
    ...preferences,
  ];
}

/** The palette, with its button in the header. */
export function CommandPalette(): JSX.Element {
  const [isOpen, setOpen] = useState(false);
  useEffect(() => {
    const onKey = (event: KeyboardEvent): void => {
      if (event.key.toLowerCase() !== 'k' || !(event.ctrlKey || event.metaKey)) return;
      if (event.altKey || event.shiftKey) return;
      event.preventDefault();
      setOpen((open) => !open);
    };
    addEventListener('keydown', onKey);
    return () => removeEventListener('keydown', onKey);
  }, []);
  return (
    <>
      <IconButton icon={Command} label="Commands" shortcut="Ctrl-K" onClick={() => setOpen(true)} />
      {isOpen ? <Palette onClose={() => setOpen(false)} /> : null}
    </>
  );
}

function Palette({ onClose }: { readonly onClose: () => void }): JSX.Element {
  const dialog = useRef<HTMLDialogElement>(null);
  const { lists, load } = useSaved();
  const [text, setText] = useState('');
  const [chosen, setChosen] = useState(0);
  useEffect(() => {
    dialog.current?.showModal();
    load();
  }, []);
  const wanted = text.trim();
  const found = matchingEntries(allEntries(Object.values(lists).flat()), text);
  const shown =
    wanted === ''
      ? found
      : [
          ...found,
          {
            title: `Search recordings for ${wanted}`,
            run: go(searchAddress(`"${wanted.replaceAll('"', ' ')}"`)),
          },
        ];
  const run = (entry: PaletteEntry | undefined): void => {
    if (entry === undefined) return;
    dialog.current?.close();
    entry.run();
  };
  const step = (by: number): void => {
    const next = (chosen + by + shown.length) % shown.length;
    setChosen(next);
    document.getElementById(`palette-${next}`)?.scrollIntoView({ block: 'nearest' });
  };
  return (
    <dialog
      ref={dialog}
      class="palette"
      aria-label="Commands"
      onClose={onClose}
      onClick={(event) => {
        if (event.target === dialog.current) dialog.current?.close();
      }}
    >
      <input
        role="combobox"
        aria-label="Find a command"
        aria-expanded="true"
        aria-controls="palette-list"
        aria-activedescendant={`palette-${chosen}`}
        placeholder="Find a command, or search recordings"
        autocomplete="off"
        spellcheck={false}
        autofocus
        value={text}
        onInput={(event) => {
          setText(event.currentTarget.value);
          setChosen(0);
        }}
        onKeyDown={(event) => {
          if (event.key === 'Enter') run(shown[chosen]);
          if (event.key !== 'ArrowDown' && event.key !== 'ArrowUp') return;
          event.preventDefault();
          step(event.key === 'ArrowDown' ? 1 : -1);
        }}
      />
      <ul id="palette-list" role="listbox" aria-label="Commands">
        {shown.map((entry, index) => (
          <li
            key={index}
            id={`palette-${index}`}
            role="option"
            aria-selected={index === chosen}
            onClick={() => run(entry)}
          >
            <span>{entry.title}</span>
            {entry.key === undefined ? null : <kbd aria-hidden="true">{entry.key}</kbd>}
          </li>
        ))}
      </ul>
    </dialog>
  );
}
