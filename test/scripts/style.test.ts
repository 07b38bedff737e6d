import { describe, expect, it } from 'vitest';
import { compareCounts, unitOf, violationsOf } from '../../scripts/check-style.ts';
import { proseOf } from '../../scripts/prose.ts';
import { codeBelow, createRandom, sample, sentencesOf } from '../../scripts/sample-sentences.ts';

const rulesOf = (file: string, source: string): readonly string[] =>
  violationsOf(file, source).map(({ rule }) => rule);

describe('the style check', () => {
  it.each([
    ['What waits then stays on disk.', ['relative-clause']],
    ['Each client has one slot. Which slot is free decides the caller.', ['relative-clause']],
    ['and that is said', ['passive-speech']],
    ['output that is no text', ['negated-noun']],
    ['For which the recorder locks recordings; 0 for not at all.', ['fragment']],
    ['some 40 ms', ['calque']],
    ['Somebody for whom no rule counts sees an empty list.', ['nameless-person', 'nameless-person']],
    ['the first kept connection', ['kept-connection']],
    ['the answer of the recorder', ['answer']],
  ])('reports in a comment: %s', (text, rules) => {
    expect(rulesOf('src/x/a.ts', `/** ${text} */\nexport const A = 1;\n`)).toEqual(rules);
    expect(rulesOf('docs/x.md', `${text}\n`)).toEqual(rules);
  });

  it.each([
    'Which recorders have a slot?',
    'The gateway answers heartbeats, which every client sends.',
    'Sends `what is told` to the recorder.',
    'It needs the Lease, so it waits until any running operator releases it.',
  ])('accepts: %s', (text) => {
    expect(rulesOf('src/x/a.ts', `// ${text}\n`)).toEqual([]);
    expect(rulesOf('docs/x.md', `- ${text}\n`)).toEqual([]);
  });

  it('accepts headings with what, who and which', () => {
    expect(rulesOf('docs/x.md', '## Who may watch what\n\nWho may watch.\n')).toEqual(['relative-clause']);
  });

  it('reads strings that people read, of the program only', () => {
    const source = "fail('the recorder was told that nobody is there');\nread('x', 'utf8');\n";
    expect(rulesOf('src/x/a.ts', source)).toEqual(['nameless-person', 'passive-speech']);
    expect(rulesOf('test/x/a.ts', source)).toEqual([]);
  });

  it('reports identifiers, long lines, long rows and long cells', () => {
    expect(rulesOf('src/x/a.ts', 'const told = 1;\n')).toEqual(['identifier']);
    expect(rulesOf('src/x/a.ts', `const a = '${'x'.repeat(120)}';\n`)).toEqual(['line-length']);
    expect(rulesOf('docs/x.md', `| a | ${'x'.repeat(200)} |\n`)).toEqual(['table-row']);
    expect(rulesOf('docs/x.md', `| a | ${'x '.repeat(13)} |\n`)).toEqual(['cell']);
    expect(rulesOf('docs/x.md', '```\nWhat is told\n| a |\n```\n')).toEqual([]);
  });

  it('finds the line of a paragraph', () => {
    const found = proseOf('src/x/a.ts', 'const a = 1;\n/**\n * One.\n *\n * Two\n * lines.\n */\n');
    expect(found.map(({ line, text }) => [line, text])).toEqual([
      [3, 'One.'],
      [5, 'Two lines.'],
    ]);
  });
});

describe('the baseline', () => {
  it('may only shrink', () => {
    expect(compareCounts({ a: 2, b: 2, c: 1 }, { a: 3, b: 1, d: 1 })).toEqual({
      grown: ['a', 'd'],
      shrunk: ['b', 'c'],
    });
  });

  it('counts per folder, and per page', () => {
    expect(unitOf('docs/operations.md')).toBe('docs/operations.md');
    expect(unitOf('docs/adr/0001-dependencies.md')).toBe('docs/adr');
    expect(unitOf('src/proxy/gate/gate.ts')).toBe('src/proxy/gate');
    expect(unitOf('src/operator/queue.ts')).toBe('src/operator');
    expect(unitOf('src/kube/status.ts')).toBe('src/kube');
    expect(unitOf('src/errors.ts')).toBe('src');
  });
});

describe('the sample of sentences', () => {
  it('splits paragraphs, but not inside of code spans', () => {
    expect(sentencesOf('One two three four. Five six seven `a. B` eight. Too short.')).toEqual([
      'One two three four.',
      'Five six seven `a. B` eight.',
    ]);
    expect(sentencesOf('An error of the OS, e.g. EADDRINUSE.')).toEqual([
      'An error of the OS, e.g. EADDRINUSE.',
    ]);
  });

  it('shows the code below a comment', () => {
    const source = '/**\n * One.\n *\n * Two.\n */\n\n#a = 1;\n// Three.\n';
    expect([2, 4, 8].map((line) => codeBelow(source, line))).toEqual(['#a = 1;', '#a = 1;', undefined]);
  });

  it('is the same for the same seed', () => {
    const items = Array.from({ length: 50 }, (_, index) => index);
    const first = sample(items, 10, createRandom(1));
    expect(sample(items, 10, createRandom(1))).toEqual(first);
    expect(sample(items, 10, createRandom(2))).not.toEqual(first);
    expect(new Set(first).size).toBe(10);
  });
});
