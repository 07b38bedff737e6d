/** Columns of the list. To add a column, add an entry to {@link LIST_COLUMNS}. */
import type { ComponentChildren } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import type { Listed } from './archive.ts';
import type { ListSort } from '../search/search-index.ts';
import { ageText, durationText, sizeText, whereText, whoText } from './format.ts';
import { recall, remember } from './remember.ts';
import { StatusBadges } from './status-badges.tsx';
import { clockOf, wallText, type Zone } from './wall-text.ts';

export interface ListColumn {
  readonly name: string;
  readonly title: string;
  /** Width of the column, as a track of the CSS grid. */
  readonly width: string;
  /** True if the user cannot hide the column. */
  readonly isFixed?: boolean;
  /** True if the column is hidden until the user selects it. */
  readonly isHidden?: boolean;
  readonly class?: string;
  /**
   * Sort orders of the column. A click on the title selects the first order or, if the list already has the first
   * order, the second order.
   */
  readonly sorts?: readonly [ListSort, ListSort];
  readonly cell: (recording: Listed, zone: Zone) => ComponentChildren;
}

/** The columns that follow the checkbox, the thumbnail and the command, in order. */
export const LIST_COLUMNS: readonly ListColumn[] = [
  {
    name: 'who',
    title: 'Who and where',
    width: 'clamp(10.5rem, 19vw, 19rem)',
    isFixed: true,
    class: 'who',
    cell: (recording) => (
      <>
        <span class="line" title={whoText(recording)}>
          {whoText(recording)}
        </span>
        <span class="line soft" title={whereText(recording)}>
          {whereText(recording)}
        </span>
      </>
    ),
  },
  {
    name: 'started',
    title: 'Started',
    width: '7rem',
    class: 'when',
    sorts: ['newest', 'oldest'],
    cell: ({ startedAt }, zone) => (
      <time dateTime={startedAt} title={wallText(new Date(startedAt), zone)}>
        <span class="line">{clockOf(new Date(startedAt), zone)}</span>
        <span class="line soft">{ageText(startedAt, Date.now())}</span>
      </time>
    ),
  },
  {
    name: 'length',
    title: 'Length',
    width: '6.25rem',
    class: 'number length',
    sorts: ['longest', 'newest'],
    cell: ({ durationSeconds }) => durationText(durationSeconds),
  },
  {
    name: 'size',
    title: 'Size',
    width: '5.25rem',
    class: 'number',
    isHidden: true,
    sorts: ['largest', 'newest'],
    cell: ({ bytes }) => sizeText(bytes),
  },
  {
    name: 'node',
    title: 'From node',
    width: '11rem',
    isHidden: true,
    cell: ({ source }) => (
      <span class="line" title={source.node}>
        {source.node}
      </span>
    ),
  },
  {
    name: 'result',
    title: 'Result',
    width: '9.5rem',
    class: 'result',
    cell: (recording) => <StatusBadges recording={recording} />,
  },
];

const KEY = 'tailcast.hiddenColumns';
const CHANGED = 'tailcast-columns';

function storedHidden(): ReadonlySet<string> {
  const stored = recall(KEY);
  if (stored === undefined)
    return new Set(LIST_COLUMNS.filter(({ isHidden }) => isHidden === true).map(({ name }) => name));
  return new Set(stored.split(' '));
}

/** Returns the names of the hidden columns, and a function that changes them. */
export function useHiddenColumns(): [ReadonlySet<string>, (hidden: ReadonlySet<string>) => void] {
  const [hidden, setHidden] = useState(storedHidden);
  useEffect(() => {
    const follow = (): void => setHidden(storedHidden());
    addEventListener(CHANGED, follow);
    return () => removeEventListener(CHANGED, follow);
  }, []);
  return [
    hidden,
    (chosen) => {
      remember(KEY, [...chosen].join(' '));
      setHidden(chosen);
      dispatchEvent(new Event(CHANGED));
    },
  ];
}

/** Hides a visible column, or shows a hidden column. */
export function hiddenColumns(hidden: ReadonlySet<string>, name: string): ReadonlySet<string> {
  const changed = new Set(hidden);
  if (!changed.delete(name)) changed.add(name);
  return changed;
}
