import { describe, expect, it } from 'vitest';
import { RowJournal } from '../../src/search/row-journal.ts';
import { createRandom, runSeed } from '../support/random.ts';
import { castFixture, readCastLines, readWrites, type Write } from '../support/search-text.ts';
import { terminalPiece } from '../support/terminal-oracle.ts';
import { WorkBudget } from '../../src/work-budget.ts';

/** Returns the time in seconds at which a word was first visible. */
function secondOf(lines: readonly string[], word: string): number | undefined {
  return readCastLines(lines).rows.find(({ text }) => text.includes(word))?.at;
}

describe('a row journal', () => {
  it('finds a word that comes in two writes, and one cut by a colour', () => {
    expect(
      readWrites([
        [0, 'store_fa'],
        [1, 'iled\r\n'],
      ]).texts,
    ).toContain('store_failed');
    expect(
      readWrites([
        [0, 'store_\x1b[3'],
        [0.1, '1mfailed'],
      ]).texts,
    ).toContain('store_failed');
  });

  it('joins what the right margin cut, over any number of rows', () => {
    const text = 'x'.repeat(95) + 'secret' + 'y'.repeat(60) + ' end';
    expect(readWrites([[0, text]], 20, 4).texts.some((line) => line.includes('xsecrety'))).toBe(true);
    expect(readWrites([[0, 'a'.repeat(37) + ' secret others']], 40).texts).toEqual([
      'a'.repeat(37) + ' secret others',
    ]);
  });

  it('keeps words of a long line together when its beginning has scrolled away', () => {
    const words = Array.from({ length: 200 }, (_, index) => `word${index}`);
    const { texts } = readWrites(
      words.map((word, index): Write => [index / 100, `${word} `]),
      13,
      4,
    );
    for (const word of words)
      expect(
        texts.some((line) => new RegExp(`\\b${word}\\b`).test(line)),
        word,
      ).toBe(true);
  });

  it.each([
    ['overwritten in the same write', 'secret\rpublic'],
    ['erased in the same write', 'secret\x1b[2Kgone'],
    ['erased with the screen', 'secret\x1b[2J'],
    ['deleted by characters', 'secret\r\x1b[6P'],
    ['pushed out by characters', `${' '.repeat(34)}secret\r\x1b[40@`],
    ['erased by characters', 'secret\r\x1b[6X'],
    ['deleted with its line', 'secret\x1b[M'],
    ['pushed out by lines', '\x1b[6;1Hsecret\x1b[1;1H\x1b[6L'],
    ['scrolled away at once', `secret${'\n'.repeat(50)}`],
    ['scrolled down and out', '\x1b[6;1Hsecret\x1b[6T'],
    ['left on the alternate screen', '\x1b[?1049hsecret\x1b[?1049l'],
    ['left on the normal screen', 'secret\x1b[?1049h\x1b[2J'],
    ['reset', 'secret\x1bc'],
    ['filled with E', 'secret\x1b#8'],
    ['concealed', '\x1b[8msecret\x1b[0m\x1b[2K'],
    ['corrected with backspaces', 'secret\b \b\b \b\b \b'],
    ['in a region that scrolls', '\x1b[2;4r\x1b[4;1Hsecret\n\n\n\n'],
  ])('finds a word that was %s', (_how, output) => {
    expect(readWrites([[1, output]]).texts.some((text) => text.includes('secret'))).toBe(true);
  });

  it.each([
    ['by the second half of a wide character', ' needle', '\r\u{1f468}', 'needle'],
    ['by a wide character that was repeated', ' needle', '\r\u4e2d\r\x1b[b', 'needle'],
    [
      'by the erasure of the second half of its wide character',
      '\u6a5f\u5bc6',
      '\x1b[4G\x1b[X',
      '\u6a5f\u5bc6',
    ],
    ['by a deletion at the second half', '\u6a5f\u5bc6', '\x1b[4G\x1b[P', '\u6a5f\u5bc6'],
    ['by a blank beyond the right margin', '\x1b[?7l\x1b[1;35Hneedle', ' ', 'needle'],
    ['by a letter beyond the right margin', '\x1b[?7l\x1b[1;35Hneedle', 'x', 'needle'],
    [
      'by a blank beyond the right margin, after words elsewhere',
      '\x1b[?7l\x1b[1;35Hneedl\x1b[2;1Hx\x1b[1;40He',
      ' ',
      'needle',
    ],
  ])('finds a word that was visible and then changed %s', (_how, shown, output, word) => {
    const writes: readonly Write[] = [
      [0, shown],
      [0.4, output],
      [0.5, '\r\x1b[K'],
    ];
    const { texts } = readWrites(writes);
    expect(
      texts.some((text) => text.split(' ').includes(word)),
      JSON.stringify(texts),
    ).toBe(true);
  });

  it('reads what stood in columns as it was seen', () => {
    expect(readWrites([[0, '\x1b[2;3Hrm\x1b[2;6H-rf']]).texts).toEqual(['  rm -rf']);
  });

  it('gives a row the second of its last change, and gives it out once it is quiet', () => {
    const rows: unknown[] = [];
    const journal = new RowJournal({ columns: 40, rows: 5, onRow: (row) => rows.push(row) });
    journal.write(1, 'hello');
    journal.write(1.4, ' world');
    journal.tick(1.8);
    expect(rows).toEqual([]);
    journal.tick(1.9);
    expect(rows).toEqual([{ at: 1.4, text: 'hello world', isAlternate: false }]);
  });

  it('says the same however the output is cut where a wide character has no room', () => {
    const begin: Write = [0, '\x1b[?7lkubectl get pods日本'];
    for (const piece of ['\u{1f468}\u200d\u{1f469}', '\u{1f468}x', '\u{1f468}\u{1f469}x']) {
      const cut = Array.from(piece, (character): Write => [1, character]);
      expect(readWrites([begin, ...cut], 20, 5).rows, piece).toEqual(
        readWrites([begin, [1, piece]], 20, 5).rows,
      );
    }
  });

  it('says the same however the output of one second is cut', () => {
    const seed = runSeed();
    const random = createRandom(seed);
    for (let round = 0; round < 200; round += 1) {
      const pieces = Array.from({ length: 40 }, () => terminalPiece(random));
      const whole = pieces.map((text, index): Write => [Math.floor(index / 8), text]);
      const cut = whole.flatMap(([seconds, text]) =>
        Array.from(text, (character): Write => [seconds, character]),
      );
      expect(readWrites(cut, 20, 5).rows, `seed ${seed}`).toEqual(readWrites(whole, 20, 5).rows);
    }
  });

  it('does not depend on how often the time is told', () => {
    const lines = castFixture('vim');
    const reported: unknown[] = [];
    const journal = new RowJournal({ columns: 80, rows: 24, onRow: (row) => reported.push(row) });
    for (const line of lines.slice(1)) {
      const [seconds, , text] = JSON.parse(line) as [number, string, string];
      for (const step of [0.2, 0.1, 0]) journal.tick(seconds - step);
      journal.write(seconds, text);
    }
    journal.end();
    expect(reported).toEqual(readCastLines(lines).rows);
  });

  it('survives a new size in mid-session and loses nothing by it', () => {
    const rows: string[] = [];
    const journal = new RowJournal({ columns: 40, rows: 6, onRow: ({ text }) => rows.push(text) });
    journal.write(0, 'before the change\r\n日本語');
    for (const [columns, height] of [
      [10, 2],
      [1, 1],
      [1e9, 1e9],
      [3, 400],
      [80, 24],
    ] as const) {
      journal.resize(1, columns, height);
      journal.write(1, `at ${columns} `);
    }
    journal.end();
    expect(rows).toContain('before the change');
    expect(rows).toContain('日本語');
    expect(journal.screen.columns).toBe(80);
  });

  it('reads what real programs showed, at the second', () => {
    const vim = castFixture('vim');
    // typed, then deleted
    expect(secondOf(vim, 'transient acknowledged word')).toBeDefined();
    // the user replaces the visible `kestrel7` by `falcon7`, with the vim command `:%s`
    for (const word of ['kestrel7', 'falcon7']) expect(secondOf(vim, word), word).toBeDefined();
    expect(secondOf(vim, 'kestrel7')).toBeLessThan(secondOf(vim, 'falcon7')!);
    const less = castFixture('less');
    for (const word of ['alabaster0', 'yarrow0', 'quicksilver6', 'nightjar7'])
      expect(secondOf(less, word), word).toBeDefined();
    const shell = castFixture('shell');
    // search finds a text that was visible for 50 ms, and a command before and after its correction
    for (const word of ['secret-in-a-blink', 'kubectll', 'kubectl get pods', '60'])
      expect(secondOf(shell, word), word).toBeDefined();
    const tmux = castFixture('tmux');
    for (const word of ['windowone', 'zephyr0', 'dovetail1'])
      expect(secondOf(tmux, word), word).toBeDefined();
  });

  it('knows the second of a word as well as the recording does', () => {
    const lines = castFixture('shell');
    const written = lines.slice(1).map((line) => JSON.parse(line) as [number, string, string]);
    const [at] = written.find(([, , text]) => text.includes('secret-in-a-blink'))!;
    expect(Math.abs(secondOf(lines, 'secret-in-a-blink')! - at)).toBeLessThan(0.5);
  });
});

