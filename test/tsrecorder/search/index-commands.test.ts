/** `tailcast index` with a recorder and its real index: reported faults, and a rebuild. */
import { mkdir, readdir } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { describe, expect, it } from 'vitest';
import { runCommand as run } from '../../support/run-command.ts';
import { indexDirectory } from '../../../src/tsrecorder/search/recorder-search.ts';
import { parseViewRule } from '../../../src/tsrecorder/serving/viewing.ts';
import { createRig, HEADER, until, uploadWhole } from '../recorder-rig.ts';

describe('tailcast index', () => {
  it('verifies the index, reports its faults, and rebuilds it while the old index serves queries', async () => {
    await using rig = await createRig({ searchText: 'all' });
    for (const word of ['alpha', 'beta', 'gamma', 'delta'])
      await uploadWhole(rig.recorder, `${HEADER}[1,"o","${word} needle"]\n`);
    const recorder = ['--recorder', rig.recorder.url];
    await until(async () => ((await run('index', 'status', ...recorder)).code === 0 ? true : undefined));
    const verify = () => run('index', 'verify', ...recorder);
    expect(await verify()).toMatchObject({
      code: 0,
      out: '4 recordings: 0 faults; 0 are still to be indexed\n',
    });
    const ids = (await rig.list()).map(({ id }) => id);
    const directory = indexDirectory(rig.spool);
    const sessions = new DatabaseSync(join(directory, 'sessions.db'));
    sessions.prepare('DELETE FROM s WHERE id = ?').run(ids[0]!);
    sessions.prepare(`UPDATE s SET ver = 'x' || ver WHERE id = ?`).run(ids[1]!);
    sessions
      .prepare(
        `INSERT INTO s(n, id, ver, tags, nodes, kind, state, moments, partial)
         VALUES (5, 'nGONE_2026-01-01T00:00:00Z', 'v', '[]', '[]', 'exec', 'completed', 0, 0)`,
      )
      .run();
    sessions.close();
    const wrong = await verify();
    expect(wrong.code).toBe(1);
    for (const line of [
      `${ids[0]}  is not in the index`,
      `${ids[1]}  the index has an older version`,
      'nGONE_2026-01-01T00:00:00Z  is in the index and not in the store',
      '4 recordings: 3 faults; 0 are still to be indexed',
    ])
      expect(wrong.out).toContain(`${line}\n`);
    const json = await run('index', 'verify', '--json', ...recorder);
    expect(json.code).toBe(1);
    expect(JSON.parse(json.out.trim().split('\n').at(-1)!)).toEqual({
      done: true,
      checked: 4,
      faults: 3,
      pending: 0,
    });
    const rebuilt = run('index', 'rebuild', ...recorder);
    for (let count = 0; count < 20; count += 1) {
      const { body } = await rig.get('/api/v1/search?q=needle');
      expect(JSON.parse(body).sessions.length).toBeGreaterThan(0);
    }
    expect(await rebuilt).toMatchObject({ code: 0 });
    expect((await rebuilt).err).toContain('the new index answers\n');
    await until(async () => ((await verify()).code === 0 ? true : undefined));
    expect((await run('search', 'needle', ...recorder)).out.match(/needle/g)).toHaveLength(4);
    expect(await readdir(join(directory, '..'))).toEqual([basename(directory)]);
    await rig.recorder.close();
    // a cancelled query may leave a process that is still exiting
    const processes = () => process.getActiveResourcesInfo().filter((each) => each === 'ProcessWrap');
    await expect.poll(processes).toEqual([]);
  });

  it('continues a new index that a recorder has started, and removes unused folders', async () => {
    await using rig = await createRig({ searchText: 'all' });
    await uploadWhole(rig.recorder, `${HEADER}[1,"o","needle"]\n`);
    const directory = indexDirectory(rig.spool);
    await rig.recorder.close();
    // the recorder may have closed before it created the folder
    await mkdir(`${directory}.next`, { recursive: true });
    await mkdir(join(directory, '..', 'v1'));
    const again = await rig.restart();
    await until(async () => ((await readdir(join(directory, '..'))).length === 1 ? true : undefined));
    const recorder = ['--recorder', again.recorder.url];
    await until(async () => ((await run('index', 'status', ...recorder)).code === 0 ? true : undefined));
    expect(await run('index', 'verify', ...recorder)).toMatchObject({ code: 0 });
    await again.recorder.close();
  });

  it('is available only to viewers who may see everything, and not from pages of other sites', async () => {
    let user = 'root@example.com';
    await using rig = await createRig({
      searchText: 'all',
      identifyViewer: async () => ({ node: 'desk', nodeId: 'nDESK', user }),
      viewers: ['alice@example.com=namespace:prod', 'root@example.com'].map(parseViewRule),
    });
    const action = { 'x-tailcast-action': 'rebuild' };
    expect((await rig.get('/api/v1/index')).status).toBe(200);
    expect((await rig.get('/api/v1/index/rebuild', {}, 'POST')).status).toBe(400);
    expect((await rig.get('/api/v1/index/rebuild', action, 'POST')).status).toBe(202);
    expect((await rig.get('/api/v1/index/rebuild?x', action, 'POST')).status).toBe(405);
    user = 'alice@example.com';
    expect((await rig.get('/api/v1/index')).status).toBe(403);
    expect((await rig.get('/api/v1/index/verify')).status).toBe(403);
    expect((await rig.get('/api/v1/index/rebuild', action, 'POST')).status).toBe(403);
  });
});
