/** Converts output or a cast to text in the same way as the search index. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { CastText } from '../../src/search/cast-text.ts';
import { Moments, type IndexedText, type Moment } from '../../src/search/moments.ts';
import { RowJournal } from '../../src/search/row-journal.ts';
import type { JournalRow } from '../../src/search/text-journal.ts';
import type { JournalCommand } from '../../src/search/shell-marks.ts';

/** Output, with its time in seconds. */
export type Write = readonly [seconds: number, text: string];

export interface Read {
  readonly rows: readonly JournalRow[];
  readonly commands: readonly JournalCommand[];
  readonly texts: readonly string[];
}

export function readWrites(writes: readonly Write[], columns = 40, rows = 6): Read {
  const found: JournalRow[] = [];
  const commands: JournalCommand[] = [];
  const journal = new RowJournal({
    columns,
    rows,
    onRow: (row) => found.push(row),
    onCommand: (command) => commands.push(command),
  });
  for (const [seconds, text] of writes) journal.write(seconds, text);
  journal.end();
  return { rows: found, commands, texts: found.map(({ text }) => text) };
}

export interface ReadCast {
  readonly moments: readonly Moment[];
  readonly rows: readonly JournalRow[];
  readonly isPartial: boolean;
}

export function readCastLines(lines: readonly string[], text: IndexedText = 'all'): ReadCast {
  const moments: Moment[] = [];
  const rows: JournalRow[] = [];
  const cut = new Moments({ text, onMoment: (moment) => moments.push(moment) });
  const cast = new CastText({
    onRow(row) {
      rows.push(row);
      cut.row(row);
    },
    onCommand: (command) => cut.command(command),
    onOutput: (characters) => cut.printed(characters),
  });
  for (const line of lines) cast.line(line);
  cast.end();
  cut.end();
  return { moments, rows, isPartial: cast.isPartial || cut.isPartial };
}

/** Returns the events of a recording of a real program on a real terminal. */
export function castFixture(name: string): readonly string[] {
  const path = join(import.meta.dirname, '../fixtures/casts', `${name}.cast`);
  return readFileSync(path, 'utf8').trimEnd().split('\n');
}
