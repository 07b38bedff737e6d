import { describe, expect, it } from 'vitest';
import { Moments, type Moment } from '../../src/search/moments.ts';
import { SECRET } from '../../src/secrets.ts';
import { castFixture, readCastLines } from '../support/search-text.ts';

function textOf(moments: readonly Moment[]): string {
  return moments.map(({ rows }) => rows.map(({ text }) => text).join('\n')).join('\n');
}

const HEADER = '{"version":2,"width":80,"height":24,"timestamp":1767225600}';

function cast(...events: readonly (readonly [number, string, string])[]): readonly string[] {
  return [HEADER, ...events.map((event) => JSON.stringify(event))];
}

describe('moments', () => {
  it('are small, in order and within their times', () => {
    for (const name of ['vim', 'less', 'shell', 'tmux']) {
      const { moments } = readCastLines(castFixture(name));
      expect(moments.length).toBeGreaterThan(0);
      for (const { t0, t1, rows } of moments) {
        expect(t1 - t0).toBeLessThanOrEqual(11);
        expect(rows.every(({ at }) => at >= t0 && at <= t1)).toBe(true);
      }
    }
  });

  it('hold equal rows once within ten minutes, and again after', () => {
    const lines = cast([0, 'o', 'again\r\n\x1b[2J'], [5, 'o', 'again\r\n\x1b[2J'], [700, 'o', 'again\r\n']);
    expect(textOf(readCastLines(lines).moments).match(/again/g)).toHaveLength(2);
  });

  it('never hold input', () => {
    const lines = cast([0, 'o', 'Password: '], [1, 'i', 'hunter2\r'], [2, 'o', '\r\nwelcome\r\n']);
    const { moments } = readCastLines(lines);
    expect(JSON.stringify(moments)).not.toContain('hunter2');
    expect(textOf(moments)).toContain('welcome');
  });

  it('hold commands only, or nothing, when that is asked for', () => {
    const lines = castFixture('shell');
    const commands = readCastLines(lines, 'commands').moments;
    expect(commands.map(({ command }) => command?.text)).toContain('kubectl get pods');
    expect(commands.every(({ rows }) => rows.length === 0)).toBe(true);
    expect(readCastLines(lines, 'off').moments).toEqual([]);
  });

  it('keep the beginning and the end of a session with too much text, and say so', () => {
    const moments: Moment[] = [];
    const cut = new Moments({
      text: 'all',
      limits: { maxText: 40_000 },
      onMoment: (moment) => moments.push(moment),
    });
    for (let index = 0; index < 10_000; index += 1) {
      const text = `row number ${index}`;
      cut.printed(text.length);
      cut.row({ at: index / 100, text, isAlternate: false });
    }
    cut.end();
    expect(cut.isPartial).toBe(true);
    const text = textOf(moments);
    expect(text.length).toBeLessThanOrEqual(40_000);
    expect(text).toContain('row number 0\n');
    expect(text).toContain('row number 9999');
    expect(text).not.toContain('row number 5000\n');
  });

  it('hold no more than twice what was printed, whatever rows a bomb makes of it', () => {
    const moments: Moment[] = [];
    const cut = new Moments({ text: 'all', onMoment: (moment) => moments.push(moment) });
    cut.printed(10_000);
    for (let index = 0; index < 10_000; index += 1)
      cut.row({ at: index, text: `${index}${'x'.repeat(200)}`, isAlternate: true });
    cut.end();
    expect(textOf(moments).length).toBeLessThan(2 * 10_000 + 65_536 + 10_000);
    expect(cut.isPartial).toBe(true);
  });

  it('hold a line that is printed between rows that a bomb makes', () => {
    let number = 0;
    const overwrite = (times: number): string => {
      let text = '\u001b[H';
      for (let index = 0; index < times; index += 1) text += `${String(number++).padStart(4, '0')}\u001b[H`;
      return text;
    };
    const fill = `\u001b[2J\u001b[H${'wxyz '.repeat(380)}`;
    const writes = [fill, overwrite(60), '\u001b[2J\u001b[Htopsecret\r\n', fill, overwrite(60)];
    const { moments } = readCastLines(cast(...writes.map((text, at) => [at, 'o', text] as const)));
    expect(textOf(moments)).toContain('topsecret');
  });

  it('hold no secret of a known shape, in rows or commands', () => {
    const secrets = [
      'AKIAIOSFODNN7CANARY0',
      'ghp_canary0123456789abcdefghijklmnop',
      'xoxb-1234567890-canary-abcdef',
      'eyJhbGciOiJIUzI1NiJ9.eyJjYW5hcnkiOjF9.c2lnbmF0dXJl',
      'canarypass',
    ];
    const [aws, github, slack, jwt, password] = secrets as [string, string, string, string, string];
    const lines = cast(
      [0, 'o', `key ${aws}\r\ntoken ${github}\r\nslack ${slack}\r\n`],
      [
        1,
        'o',
        `Authorization: Bearer ${jwt}\r\npostgres://app:${password}@db/x\r\nDB_PASSWORD=${password}\r\n`,
      ],
      [
        2,
        'o',
        '-----BEGIN OPENSSH PRIVATE KEY-----\r\nY2FuYXJ5Y2FuYXJ5Y2FuYXJ5\r\n-----END OPENSSH PRIVATE ' +
          'KEY-----\r\nafter\r\n',
      ],
      [3, 'o', `$ `],
      [4, 'o', `sshpass -p ${password} ssh host\r\n`],
      [5, 'o', `$ `],
      [6, 'o', `curl -u admin:${password} https://host\r\n`],
    );
    const { moments } = readCastLines(lines);
    const all = JSON.stringify(moments);
    for (const secret of [...secrets, 'Y2FuYXJ5']) expect(all, secret).not.toContain(secret);
    expect(all).toContain(SECRET);
    expect(textOf(moments)).toContain('after');
  });

  it('hide a second private key, although its first row repeats an earlier row', () => {
    const key = (line: string): string =>
      `-----BEGIN PRIVATE KEY-----\r\n${line.repeat(3)}\r\n-----END PRIVATE KEY-----\r\n`;
    const lines = cast(
      [0, 'o', key('Y2FuYXJ5Y2FuYXJ5')],
      [1, 'o', key('c2Vjb25kc2Vjb25k')],
      [2, 'o', 'after\r\n'],
    );
    const text = textOf(readCastLines(lines).moments);
    expect(text).not.toContain('Y2FuYXJ5');
    expect(text).not.toContain('c2Vjb25k');
    expect(text).toContain('after');
  });

  it('come of a cast that is broken in the middle, and say that something is missing', () => {
    const lines = [...cast([0, 'o', 'before\r\n']), '[1,"o","cut', '{}', '[2,"o","after\\r\\n"]'];
    const { moments, isPartial } = readCastLines(lines);
    expect(textOf(moments)).toBe('before\nafter');
    expect(isPartial).toBe(true);
  });

  it('are read on a screen of the size that the session has by then', () => {
    const lines = cast(
      [0, 'o', 'before'],
      [1, 'r', '20x5'],
      [2, 'o', '\x1b[2J\x1b[1;70Hab'],
      [3, 'r', '60x5'],
      [4, 'o', '\x1b[2J\x1b[1;70Hcd'],
    );
    expect(readCastLines(lines).rows.map(({ text }) => text)).toEqual([
      'before',
      `${' '.repeat(19)}ab`,
      `${' '.repeat(59)}cd`,
    ]);
  });

  it('come of a session without a terminal', () => {
    const plain = [
      HEADER.replace('"width":80,"height":24', '"width":0,"height":0'),
      '[0,"o","one\\ntwo\\n"]',
    ];
    expect(textOf(readCastLines(plain).moments)).toBe('one\ntwo');
  });
});
