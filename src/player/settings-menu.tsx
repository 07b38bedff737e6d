/** Menu with the display preferences of all views. */
import { Monitor, Moon, Settings2, Sun } from 'lucide';
import type { JSX } from 'preact';
import { Drop } from './drop.tsx';
import { Icon, type IconShape } from './icon.tsx';
import { hiddenColumns, LIST_COLUMNS, useHiddenColumns } from './list-columns.tsx';
import {
  applyTheme,
  PREFERENCES,
  usePreference,
  type Preference,
  type PreferenceName,
} from './preferences.ts';

/** Texts of the values of preferences. */
export const PREFERENCE_WORDS: Readonly<Record<string, string>> = {
  system: 'System',
  light: 'Light',
  dark: 'Dark',
  contrast: 'High contrast',
  local: 'Local time',
  utc: 'UTC',
  comfortable: 'Comfortable',
  compact: 'Compact',
  small: 'Small',
  medium: 'Medium',
  large: 'Large',
};
const ICONS: Readonly<Record<string, IconShape>> = { system: Monitor, light: Sun, dark: Moon };

/** Control that selects a value of a preference. */
export function Choice({
  name,
  legend,
  options = PREFERENCES[name],
}: {
  readonly name: PreferenceName;
  readonly legend: string;
  /** Values in the order of the display. Default: all values, with the default value first. */
  readonly options?: readonly Preference<PreferenceName>[];
}): JSX.Element {
  const [value, choose] = usePreference(name);
  return (
    <fieldset class="choice">
      <legend>{legend}</legend>
      {options.map((option) => (
        <label key={option}>
          <input
            type="radio"
            name={`preference-${name}`}
            checked={value === option}
            onChange={() => {
              choose(option);
              applyTheme();
            }}
          />
          {name === 'theme' ? <Icon icon={ICONS[option] ?? Monitor} size={14} /> : null}
          {PREFERENCE_WORDS[option] ?? option}
        </label>
      ))}
    </fieldset>
  );
}

export function SettingsMenu(): JSX.Element {
  const [hidden, setHidden] = useHiddenColumns();
  return (
    <Drop class="settings" label="Display settings" icon={Settings2} isQuiet>
      <Choice name="theme" legend="Theme" />
      <Choice name="zone" legend="Time zone" />
      <Choice name="density" legend="Rows of the list" />
      <fieldset class="columns">
        <legend>Columns of the list</legend>
        {LIST_COLUMNS.filter(({ isFixed }) => isFixed !== true).map(({ name, title }) => (
          <label key={name}>
            <input
              type="checkbox"
              checked={!hidden.has(name)}
              onChange={() => setHidden(hiddenColumns(hidden, name))}
            />
            {title}
          </label>
        ))}
      </fieldset>
    </Drop>
  );
}
