/** Rules with patterns and actions, over real uploads, the real index process and webhooks on loopback. */
import { Registry } from 'prom-client';
import { describe, expect, it } from 'vitest';
import { parseQuery } from '../../../../src/search/query.ts';
import type { AlertRule } from '../../../../src/tsrecorder/search/alerts/alert-file.ts';
import type { AlertSettings } from '../../../../src/tsrecorder/search/alerts/alerts.ts';
import { createRig, HEADER, openUpload, until, type Rig } from '../../recorder-rig.ts';
import { KEY, openReceiver } from './webhook-receiver.ts';

const line = (text: string, at = 1): string => `${JSON.stringify([at, 'o', text])}\n`;

function rulesOf(
  ...rules: readonly (Omit<AlertRule, 'query'> & { readonly query?: string })[]
): AlertSettings {
  return {
    rules: rules.map(({ query, ...rule }) => ({
      ...rule,
      query: query === undefined ? { clauses: [] } : parseQuery(query, 0),
    })),
    webhooks: new Map(),
    giveUpMs: 3_600_000,
  };
}

async function reviewOf(
  rig: Rig,
): Promise<{ tags: string[]; comments: { text: string; by: string; seconds?: number }[] }> {
  const [recording] = await rig.list();
  if (recording === undefined) return { tags: [], comments: [] };
  const { body } = await rig.get(`/api/v1/recordings/${recording.id}/review`);
  return JSON.parse(body) as never;
}

describe('a rule with the action mark', () => {
  it('writes a comment at the moment of the match and a tag, once', async () => {
    await using rig = await createRig({
      searchText: 'commands',
      alerts: rulesOf(
        { name: 'aws-key', pattern: { in: 'output', source: 'AKIA[0-9A-Z]{16}' }, action: 'mark' },
        { name: 'other', query: 'ns:dev', pattern: { in: 'output', source: 'AKIA' }, action: 'mark' },
        { name: 'shell', pattern: { in: 'command', source: '^sh -i$' }, action: 'mark' },
      ),
    });
    const upload = openUpload(rig.recorder);
    upload.write(HEADER);
    upload.write(line('hay\r\n', 1));
    upload.write(line('a AKIAABCDEFGHIJKLMNOP b\r\n', 7.5));
    const review = await until(async () => {
      const found = await reviewOf(rig);
      return found.tags.length === 2 ? found : undefined;
    });
    expect(review.tags).toEqual(['aws-key', 'shell']);
    expect(review.comments.find(({ by }) => by === 'rule aws-key')).toMatchObject({
      text: 'Rule aws-key matched.',
      seconds: 7.5,
    });
    upload.write(line('AKIAABCDEFGHIJKLMNOP again\r\n', 9));
    upload.end();
    await upload.over;
    await until(async () => {
      const { body } = await rig.get('/api/v1/index');
      const { state, sessions } = JSON.parse(body) as { state: string; sessions: number };
      return state === 'ready' && sessions === 1 ? true : undefined;
    });
    expect((await reviewOf(rig)).comments).toHaveLength(2);
  });
});

