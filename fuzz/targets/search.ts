/** What programs print on the screens of sessions, and what viewers ask for. */
import { RowJournal } from '../../src/search/row-journal.ts';
import { MAX_COMMAND } from '../../src/search/shell-marks.ts';
import { ensure, ensureEqual, textOf, utf8, words, type FuzzTarget } from '../target.ts';

interface Given {
  readonly rows: readonly string[];
  readonly screen: readonly string[];
}

function read(pieces: readonly string[], columns: number, rows: number): Given {
  const given: string[] = [];
  const journal = new RowJournal({
    columns,
    rows,
    maxWork: 1e8,
    onRow({ at, text }) {
      ensure(text.trim() !== '' && at >= 0, 'an empty row');
      given.push(`${at} ${text}`);
    },
    onCommand: ({ text }) => ensure(text !== '' && text.length <= MAX_COMMAND, 'an empty or a long command'),
  });
  for (const piece of pieces) journal.write(1, piece);
  const screen = Array.from({ length: rows }, (_, y) => journal.screen.row(y).text(0, columns).trimEnd());
  journal.end();
  ensure(journal.screen.work < 1e8 + 1e7, 'more work than is allowed');
  return { rows: given, screen };
}

const rowJournal: FuzzTarget = {
  name: 'row-journal',
  words: [
    ...words(
      '\x1b[ \x1b] \x1bP \x1b_ 133;B 133;C ;cmdline_url= \x07 \x1b\\ ?1049h ?1049l ?47h ?7l 4h 65535 2J K L M P @ S T X b r',
    ),
    '\r\n',
    '\x1bc',
    '\x1b#8',
    '\x1b(0',
    '日本',
    'e\u0301',
    '👍',
  ],
  seeds: [
    'one\r\ntwo\x1b[1A\rthree\x1b[K',
    '\x1b[?1049h\x1b[2;4r\x1b[4;1Hsecret\n\n\x1b[?1049l',
    '$ \x1b]133;B\x07kubectl get pods\r\n\x1b]133;C\x07',
    '日本語\x1b[3D\x1b[Px\x1b[20b\x1b[4hé',
  ].map(utf8),
  run(input, random) {
    const text = textOf(input.subarray(0, 4000));
    const columns = 2 + random.below(40);
    const rows = 1 + random.below(10);
    const whole = read([text], columns, rows);
    const characters = read(Array.from(text), columns, rows);
    ensureEqual(characters, whole, 'the rows depend on where the output is cut');
    // what stands on the screen in the end is what is given out last, or was before
    const all = whole.rows.join('\n');
    for (const line of whole.screen) {
      const word = /[a-z]{3,}/.exec(line)?.[0] ?? '';
      ensure(all.includes(word), `on the screen and not in the journal: ${word}`);
    }
    return `${Math.min(whole.rows.length, 5)} rows`;
  },
};

export const SEARCH_TARGETS: readonly FuzzTarget[] = [rowJournal];