describe('commands', () => {
  it('are what the shell marks, over wrapped rows and several lines', () => {
    const mark = (kind: string): string => `\x1b]133;${kind}\x1b\\`;
    const { commands } = readWrites([
      [0, `${mark('A')}$ ${mark('B')}`],
      [1, 'kubectl delete pod web-0 --namespace production --now\r\n'],
      [1, `${mark('C')}pod deleted\r\n${mark('D;0')}`],
      [2, `${mark('A')}$ ${mark('B')}for i in 1 2\r\n> do echo $i\r\n${mark('C')}`],
    ]);
    expect(commands.map(({ text, isGuessed }) => [text, isGuessed])).toEqual([
      ['kubectl delete pod web-0 --namespace production --now', true],
      ['for i in 1 2\n> do echo $i', false],
    ]);
  });

  it('are what the shell names with the mark', () => {
    const { commands } = readWrites([[0, '\x1b]133;C;cmdline_url=rm%20-rf%20%2Fdata\x07']]);
    expect(commands).toEqual([{ at: 0, text: 'rm -rf /data', isGuessed: false }]);
    expect(readWrites([[0, '\x1b]133;C;cmdline_url=%ff\x07']]).commands).toEqual([]);
  });

  it('are reported once if the shell marks the command that was guessed', () => {
    const run = (line: string, named: string): string =>
      `${line}\r\n\x1b]133;C;cmdline_url=${named}\x07${line}\r\n\x1b]133;D;0\x07$ `;
    const { commands } = readWrites([
      [0, '$ '],
      [1, run('ls -l', 'ls%20-l')],
      [2, run('ls -l', 'ls%20-l')],
    ]);
    expect(commands.map(({ at, text }) => [at, text])).toEqual([
      [1, 'ls -l'],
      [2, 'ls -l'],
    ]);
    // if the shell reports another command (OSC 133), the command on the screen is found, too
    const other = readWrites([
      [0, '$ '],
      [1, run('rm -rf /data', 'ls')],
    ]);
    expect(other.commands.map(({ text }) => text)).toEqual(['rm -rf /data', 'ls']);
  });

  it('are guessed behind a prompt, as they were sent off', () => {
    const { moments } = readCastLines(castFixture('shell'));
    const commands = moments.flatMap(({ command }) => (command === undefined ? [] : [command]));
    expect(commands.map(({ text }) => text)).toContain('kubectl get pods');
    expect(commands.every(({ isGuessed }) => isGuessed)).toBe(true);
  });

  it('are not guessed from what a program prints at once, or on the alternate screen', () => {
    expect(readWrites([[0, 'total $ 12 items\r\n']]).commands).toEqual([]);
    expect(
      readWrites([
        [0, '\x1b[?1049h$ '],
        [1, 'ls\r\n'],
      ]).commands,
    ).toEqual([]);
  });

  it('come of marks that are forged, never closed or endless without harm', () => {
    for (const output of [
      '\x1b]133;C\x07',
      '\x1b]133;B\x07\x1b[2J\x1b]133;C\x07',
      `\x1b]133;C;cmdline_url=${'a'.repeat(1e6)}`,
    ])
      expect(readWrites([[0, output]]).commands.every(({ text }) => text.length <= 4096)).toBe(true);
  });
});

