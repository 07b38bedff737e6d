import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { findPhrase, indexText, phraseOf, tokenize } from '../../src/search/tokens.ts';

const texts = (text: string): readonly string[] => tokenize(text).map((token) => token.text);

function marks(text: string, query: string, isPrefix = false): readonly string[] {
  return findPhrase(tokenize(text), phraseOf(query, isPrefix)).map(([start, end]) => text.slice(start, end));
}

describe('words', () => {
  it('are runs of letters, digits and _, in lower case', () => {
    expect(texts('Kubectl get-pods 10.0.0.1 /etc/passwd store_failed')).toEqual([
      'kubectl',
      'get',
      'pods',
      '10',
      '0',
      '0',
      '1',
      'etc',
      'passwd',
      'store_failed',
    ]);
  });

  it('are pairs in scripts without spaces', () => {
    expect(texts('日本語')).toEqual(['日本', '本語', '語']);
    for (const part of ['日本', '本語', '語', '日', '日本語'])
      expect(marks('x日本語y', part), part).toHaveLength(1);
  });

  it('are the same however they are composed, wide or ligated', () => {
    expect(texts('Ｋｕｂｅ ﬁle caf\u00e9')).toEqual(['kube', 'file', 'caf\u00e9']);
    expect(marks('cafe\u0301', 'caf\u00e9')).toEqual(['cafe\u0301']);
  });

  it('of other scripts are found', () => {
    for (const word of ['שלום', 'привет', 'हिन्दी', 'สวัสดี'])
      expect(marks(`a ${word} b`, word), word).toHaveLength(1);
  });

  it('stand where their marks say', () => {
    expect(marks('$ rm -rf /data', 'rm -rf')).toEqual(['rm -rf']);
    expect(marks('kubectl kubelet', 'kube', true)).toEqual(['kubectl', 'kubelet']);
  });

  it('of any text are found by any of its words', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'grapheme', maxLength: 60 }), (text) => {
        for (const { start, end } of tokenize(text)) {
          const word = text.slice(start, end);
          expect(marks(text, word).length).toBeGreaterThan(0);
        }
        expect(
          indexText(text)
            .split(/[^\w\u0080-\u{10ffff}]+/u)
            .filter((word) => word !== '')
            .map((word) => word.toLowerCase()),
        ).toEqual(texts(text));
      }),
    );
  });
});
