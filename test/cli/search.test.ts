import { describe, expect, it } from 'vitest';
import { NOT_INDEXED } from '../../src/search/secret-notice.ts';
import { runCommand as run } from '../support/run-command.ts';
import { createRig, HEADER, until, uploadWhole } from '../tsrecorder/recorder-rig.ts';

describe('tailcast search', () => {
  it('prints sessions with their hits, links to two seconds before, and exits like grep', async () => {
    await using rig = await createRig({ searchText: 'all' });
    await uploadWhole(rig.recorder, `${HEADER}[7.5,"o","a needle \\u001b[31mhere\\r\\n"]\n`);
    const recorder = ['--recorder', rig.recorder.url];
    const { out } = await until(async () => {
      const found = await run('search', 'needle', 'ns:prod', ...recorder);
      return found.code === 0 ? found : undefined;
    });
    expect(out).toMatch(/^nGATE1CNTRL_\S+ {2}\S+ {2}a@example\.com {2}prod\/web-0 {2}completed {2}sh -i\n/);
    expect(out).toContain('    7.5s  a needle here\n');
    expect(out).toMatch(/http:\S+#\/r\/nGATE1CNTRL_\S+\?t=5\n$/);
    const json = await run('search', '"needle here"', '--json', ...recorder);
    expect(JSON.parse(json.out)).toMatchObject({ hits: [{ at: 7.5, marks: [[2, 13]] }], more: false });
    const nothing = await run('search', 'after:30d', "it's", 'absent', ...recorder);
    expect(nothing).toMatchObject({ code: 1, out: '' });
    expect(nothing.err).toContain(
      `No recording matches. The search covered the indexed recordings of ${rig.recorder.url} with after:30d:`,
    );
    expect(nothing.err).toContain(`${NOT_INDEXED}\n`);
    expect(nothing.err).toContain("Search for a prefix: tailcast search 'after:30d ");
    expect(nothing.err).toMatch(/absent\*'\n$/);
    const field = await run('search', 'user:nobody', 'ns:prod', '--json', ...recorder);
    expect(field).toMatchObject({ code: 1, out: '' });
    expect(field.err).toMatch(
      /of all times:.*\n.*\nSearch with fewer terms: tailcast search 'user:nobody\*'\n$/,
    );
    const secret = await run('search', 'AKIAABCDEFGHIJKLMNOP', ...recorder);
    expect(secret).toMatchObject({ code: 1, out: '' });
    expect(secret.err).toMatch(
      /\nValues that look like secrets are not indexed\. Search for a word next to the value/,
    );
    const option = await run('search', ...recorder, '--', 'sh -i', 'user:a');
    expect(option).toMatchObject({ code: 0 });
    // the counts may be a few seconds old
    await expect
      .poll(() => run('index', 'status', ...recorder), { timeout: 20_000 })
      .toMatchObject({ code: 0, out: expect.stringContaining('state     ready\nsessions  1, of which 0') });
  });

  it('says how to find a redacted value, if recordings have one', async () => {
    await using rig = await createRig({ searchText: 'all' });
    const recorder = ['--recorder', rig.recorder.url];
    await uploadWhole(rig.recorder, `${HEADER}[7.5,"o","password=hunter2 needle\\r\\n"]\n`);
    await until(async () => ((await run('search', 'needle', ...recorder)).code === 0 ? true : undefined));
    const { code, err } = await run('search', 'hunter2', ...recorder);
    expect(code).toBe(1);
    expect(err).toContain(
      'The index has [secret] instead of such values. List recordings with redacted values',
    );
    const [, listed = ''] = /tailcast search (\w+)/.exec(err) ?? [];
    const { out } = await run('search', listed, ...recorder);
    expect(out).toContain('password=[secret] needle');
    const [id = ''] = out.split(' ');
    const text = await run('export', id, '--format', 'txt', '--output', '-', ...recorder);
    expect(text.out).toContain('password=hunter2');
  });

  it('says what is wrong with a query, and that a recorder is not there', async () => {
    const wrong = await run('search', 'usr:alice', '--recorder', 'http://127.0.0.1:9');
    expect(wrong).toMatchObject({ code: 2, out: '' });
    expect(wrong.err).toContain('did you mean user:?');
    const gone = await run('search', 'word', '--recorder', 'http://127.0.0.1:9');
    expect(gone).toMatchObject({ code: 2, out: '' });
    expect(gone.err).toMatch(/^tailcast: .*127\.0\.0\.1:9.*\n .*\[RECORDER_UNREACHABLE\]\n$/);
    await using rig = await createRig();
    const without = await run('search', 'word', '--recorder', rig.recorder.url);
    expect(without).toMatchObject({ code: 2 });
    expect(without.err).toContain('no index');
  });
});