describe('written text', () => {
  function written(writes: readonly Write[]): readonly string[] {
    const texts: string[] = [];
    const journal = new RowJournal({
      columns: 40,
      rows: 6,
      onRow: () => undefined,
      onWritten: ({ text }) => texts.push(text),
    });
    for (const [seconds, text] of writes) journal.write(seconds, text);
    journal.end();
    return texts;
  }

  it.each([
    ['of other rows', '\x1b[3;1Hthe heron config\x1b[4;1Hreplicas: 4\r\n'],
    ['of other rows in any column', 'heron\x1b[6;30H1,5\x1b[2;3Hnext\r\n'],
    ['of another screen', '\x1b[?1049h\x1b[Hheron config\x1b[?1049lls\r\n'],
    ['behind blank cells', 'NAME\x1b[20GREADY\x1b[5CSTATUS\r\n'],
  ])('is not made of words %s', (_where, text) => {
    expect(written([[0, text]])).toEqual([]);
  });

  it.each([
    ['overwritten cells', 'sec\x1b[Dret\r\n', 'secret'],
    ['other rows, letter by letter', 's\x1b[2;9He\x1b[4;1Hc\x1b[3;5Hret\r\n', 'secret'],
    ['blank cells, letter by letter', 's\x1b[Ce\x1b[Cc\x1b[Cret\r\n', 'secret'],
  ])('joins a word that is divided by %s', (_what, text, word) => {
    expect(written([[0, text]])).toContain(word);
  });

  it('is one line, with a space for a tab', () => {
    expect(written([[0, 'a long co\u00adlumn of text\tand another one\r\n']])).toEqual([
      'a long column of text and another one',
    ]);
  });
});

