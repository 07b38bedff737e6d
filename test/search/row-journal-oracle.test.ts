import { describe, expect, it } from 'vitest';
import { RowJournal } from '../../src/search/row-journal.ts';
import { createRandom, runSeed } from '../support/random.ts';
import { createTerminalOracle, terminalPiece, withFewMarks } from '../support/terminal-oracle.ts';

function screenOf({ screen }: RowJournal): readonly string[] {
  return Array.from({ length: screen.rows }, (_, y) => {
    const row = screen.row(y);
    // trims spaces after the written part of the row, because xterm's rows are trimmed as well
    return row.text(0, row.end) + row.text(row.end, row.columns).trimEnd();
  }).map((text) => text.trimEnd());
}

describe('the screen of the row journal', () => {
  it('is that of xterm after every write of random output', async () => {
    const seed = runSeed();
    const random = createRandom(seed);
    let writes = 0;
    for (let round = 0; round < 400; round += 1) {
      const columns = 2 + random.below(30);
      const rows = 1 + random.below(10);
      const journal = new RowJournal({ columns, rows, onRow: () => undefined });
      const oracle = createTerminalOracle(columns, rows);
      let sent = '';
      for (let step = 0; step < 60; step += 1) {
        // Rounds use either wide characters or disabled wrap-around (`?7`), because xterm handles the combination
        // differently: it moves its cursor past a wide character that does not fit.
        const left = round % 2 === 0 ? /\?7/ : /[日한👍\u{1f468}]/u;
        const pieces = Array.from({ length: 1 + random.below(4) }, () => terminalPiece(random));
        const text = pieces.filter((piece) => !left.test(piece)).join('');
        sent += text;
        // xterm 6 fails if the last cell of its last row is erased
        if (!(await oracle.write(text))) break;
        journal.write(step, text);
        writes += 1;
        const place = `seed ${seed}, ${columns}x${rows}: ${JSON.stringify(sent)}`;
        expect(withFewMarks(screenOf(journal)), place).toEqual(withFewMarks(oracle.screen()));
      }
      oracle.dispose();
    }
    expect(writes).toBeGreaterThan(10_000);
  });
});
