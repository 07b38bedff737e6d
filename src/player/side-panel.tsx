/** Panel with tabs, next to the screen. */
import { X } from 'lucide';
import type { ComponentChildren, JSX } from 'preact';
import { IconButton } from './icon.tsx';
import type { Preference } from './preferences.ts';

export type SideTab = Preference<'side'>;

export interface SideTabEntry {
  readonly tab: Exclude<SideTab, 'closed'>;
  readonly title: string;
  readonly count?: number | undefined;
}

export interface SidePanelProps {
  readonly tabs: readonly SideTabEntry[];
  readonly selected: SideTab;
  readonly onSelect: (tab: SideTab) => void;
  readonly children: ComponentChildren;
}

export function SidePanel({ tabs, selected, onSelect, children }: SidePanelProps): JSX.Element {
  const step = (by: number): void => {
    const at = tabs.findIndex(({ tab }) => tab === selected);
    const next = tabs[(at + by + tabs.length) % tabs.length];
    if (next === undefined) return;
    onSelect(next.tab);
    document.getElementById(`tab-${next.tab}`)?.focus();
  };
  return (
    <div class="side">
      <div class="tabs">
        <div
          role="tablist"
          aria-label="Panel"
          onKeyDown={(event) => {
            if (event.key !== 'ArrowLeft' && event.key !== 'ArrowRight') return;
            event.preventDefault();
            step(event.key === 'ArrowRight' ? 1 : -1);
          }}
        >
          {tabs.map(({ tab, title, count }) => (
            <button
              key={tab}
              id={`tab-${tab}`}
              type="button"
              role="tab"
              aria-selected={tab === selected}
              aria-controls="side-content"
              tabIndex={tab === selected ? 0 : -1}
              onClick={() => onSelect(tab)}
            >
              {title}
              {count === undefined || count === 0 ? null : <span class="count">{count}</span>}
            </button>
          ))}
        </div>
        <span class="spacer" />
        <IconButton icon={X} label="Close the panel" onClick={() => onSelect('closed')} />
      </div>
      <div id="side-content" class="tab-panel" role="tabpanel" aria-labelledby={`tab-${selected}`}>
        {children}
      </div>
    </div>
  );
}
