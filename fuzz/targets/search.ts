/** Targets for output on the screens of sessions, and for search queries. */
import { parseQuery, printQuery, QueryError } from '../../src/search/query.ts';
import { RowJournal } from '../../src/search/row-journal.ts';
import { createSecretFilter } from '../../src/secrets.ts';
import { MAX_COMMAND } from '../../src/search/shell-marks.ts';
import { tokenize } from '../../src/search/tokens.ts';
import { WorkBudget } from '../../src/work-budget.ts';
import { attempt, ensure, ensureEqual, textOf, utf8, words, type FuzzTarget } from '../target.ts';

interface Given {
  readonly rows: readonly string[];
  readonly screen: readonly string[];
}

function read(pieces: readonly string[], columns: number, rows: number): Given {
  const given: string[] = [];
  const budget = new WorkBudget({ free: 1e8, perCharacter: 0 });
  const journal = new RowJournal({
    columns,
    rows,
    budget,
    onRow({ at, text }) {
      ensure(text.trim() !== '' && at >= 0, 'an empty row');
      given.push(`${at} ${text}`);
    },
    onCommand: ({ text }) => ensure(text !== '' && text.length <= MAX_COMMAND, 'an empty or a long command'),
  });
  for (const piece of pieces) journal.write(1, piece);
  // if the output ends with an incomplete control string, `end` writes this string to the screen
  journal.end();
  const screen = Array.from({ length: rows }, (_, y) => journal.screen.row(y).text(0, columns).trimEnd());
  ensure(budget.spent < 1e8 + 1e7, 'more work than is allowed');
  return { rows: given, screen };
}

const rowJournal: FuzzTarget = {
  name: 'row-journal',
  words: [
    ...words(
      '\x1b[ \x1b] \x1bP \x1b_ 133;B 133;C ;cmdline_url= \x07 \x1b\\ ?1049h ?1049l ?47h ?7l 4h 65535 2J K L M P ' +
        '@ S T X b r',
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
    // the journal must have emitted every row of the final screen
    const all = whole.rows.join('\n');
    for (const line of whole.screen) {
      const word = /[a-z]{3,}/.exec(line)?.[0] ?? '';
      ensure(all.includes(word), `on the screen and not in the journal: ${word}`);
    }
    return `${Math.min(whole.rows.length, 5)} rows`;
  },
};

const NOW_MS = Date.parse('2026-01-31T08:00:00Z');

function queryRefusal(error: unknown): string | undefined {
  return error instanceof QueryError ? 'refused' : undefined;
}

const query: FuzzTarget = {
  name: 'search-query',
  words: words(
    'user: ns: pod: cmd: text: before: after: duration: exit: state: kind: - OR " \\ * > <= != 7d 2026-01-31 open',
  ),
  seeds: [
    'user:alice@example.com "rm -rf" -ns:kube-system',
    'duration:>1h exit:!=0 OR exit:0',
    'after:7d before:2026-01-31T08:00:00+01:00 kub*',
    'cmd:"say \\"x\\"" 日本語',
  ].map(utf8),
  run(input) {
    const text = textOf(input);
    const { value, refused } = attempt(() => parseQuery(text, NOW_MS), queryRefusal);
    if (refused !== undefined) return refused;
    const printed = printQuery(value);
    ensureEqual(parseQuery(printed, NOW_MS), value, 'a query does not survive being written');
    return `${value.clauses.length} ${value.clauses
      .flat()
      .map(({ kind }) => kind)
      .join()}`.slice(0, 60);
  },
};

const PLANTED = 'AKIAIOSFODNN7EXAMPLE';

/** Text from sessions becomes words of an index. The words must not contain secrets. */
const indexedText: FuzzTarget = {
  name: 'indexed-text',
  words: [
    ...words(
      'password= token: --secret Bearer eyJ ://u: @ curl -u mysql -p ghp_ AKIA ½ ﬁ 日本語 ไทย 한글 e\u0301',
    ),
    '-----BEGIN RSA PRIVATE KEY-----\n',
    '-----END RSA PRIVATE KEY-----\n',
  ],
  seeds: [
    'mysql -u root -phunter22 | curl -u a:b https://u:p@h/',
    `export TOKEN=abcdefgh\n-----BEGIN PRIVATE KEY-----\n${'A'.repeat(40)}\n-----END PRIVATE KEY-----\n`,
    'ＡＢＣ ½ 日本語 kubectl-get_pods',
  ].map(utf8),
  run(input) {
    const text = textOf(input);
    const filter = createSecretFilter();
    const shown = text.split('\n').map(filter);
    ensure(!filter(` ${PLANTED} `).includes(PLANTED), 'a key got through');
    let at = 0;
    const tokens = tokenize(shown.join(' '));
    for (const { text: word, start, end } of tokens) {
      ensure(word !== '' && word.isWellFormed(), 'an empty or a broken word');
      ensure(start >= at && end > start, 'words out of order');
      at = start;
    }
    return `${Math.min(tokens.length, 20)} ${shown.join('\n') === text}`;
  },
};

export const SEARCH_TARGETS: readonly FuzzTarget[] = [rowJournal, query, indexedText];
