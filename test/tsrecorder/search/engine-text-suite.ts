/**
 * Text in many scripts that every search engine must find. The engines must not interpret text in queries and names as
 * query syntax. The row journal converts output to text, as for recordings.
 */
import { expect, it } from 'vitest';
import { QueryError } from '../../../src/search/query.ts';
import { readWrites } from '../../support/search-text.ts';
import { doc, moment, query, type TestedEngine, putAll } from './engine-suite.ts';

/** Text on a screen, queries that find it, and queries that do not. Each text is on its own row of its session. */
const PRINTED: readonly {
  readonly what: string;
  readonly output: string;
  readonly finds: readonly string[];
  readonly misses: readonly string[];
}[] = [
  {
    what: 'a part of words without spaces',
    output: '東京都庁で会議',
    finds: ['東京', '京都', '都庁で', '会議', '議', '東京都庁で会議'],
    misses: ['京東', '都会', '東京会議'],
  },
  {
    what: 'wide cells that the margin cuts',
    output: `${'x'.repeat(39)} 漢字テスト done`,
    finds: ['漢字テスト', '字テ', '"漢字テスト done"'],
    misses: ['漢テ'],
  },
  {
    what: 'wide cells of which some were written again',
    output: '日本語\x1b[5D本語\x1b[K終',
    finds: ['終'],
    misses: ['終日'],
  },
  { what: 'other syllables', output: '한국어 서버', finds: ['한국', '국어', '서버'], misses: ['국한'] },
  {
    what: 'marks beside their letters',
    output: 'cafe\u0301 nai\u0308ve',
    finds: ['caf\u00e9', 'cafe\u0301', 'CAF\u00c9', '"café naïve"', 'na\u00efve'],
    misses: ['cafe', 'naive'],
  },
  {
    what: 'letters with marks in them',
    output: 'r\u00e9sum\u00e9 \u212b',
    finds: ['re\u0301sume\u0301', 'r\u00e9sum\u00e9', '\u00e5'],
    misses: ['resume'],
  },
  {
    what: 'words around joined emoji',
    output: 'family \u{1f468}\u200d\u{1f469}\u200d\u{1f467} arrived \u{1f469}\u{1f3fd}\u200d\u{1f4bb} today',
    finds: ['family', 'arrived', 'today'],
    misses: ['familyarrived'],
  },
  {
    what: 'letters beside emoji',
    output: 'ok\u{1f44d}done \u2764\ufe0f love',
    finds: ['ok', 'done', 'love'],
    misses: ['okdone'],
  },
  {
    what: 'words from right to left',
    output: 'שלום עולם',
    finds: ['שלום', 'עולם', '"שלום עולם"'],
    misses: ['םולש', '"עולם שלום"'],
  },
  {
    what: 'joined letters from right to left',
    output: 'خطأ في الخادم',
    finds: ['خطأ', 'الخادم', '"خطأ في الخادم"', 'خطا\u0654'],
    misses: ['مداخلا'],
  },
  {
    what: 'words from right to left in a command',
    output: 'rm -rf ملفات/old',
    finds: ['"rm -rf ملفات"', 'ملفات', 'old'],
    misses: ['"old ملفات"'],
  },
  {
    what: 'marks of other scripts',
    output: 'हिन्दी ไทยแลนด์',
    finds: ['हिन्दी', 'ไทย', 'แลนด์'],
    misses: ['हिन्'],
  },
  {
    what: 'wide letters and ligatures',
    output: 'Ｋｕｂｅ ﬁle Ⅻ',
    finds: ['kube', 'file', 'xii'],
    misses: ['ku'],
  },
  {
    what: 'letters beyond the first plane',
    output: '𝐤𝐮𝐛𝐞 𐐨𐐩',
    finds: ['kube', '𐐀𐐁', '𐐨𐐩'],
    misses: ['𐐨'],
  },
];

