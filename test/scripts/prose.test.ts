import { describe, expect, test } from 'vitest';
import { proseOf } from '../../scripts/prose.ts';
import { sentencesOf } from '../../scripts/sample-sentences.ts';

function sentencesIn(file: string, source: string): readonly string[] {
  return proseOf(file, source).flatMap(({ line, text }) =>
    sentencesOf(text).map((sentence) => `${line} ${sentence}`),
  );
}

describe('comments in YAML', () => {
  test('a sentence continues on the next comment line', () => {
    const source = [
      '# Refuses sessions that bypass the gateways. It applies to pods, services',
      '# and nodes as well.',
      'kind: Policy',
      '  # The key must be reusable. The',
      '  # node gets all tags of the key.',
      'key: ""',
    ];
    expect(sentencesIn('deploy/a.yaml', source.join('\n'))).toEqual([
      '1 Refuses sessions that bypass the gateways.',
      '1 It applies to pods, services and nodes as well.',
      '4 The key must be reusable.',
      '4 The node gets all tags of the key.',
    ]);
  });

  test('an empty line, a list item, a value and another indentation start a new paragraph', () => {
    const source = [
      '# One Docker host with a gateway',
      '#',
      '#   1. Create a file with these variables:',
      '#      FIRST, SECOND',
      '#   2. Run the command that follows',
      'port: 80 # port for uploads and viewers',
      '# Name of the existing account',
      '  # Tag of the image, if you use one',
    ];
    expect(sentencesIn('deploy/a.yaml', source.join('\n'))).toEqual([
      '1 One Docker host with a gateway',
      '3 Create a file with these variables: FIRST, SECOND',
      '5 Run the command that follows',
      '6 port for uploads and viewers',
      '7 Name of the existing account',
      '8 Tag of the image, if you use one',
    ]);
  });
});

describe('comments in scripts', () => {
  test.each([
    ['/**', ' *', ' */'],
    ['//', '//', ''],
  ])('lines of usage after %s are omitted', (start, middle, end) => {
    const usage = [
      'Builds all packages of a release.',
      '',
      '  npm run release',
      '',
      '  --output <folder>  new folder',
    ];
    const source = [start, ...usage.map((line) => `${middle} ${line}`.trimEnd()), end].join('\n');
    expect(sentencesIn('scripts/a.ts', source)).toEqual(['2 Builds all packages of a release.']);
  });

  test('a directive for a tool is not part of the comment before it', () => {
    const source =
      '// sockets keep the process alive\n// oxlint-disable-next-line no-exit -- see above\nexit();\n';
    expect(sentencesIn('scripts/a.ts', source)).toEqual(['1 sockets keep the process alive']);
  });
});