describe('a rule with a pattern', () => {
  it('notifies a webhook with the matched text, without secrets', async () => {
    await using receiver = await openReceiver();
    const settings = rulesOf({
      name: 'dump',
      pattern: { in: 'output', source: String.raw`(?i)password=\S+` },
      webhook: 'hook',
    });
    await using rig = await createRig({
      searchText: 'all',
      alerts: {
        ...settings,
        webhooks: new Map([
          [
            'hook',
            { target: { url: receiver.url, keys: [KEY] }, scope: 'everything', format: 'json', text: true },
          ],
        ]),
      },
    });
    const upload = openUpload(rig.recorder);
    upload.write(HEADER);
    upload.write(line('export PASSWORD=hunter2hunter2\r\n', 3));
    const [alert] = await until(async () => (receiver.received.length > 0 ? receiver.received : undefined));
    expect(alert!.data).toMatchObject({ rule: 'dump', at: 3, query: String.raw`output=/(?i)password=\S+/` });
    expect(alert!.raw).not.toContain('hunter2');
    upload.end();
    await upload.over;
  });

  // Each row is output that contains the word, either visibly on the screen or only in the text that the program wrote.
  it.each([
    ['an unended control string', '\u001bPq needle'],
    ['a long title', `\u001b]0;${'x'.repeat(5000)} needle`],
    ['pieces between cursor movements', 'nee\u001b[10;1H\u001b[1;4Hdle'],
    ['characters without width', 'n\u200be\u200be\u200bd\u200bl\u200be'],
    ['invisible text', '\u001b[8mneedle\u001b[0m'],
    ['line drawing', '\u001b(0needle\u001b(B'],
    ['text that is erased at once', 'needle\r\u001b[2K'],
    ['the alternate screen', '\u001b[?1049hneedle\u001b[?1049l'],
    ['two writes', 'nee'],
  ])('finds text in %s', async (_name, text) => {
    await using rig = await createRig({
      searchText: 'all',
      alerts: rulesOf({ name: 'found', pattern: { in: 'output', source: 'needle' }, action: 'mark' }),
    });
    const upload = openUpload(rig.recorder);
    upload.write(HEADER);
    upload.write(line(text));
    if (text === 'nee') upload.write(line('dle', 1.2));
    upload.write(line('\r\n$ ', 2));
    expect(await until(async () => ((await reviewOf(rig)).tags.includes('found') ? true : undefined))).toBe(
      true,
    );
    upload.end();
    await upload.over;
  });

  it('still matches text after a session has used up its share of the index', async () => {
    await using rig = await createRig({
      searchText: 'all',
      alerts: rulesOf({ name: 'found', pattern: { in: 'output', source: 'needle' }, action: 'mark' }),
    });
    const upload = openUpload(rig.recorder);
    upload.write(HEADER.replace('"width":80,"height":24', '"width":1000,"height":500'));
    // costly control sequences exhaust the budget, and the output after them has more text than the index reads
    upload.write(line('\u001b#8'.repeat(2000)));
    for (let at = 0; at < 90; at += 1) upload.write(line(`${'hay '.repeat(16_000)}\r\n`, 2));
    upload.write(line('\u001b]0;a needle\u0007\r\n', 5));
    expect(await until(async () => ((await reviewOf(rig)).tags.includes('found') ? true : undefined))).toBe(
      true,
    );
    upload.end();
    await upload.over;
  });
});

describe('a rule that is too slow', () => {
  it('is disabled and reported, and the other rules continue', async () => {
    const registry = new Registry();
    await using rig = await createRig({
      searchText: 'all',
      registry,
      alerts: rulesOf(
        { name: 'slow', pattern: { in: 'output', source: 'a.{1,450}b.{1,450}c' }, action: 'mark' },
        { name: 'found', pattern: { in: 'output', source: 'needle' }, action: 'mark' },
      ),
    });
    const upload = openUpload(rig.recorder);
    upload.write(HEADER);
    let seed = 1;
    const next = (): string => 'abd '[(seed = (seed * 1_103_515_245 + 12_345) % 2_147_483_648) % 4] ?? '';
    for (let at = 0; at < 60; at += 1)
      upload.write(line(`${Array.from({ length: 8000 }, next).join('')}\r\n`));
    await until(async () => {
      const metric = await registry.getSingleMetric('tailcast_recorder_rules_slow')!.get();
      return metric.values[0]?.value === 1 ? true : undefined;
    });
    upload.write(line('a needle\r\n', 5));
    expect(await until(async () => ((await reviewOf(rig)).tags.includes('found') ? true : undefined))).toBe(
      true,
    );
    const { tags, comments } = await reviewOf(rig);
    expect(tags).not.toContain('slow');
    expect(comments.map(({ text }) => text)).toContain(
      'Rule slow was switched off for this session, because its pattern is too slow.',
    );
    upload.end();
    await upload.over;
  });
});