/** All ASCII characters except letters, digits and spaces, and other characters with a meaning in query languages. */
const SIGNS = [
  ...Array.from({ length: 0x80 }, (_, code) => String.fromCharCode(code)).filter((sign) =>
    /[^\w\s"\\]/.test(sign),
  ),
  '\u0080',
  '\u2028',
  '\ufeff',
  '\ud83d',
  '\udc4d',
  '\u200d',
];

/** Words of query languages, and text that looks like syntax. */
const PIECES = [
  'alpha AND beta',
  'alpha NOT beta',
  'alpha NEAR beta',
  'alpha NEAR/2 beta',
  'alpha TO beta',
  'alpha" OR "beta',
  `alpha' OR 1=1 -- beta`,
  'alpha:beta',
  '{alpha beta}',
  '[alpha TO beta]',
  '/alpha.*beta/',
  'alpha~2 beta',
  'alpha^9 beta',
  '{"match_all":{}} alpha beta',
  '"}},{"match_all":{}},{"term":{"alpha":"beta',
  '${alpha} beta',
  '{{alpha}} beta',
  '<alpha>beta</alpha>',
];

/** Quotes a text so that the parser returns the same text. */
const quoted = (text: string): string => `"${text.replaceAll(/["\\]/g, '\\$&')}"`;

export function engineTextSuite(makeEngine: () => Promise<TestedEngine>): void {
  async function withSessions(
    rows: readonly string[],
    act: (find: (text: string) => Promise<readonly string[]>, engine: TestedEngine) => Promise<void>,
  ): Promise<void> {
    const engine = await makeEngine();
    try {
      const sessions = rows.map((row, at) => ({
        doc: doc(`n_${at}`),
        moments: [moment(1, row)],
        partial: false,
      }));
      await putAll(engine.writer, sessions);
      await engine.settled();
      await act(
        async (text) =>
          (await engine.reader.find(query(text), 'everything', { limit: 100 })).sessions.map(({ id }) => id),
        engine,
      );
    } finally {
      await engine.close();
    }
  }

  it('finds words of all scripts as they were on the screen, and no others', async () => {
    const rows = PRINTED.map(({ output }) => readWrites([[1, output]]).texts.join('\n'));
    await withSessions(rows, async (find) => {
      for (const [at, { what, finds, misses }] of PRINTED.entries()) {
        for (const text of finds) expect(await find(text), `${what}: ${text}`).toContain(`n_${at}`);
        for (const text of misses) expect(await find(text), `${what}: ${text}`).not.toContain(`n_${at}`);
      }
      // hits contain the complete rows
      expect(rows[6]).toBe(PRINTED[6]!.output);
    });
  });

  it('finds text with any special character, and does not treat the character as syntax', async () => {
    const rows = SIGNS.map((sign, at) => `left${at}${sign}right${at}`);
    await withSessions(rows, async (find) => {
      for (const [at, sign] of SIGNS.entries()) {
        const name = JSON.stringify(sign);
        const text = `left${at}${sign}right${at}`;
        expect(await find(quoted(text)), name).toEqual([`n_${at}`]);
        expect(await find(quoted(`right${at}${sign}left${at}`)), name).toEqual([]);
        // without quotes, the index either rejects the text as a query, or finds the session with this text
        const typed = await find(text).catch((error: unknown) => {
          expect(error, name).toBeInstanceOf(QueryError);
          return [`n_${at}`];
        });
        expect(typed, name).toEqual([`n_${at}`]);
        for (const alone of [sign, `${sign}left${at}`, `left${at}${sign}`, sign.repeat(3)]) {
          const found = await find(alone).catch((error: unknown) => {
            expect(error, name).toBeInstanceOf(QueryError);
            return [];
          });
          // the query finds no session with another special character, unless the query is empty or contains the
          // operator `!`
          if (sign !== '!' && alone.trim() !== '')
            expect(
              found.filter((id) => id !== `n_${at}`),
              JSON.stringify(alone),
            ).toEqual([]);
        }
      }
    });
  });

  it('treats keywords and pieces of query languages as text', async () => {
    const rows = [...PIECES.map((piece, at) => `begin${at} ${piece}`), 'alpha beta', 'beta', 'other'];
    await withSessions(rows, async (find) => {
      for (const [at, piece] of PIECES.entries()) {
        expect(await find(quoted(`begin${at} ${piece}`)), piece).toEqual([`n_${at}`]);
        expect(await find(quoted(`absent ${piece}`)), piece).toEqual([]);
        const typed = await find(`begin${at} ${piece}`).catch((error: unknown) => {
          expect(error, piece).toBeInstanceOf(QueryError);
          return [];
        });
        expect(
          typed.filter((id) => id !== `n_${at}`),
          piece,
        ).toEqual([]);
      }
    });
  });

  it('treats wildcards and expressions in names as plain characters', async () => {
    const engine = await makeEngine();
    const names = [
      'web-1',
      'web-2',
      'we?-1',
      'web*x',
      'web.*',
      '[w]eb-1',
      'web-1\u0000',
      'w%b-1',
      'w_b-1',
      '#0',
      '\\',
    ];
    try {
      await putAll(
        engine.writer,
        names.map((pod, at) => ({
          doc: doc(`n_${at}`, { pod, namespace: `${pod}#`, user: `${pod}@x`, tags: [`tag:${pod}`] }),
          moments: [],
          partial: false,
        })),
      );
      await engine.settled();
      const find = async (text: string, limit = 50): Promise<readonly string[]> =>
        (await engine.reader.find(query(text), 'everything', { limit })).sessions
          .map(({ id }) => id)
          .toSorted();
      for (const [at, pod] of names.entries()) {
        const id = `n_${at}`;
        for (const [field, value] of [
          ['pod', pod],
          ['ns', `${pod}#`],
          ['user', `${pod}@x`],
          ['tag', `tag:${pod}`],
        ] as const) {
          expect(await find(`${field}:${quoted(value)}`), `${field} ${value}`).toEqual([id]);
          const begun = names.flatMap((other, number) => (other.startsWith(pod) ? [`n_${number}`] : []));
          if (field === 'pod') expect(await find(`pod:${quoted(pod)}*`), pod).toEqual(begun.toSorted());
          const may = { user: 'user', ns: 'namespace', tag: 'tag' } as const;
          if (field === 'pod') continue;
          const found = await engine.reader.find(query(''), [{ kind: may[field], value }], { limit: 50 });
          expect(
            found.sessions.map((session) => session.id),
            `${field} ${value}`,
          ).toEqual([id]);
        }
      }
      for (const nothing of [
        'pod:w?b-1',
        'pod:we[b]-1',
        'pod:/web.*/',
        'pod:w*b-1',
        'pod:_exists_',
        'id:n_?',
        'id:n_1#0',
      ])
        expect(await find(nothing), nothing).toEqual([]);
    } finally {
      await engine.close();
    }
  });
}