describe('what output may cost', () => {
  it.each([
    ['scrolling', '\x1b[65535S'],
    ['repeating', 'x\x1b[65535b'],
    ['filling', '\x1b#8'],
    ['inserting', 'x\r\x1b[65535@\x1b[65535L'],
    ['tabs', '\x1b[65535I\x1b[65535Z'],
  ])('is bounded: %s', (_what, output) => {
    const budget = new WorkBudget({ free: 5e7, perCharacter: 0 });
    const journal = new RowJournal({ columns: 1000, rows: 500, onRow: () => undefined, budget });
    for (let count = 0; count < 20_000 && !journal.isStopped; count += 1) journal.write(count, output);
    // the last sequence may exceed the limit by its own work
    expect(journal.isStopped).toBe(true);
    expect(budget.spent).toBeLessThan(5e7 + 1e7);
  });

  describe('after the budget of the screen', () => {
    function read(outputs: readonly string[], columns = 1000): { texts: string[]; journal: RowJournal } {
      const texts: string[] = [];
      const journal = new RowJournal({
        columns,
        rows: 500,
        onRow: () => undefined,
        onWritten: ({ text }) => texts.push(text),
        budget: new WorkBudget({ free: 3e6, perCharacter: 0 }),
      });
      journal.write(0, '\x1b#8'.repeat(100));
      expect(journal.isStopped).toBe(true);
      for (const output of outputs) journal.write(1, output);
      journal.end();
      return { texts, journal };
    }

    it('output is read as it was written', () => {
      const { texts, journal } = read([
        'a plain ',
        'line\r\n',
        'sec\x1b[Dret\r\n',
        'one\x1b[9Gtwo\r\n',
        '\x1b[8mconcealed\x1b[m\n',
        '\x1b]2;a title\x07',
        'last',
      ]);
      for (const text of ['a plain line', 'secret', 'one two', 'concealed', '2;a title', 'last'])
        expect(texts).toContain(text);
      expect(journal.isExhausted).toBe(false);
      expect(journal.hidden).toBe('concealed'.length);
    });

    it('a long line is read in pieces', () => {
      const { texts } = read(['word '.repeat(20_000), 'end']);
      expect(texts.join(' ')).toContain('word end');
      expect(texts.every((text) => text.length < 10_000)).toBe(true);
    });

    it('a bounded number of characters is read', () => {
      const line = `${'x'.repeat(1023)}\n`;
      const { texts, journal } = read(Array.from({ length: 5000 }, () => line));
      expect(texts).toHaveLength(4096);
      expect(journal.isExhausted).toBe(true);
    });
  });

  it.each(['\x1b]0;', '\x1bP', '\x1b_', '\x1b[', '\x1b]133;C;cmdline_url='])(
    'is text, and bounded, for %j without end',
    (begin) => {
      const rows: string[] = [];
      const journal = new RowJournal({ columns: 80, rows: 24, onRow: ({ text }) => rows.push(text) });
      journal.write(0, begin);
      for (let count = 0; count < 100; count += 1) journal.write(0, '1;'.repeat(10_000));
      journal.write(0, '\x18done');
      journal.end();
      const text = rows.join('');
      expect(text.startsWith(`${begin.slice(2)}1;1;`)).toBe(true);
      expect(text.endsWith('1;done')).toBe(true);
      expect(text.length).toBeLessThan(2.2e6);
    },
  );
});

describe('window titles', () => {
  function hiddenIn(outputs: readonly string[]): number {
    const journal = new RowJournal({ columns: 80, rows: 24, onRow: () => undefined });
    for (const output of outputs) journal.write(0, output);
    journal.end();
    return journal.hidden;
  }
  const title = (text: string): string => `\x1b]0;${text}\x07`;

  it('of a shell count as visible', () => {
    const prompt = (at: number): string =>
      `${title(`me@host: ~/project/${at % 40}`)}me@host:~/project/${at % 40}$ make all\r\nnothing to do\r\n`;
    expect(hiddenIn(Array.from({ length: 500 }, (_, at) => prompt(at)))).toBe(0);
  });

  it('that always differ are hidden text, however much is visible', () => {
    const secret = (at: number): string =>
      title(`${at} a line of a long document that nobody shall see `.repeat(4));
    const some = Array.from({ length: 100 }, (_, at) => `${secret(at)}a visible line\r\n`);
    expect(hiddenIn(some)).toBeGreaterThan(10_000);
    const much = Array.from({ length: 1000 }, (_, at) => `${secret(at)}${'visible text '.repeat(20)}\r\n`);
    expect(hiddenIn(much)).toBeGreaterThan(50_000);
  });
});
