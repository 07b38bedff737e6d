/** Display preferences of the user, stored in the browser. A change updates all components that use the preference. */
import { useEffect, useState } from 'preact/hooks';
import { recall, remember } from './remember.ts';

/** Allowed values by preference. The first value is the default. */
export const PREFERENCES = {
  theme: ['system', 'light', 'dark'],
  zone: ['local', 'utc'],
  density: ['comfortable', 'compact'],
  side: ['commands', 'transcript', 'notes', 'closed'],
  fit: ['auto', 'width', 'height', '10', '12', '14', '16', '18', '20', '24', '28', '32'],
  terminal: ['dark', 'light', 'contrast'],
  tile: ['medium', 'small', 'large'],
} as const;

export type PreferenceName = keyof typeof PREFERENCES;
export type Preference<Name extends PreferenceName> = (typeof PREFERENCES)[Name][number];

const CHANGED = 'tailcast-preference';

/** Returns a stored preference, or its default. */
function preference<Name extends PreferenceName>(name: Name): Preference<Name> {
  const values: readonly Preference<Name>[] = PREFERENCES[name];
  const stored = recall(`tailcast.${name}`);
  const [first] = values;
  const found = values.find((value) => value === stored) ?? first;
  if (found === undefined) throw new Error(`preference ${name} has no values`);
  return found;
}

/** Returns a preference and a function that changes it. */
export function usePreference<Name extends PreferenceName>(
  name: Name,
): [Preference<Name>, (value: Preference<Name>) => void] {
  const [value, setValue] = useState(() => preference(name));
  useEffect(() => {
    const follow = (): void => setValue(preference(name));
    addEventListener(CHANGED, follow);
    return () => removeEventListener(CHANGED, follow);
  }, [name]);
  return [
    value,
    (chosen) => {
      setPreference(name, chosen);
      setValue(chosen);
    },
  ];
}

/** Stores a preference. */
export function setPreference(name: PreferenceName, value: string): void {
  remember(`tailcast.${name}`, value);
  dispatchEvent(new Event(CHANGED));
}

/** Applies the theme to the document. */
export function applyTheme(): void {
  document.documentElement.dataset['theme'] = preference('theme');
}
