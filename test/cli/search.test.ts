import { describe, expect, it } from 'vitest';
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
    expect(await run('search', 'absent', ...recorder)).toMatchObject({ code: 1, out: '', err: '' });
    const secret = await run('search', 'AKIAABCDEFGHIJKLMNOP', ...recorder);
    expect(secret).toMatchObject({ code: 1, out: '' });
    expect(secret.err).toMatch(
      /^Values that look like secrets are not indexed\. Search for a word next to the value/,
    );
    const option = await run('search', ...recorder, '--', 'sh -i', 'user:a');
    expect(option).toMatchObject({ code: 0 });
    // the counts may be a few seconds old
    await expect
      .poll(() => run('index', 'status', ...recorder), { timeout: 20_000 })
      .toMatchObject({ code: 0, out: expect.stringContaining('state     ready\nsessions  1, of which 0') });
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
